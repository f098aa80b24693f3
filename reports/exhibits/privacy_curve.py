"""The privacy curve of a search: epsilon at every delta, not only at the charged one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from scipy.special import log_ndtr, ndtr

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile, invert
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.exhibits.page_accountants import panel_for, pld_for
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve

DELTAS = tuple(10.0**power for power in range(-3, -11, -1))
LARGEST_MU = 60.0
CLOSE = 1e-9
"""The largest rounding of a mu, upwards."""

SOURCE = "priced by the accountants from the plan's event in plan.json"


def privacy(plan: Plan, charges: int) -> Exhibit | None:
    """Epsilon at each delta for one charge of the plan; None if it was charged more than once or has no bound."""
    if charges != 1:
        return None
    bounds = _bounds(plan)
    if len(bounds) < 2:
        return None
    mu = max(gaussian_mu(epsilon, delta) for delta, epsilon in bounds.items())
    least, most = min(bounds), max(bounds)
    return Exhibit(
        key="privacy",
        title="Epsilon at other deltas",
        note="The same noise has a smaller epsilon at a larger delta. The dashed line is the delta that was charged.",
        source=SOURCE,
        findings=(
            f"At each of these deltas, from {delta_up(least)} to {delta_up(most)}, the search is bounded like one "
            f"Gaussian mechanism of mu = {epsilon_up(mu)} (Gaussian differential privacy; Dong, Roth, Su 2022).",
        ),
        drawings=(_draw(bounds, plan.delta, mu),),
        sheets=(_sheet(bounds),),
    )


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism with this delta at this epsilon, rounded up; infinity beyond `LARGEST_MU`.

    *Source*: Balle and Wang 2018, Theorem 8: delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
    """

    if _gaussian_delta(epsilon, LARGEST_MU) < delta:
        return math.inf
    low, high = 0.0, LARGEST_MU
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return high + CLOSE


def _gaussian_delta(epsilon: float, mu: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def _bounds(plan: Plan) -> dict[float, float]:
    """The finite epsilons by delta, in ascending order of delta; the charged delta has the claim of the accountants."""
    bounds = {delta: _epsilon(plan, delta) for delta in DELTAS} | {plan.delta: _claim(plan, plan.delta)}
    return {delta: bounds[delta] for delta in sorted(bounds) if bounds[delta] < math.inf}


def _epsilon(plan: Plan, delta: float) -> float:
    """An upper bound, at most 1e-5 above the accountants' claim where the event of few runs has a profile.

    A profile answers every delta by the same few transforms; `Pld.epsilon` takes a transform for each delta.
    """
    pld = pld_for(len(plan.trials))
    try:
        profiles = [pld.profile(part, plan.adjacency) for part in plan.event.parts.values()]
        bounds = [max(invert(profile, delta) for profile in profiles)]
    except DpsweepError:
        return _claim(plan, delta)
    with suppress(DpsweepError):
        bounds.append(max(Rdp().epsilon(part, delta, plan.adjacency) for part in plan.event.parts.values()))
    return min(bounds)


def _claim(plan: Plan, delta: float) -> float:
    try:
        return panel_for(1).epsilon(plan.event, delta, plan.adjacency)
    except DpsweepError:
        return math.inf


def _draw(bounds: dict[float, float], charged: float, mu: float) -> charts.Drawing:
    deltas = tuple(bounds)
    curves = [Curve(label="this search", x=deltas, y=tuple(bounds.values()))]
    if math.isfinite(mu):
        gaussian = tuple(map(GaussianProfile(mu=mu).epsilon, deltas))
        curves.append(Curve(label=f"a Gaussian mechanism of mu {epsilon_up(mu)}", x=deltas, y=gaussian, dashed=True))
    chart = Chart(
        title="", x_label="delta", y_label="epsilon, at most", curves=tuple(curves), log_x=True, at=(charged,)
    )
    return charts.charts("privacy", "Upper bounds on epsilon by delta.", (chart,))


def _sheet(bounds: dict[float, float]) -> Sheet:
    rows: Sequence[tuple[Item, ...]] = [
        (Item(text=delta_up(delta), key=delta), Item(text=epsilon_up(epsilon), key=epsilon))
        for delta, epsilon in bounds.items()
    ]
    return Sheet(caption="Epsilon by delta", columns=("delta", "epsilon, at most"), rows=tuple(rows))
