"""The privacy curve of a search: epsilon at every delta, not only at the charged one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.notation import delta_up, epsilon_up
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.profiles.privacy_profiles import invert
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve

PANEL = Panel(claimants=(Pld(), Rdp()))
DELTAS = tuple(10.0**power for power in range(-3, -11, -1))
LARGEST_MU = 60.0
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

    def excess(mu: float) -> float:
        return _gaussian_delta(epsilon, mu) - delta

    if excess(LARGEST_MU) < 0:
        return math.inf
    return float(brentq(excess, 1e-6, LARGEST_MU, xtol=1e-10)) + 1e-9


def _gaussian_delta(epsilon: float, mu: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def _gaussian_epsilon(delta: float, mu: float) -> float:
    if _gaussian_delta(0.0, mu) <= delta:
        return 0.0
    return float(brentq(lambda epsilon: _gaussian_delta(epsilon, mu) - delta, 0.0, mu**2 / 2 + 10 * mu * 2))


def _bounds(plan: Plan) -> dict[float, float]:
    """The finite epsilons by delta, in ascending order of delta; the charged delta has the claim of the accountants."""
    bounds = {delta: _epsilon(plan, delta) for delta in DELTAS} | {plan.delta: _claim(plan, plan.delta)}
    return {delta: bounds[delta] for delta in sorted(bounds) if bounds[delta] < math.inf}


def _epsilon(plan: Plan, delta: float) -> float:
    """An upper bound, at most 1e-5 above the accountants' claim where the event has a profile.

    A profile answers every delta by the same few transforms; `Pld.epsilon` takes a transform for each delta.
    """
    try:
        profiles = [Pld().profile(part, plan.adjacency) for part in plan.event.parts.values()]
        bounds = [max(invert(profile, delta) for profile in profiles)]
    except DpsweepError:
        return _claim(plan, delta)
    with suppress(DpsweepError):
        bounds.append(max(Rdp().epsilon(part, delta, plan.adjacency) for part in plan.event.parts.values()))
    return min(bounds)


def _claim(plan: Plan, delta: float) -> float:
    try:
        return PANEL.epsilon(plan.event, delta, plan.adjacency)
    except DpsweepError:
        return math.inf


def _draw(bounds: dict[float, float], charged: float, mu: float) -> charts.Drawing:
    deltas = tuple(bounds)
    curves = [Curve(label="this search", x=deltas, y=tuple(bounds.values()))]
    if math.isfinite(mu):
        gaussian = tuple(_gaussian_epsilon(delta, mu) for delta in deltas)
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
