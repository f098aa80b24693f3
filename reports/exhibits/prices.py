"""Exhibits about the price: where the budget went, epsilon at other deltas, and the same runs under other rules.

Spending is told in an additive unit: Renyi divergence at the order that gives epsilon. The distributions of a thousand
runs on a plan's grid take seconds and hundreds of megabytes; on a coarser one every bound is still an upper bound:
higher by .002 % for 8000 steps at a sample rate of .25, by .09 % for 175,000 at .02.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pandas as pd

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import DpsweepError, UnsupportedEvent
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.price import DELTAS, gaussian_mu
from dpsweep.accounting.pricing.rule_prices import BEST_SHARE
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile, invert_profile
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.rule_words import chance_of_best, expected_tries
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.accounting.selection.rules import Composition, PoissonSelection, PrivateSelection, RandomStopping
from dpsweep.reports.content.formatting import percent_text
from dpsweep.reports.content.sections import Tone, bar_segments
from dpsweep.reports.content.sweep_table import Alone, State, Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve
from dpsweep.reports.figures.drawing import Drawing

FEW = 10
"""The largest number of composed runs on a plan's own grid."""

COARSE = 1e-3
"""The coarser grid's step, in nats."""


def pld_accountant_for_runs(runs: int) -> Pld:
    """The accountant by privacy losses of so many composed runs."""
    return Pld() if runs <= FEW else Pld(interval=COARSE)


def accountant_panel_for_runs(runs: int) -> Panel:
    """The accountants of so many composed runs."""
    return Panel(claimants=(pld_accountant_for_runs(runs), Rdp()))


SPENDING_SOURCE = "the ledger's charges and starts, result files, and Renyi curves of the events in plan.json"
REPEATED = "run again"
ACCOUNTANT = Rdp()

_TONES = {State.FINISHED.value: Tone.OWN, State.NOT_RUN.value: Tone.LEFT, REPEATED: Tone.OTHERS}


def sweep_with_bill_share_column(sweep: Sweep) -> Sweep:
    """The sweep with a column `share`: the share of the bill of all attempts at a run, None if it is unknown."""
    shares: list[float | None] = [None] * len(sweep.table)
    if sweep.shown.adds_up:
        attempts = [place for place, run in enumerate(sweep.runs.rows) for _ in range(run.charged)]
        spent = [0.0] * len(shares)
        with suppress(UnsupportedEvent):
            events_of_runs = [sweep.runs.rows[place].trial.event.training for place in attempts]
            for place, divergence in zip(attempts, _renyi_divergences_and_order(sweep, events_of_runs)[0], strict=True):
                spent[place] += divergence
        if 0 < sum(spent) < math.inf:
            shares = [own / sum(spent) for own in spent]
    return replace(sweep, table=sweep.table.assign(share=pd.Series(shares, dtype=object)))


def _renyi_divergences_and_order(sweep: Sweep, charged: Sequence[DpEvent]) -> tuple[list[float], float]:
    """The Renyi divergence of each event at the order that gives the epsilon of the whole bill, and that order."""
    adjacency = sweep.plan.adjacency
    place = ACCOUNTANT.index_of_deciding_order(events.compose(charged), sweep.plan.delta, adjacency)
    return [float(ACCOUNTANT.renyi_curve(event, adjacency)[place]) for event in charged], ACCOUNTANT.orders[place]


def spending_exhibit(sweep: Sweep) -> Exhibit | None:
    """Spending of finished, broken and repeated runs; None if the runs are one mechanism or have no finite bound.

    A run's further attempts count as run again.
    """
    if not sweep.shown.adds_up:
        return None
    attempts = [
        (REPEATED if attempt else str(state), run.trial.event.training)
        for run, state in zip(sweep.runs.rows, sweep.table["state"], strict=True)
        for attempt in range(run.charged)
    ]
    whole = [event for _, event in attempts]
    try:
        one_more = _total_epsilon([*whole, max(whole, key=lambda event: _total_epsilon([event], sweep))], sweep)
        added = one_more - _total_epsilon(whole, sweep)
        divergences, order = _renyi_divergences_and_order(sweep, whole)
    except UnsupportedEvent:
        return None
    if not math.isfinite(added):
        return None
    runs, spent = Counter(name for name, _ in attempts), defaultdict[str, float](float)
    for (name, _), divergence in zip(attempts, divergences, strict=True):
        spent[name] += divergence
    parts = {name: spent[name] for name in (*map(str, State), REPEATED) if runs[name]}
    total = sum(parts.values())
    rows = (
        (
            name,
            (str(runs[name]), runs[name]),
            (epsilon_text_rounded_up(part), part),
            (f"{part / total:.1%}", part / total),
        )
        for name, part in parts.items()
    )
    columns = ("runs", "how many", "divergence", "share")
    tones = {name: _TONES.get(name, Tone.TROUBLE) for name in parts}
    return Exhibit(
        key="spending",
        title="Where the budget went",
        note="The epsilons of several runs cannot be added, but their Renyi divergences of one order can. The table "
        f"shows the divergence of training at order {order:.4g}, at which RDP has its smallest epsilon. Scores "
        "are computed on other records, which no run trains on, so the price of training covers them.",
        source=SPENDING_SOURCE,
        findings=(
            "One more run, at the price of the most expensive one, would add epsilon "
            f"{epsilon_text_rounded_up(added)}, by RDP.",
        ),
        bar=tuple(
            bar_segments(((name, tones[name], part, f"{part / total:.1%}") for name, part in parts.items()), total)
        ),
        sheets=(Sheet.from_cells("Charged runs by outcome", columns, rows),),
    )


def _total_epsilon(charged: Sequence[DpEvent], sweep: Sweep) -> float:
    return ACCOUNTANT.epsilon(events.compose(charged), sweep.plan.delta, sweep.plan.adjacency)


CURVE_SOURCE = "priced by the accountants from the plan's event in plan.json"


def epsilon_by_delta_exhibit(plan: Plan, charges: int) -> Exhibit | None:
    """Epsilon at each delta for one charge of the plan; None if it was charged more than once or has no bound."""
    if charges != 1:
        return None
    every = {delta: _epsilon_bound_at_delta(plan, delta) for delta in DELTAS} | {
        plan.delta: _claimed_epsilon_or_infinity(plan, plan.delta)
    }
    bounds = {delta: every[delta] for delta in sorted(every) if every[delta] < math.inf}
    if len(bounds) < 2:
        return None
    rows = (
        ((delta_text_rounded_up(delta), delta), (epsilon_text_rounded_up(epsilon), epsilon))
        for delta, epsilon in bounds.items()
    )
    mu = max(gaussian_mu(epsilon, delta) for delta, epsilon in bounds.items())
    least, most = min(bounds), max(bounds)
    return Exhibit(
        key="privacy",
        title="Epsilon at other deltas",
        note="The same noise has a smaller epsilon at a larger delta. The dashed line is the delta that was charged.",
        source=CURVE_SOURCE,
        findings=(
            f"At each of these deltas, from {delta_text_rounded_up(least)} to {delta_text_rounded_up(most)}, the whole "
            "search protects at least as well as a single number released with Gaussian noise: the noise's standard "
            f"deviation is 1 / {epsilon_text_rounded_up(mu)} of what one {plan.unit} can change (Gaussian differential "
            f"privacy with mu = {epsilon_text_rounded_up(mu)}; Dong, Roth, Su 2022).",
        ),
        drawings=(_epsilon_by_delta_picture(bounds, plan.delta, mu),),
        sheets=(Sheet.from_cells("Epsilon by delta", ("delta", "epsilon, at most"), rows),),
    )


def _epsilon_bound_at_delta(plan: Plan, delta: float) -> float:
    """An upper bound, at most 1e-5 above the accountants' claim where the event of few runs has a profile.

    A profile answers every delta by the same few transforms; `Pld.epsilon` takes a transform for each delta.
    """
    pld = pld_accountant_for_runs(len(plan.trials))
    try:
        profiles = [pld.profile(part, plan.adjacency) for part in plan.event.events_by_population.values()]
        bounds = [max(invert_profile(profile, delta) for profile in profiles)]
    except DpsweepError:
        return _claimed_epsilon_or_infinity(plan, delta)
    with suppress(DpsweepError):
        bounds.append(
            max(Rdp().epsilon(part, delta, plan.adjacency) for part in plan.event.events_by_population.values())
        )
    return min(bounds)


def _claimed_epsilon_or_infinity(plan: Plan, delta: float) -> float:
    try:
        return accountant_panel_for_runs(1).epsilon(plan.event, delta, plan.adjacency)
    except DpsweepError:
        return math.inf


def _epsilon_by_delta_picture(bounds: dict[float, float], charged: float, mu: float) -> Drawing:
    deltas = tuple(bounds)
    curves = [Curve(label="this search", x=deltas, y=tuple(bounds.values()))]
    if math.isfinite(mu):
        gaussian = tuple(map(GaussianProfile(mu=mu).epsilon, deltas))
        curves.append(
            Curve(
                label=f"one number with Gaussian noise, mu {epsilon_text_rounded_up(mu)}",
                x=deltas,
                y=gaussian,
                dashed=True,
            )
        )
    chart = Chart(
        title="", x_label="delta", y_label="epsilon, at most", curves=tuple(curves), log_x=True, at=(charged,)
    )
    return charts.draw_charts("privacy", "Upper bounds on epsilon by delta.", chart)


FEWEST = 5
"""Smallest number of points for the comparison: with fewer points, paying for all of them is the cheapest."""

TRIES = (1, 2, 5, 10, 30, 100)
MANY = 1000
"""Number of points of a grid fine enough that all trials are of different points, also under composition."""

RULES_SOURCE = "priced by the accountants from the events in plan.json"


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a search with `tries` expected trials, and the chance that one of them is among the best points."""

    tries: float
    chance: float
    epsilon: float


def rule_prices_exhibit(plan: Plan, room: float) -> Exhibit | None:
    """Prices by the number of trials and by the chance to try a good point.

    None if the runs are few or share batches, or if no accountant bounds them.

    `room` is the epsilon that the account had for this sweep, infinity without a limit.
    """
    if plan.has_shared_subsamples or plan.final_runs or len(plan.trials) < FEWEST:
        return None
    rules: Mapping[str, Callable[[int], SelectionRule]] = {
        "composition": lambda _: Composition(),
        "random stopping": lambda tries: RandomStopping(gamma=1 / tries, delta=plan.delta),
        "private selection": lambda tries: PrivateSelection(mean=tries),
        "Poisson selection": lambda tries: PoissonSelection(mean=tries),
    }
    prices_by_rule = {label: own for label, rule in rules.items() if (own := prices_by_tries(plan, rule))}
    if not prices_by_rule:
        return None
    rows = (
        (
            *(label, (f"{one.tries:.3g}", one.tries), (f"{percent_text(one.chance)} %", one.chance)),
            (epsilon_text_rounded_up(one.epsilon), one.epsilon),
        )
        for label, own in prices_by_rule.items()
        for one in own
    )
    columns = ("rule", "tries", f"tried a top-{BEST_SHARE:.0%} point", "epsilon")
    return Exhibit(
        key="rivals",
        title="Prices under other selection rules",
        note="Epsilon at this sweep's delta and noise, every run at the price of the most expensive one. Composition "
        "pays for every try and shows all of them; the other rules pay for a secret, random number of tries and show "
        "the winner. Left: at equal numbers of tries. Right: at an equal chance to try one of the best "
        f"{BEST_SHARE:.0%} of the points. The dashed line is the epsilon that the account had for this sweep.",
        source=RULES_SOURCE,
        drawings=(_rule_prices_picture(prices_by_rule, room),),
        sheets=(Sheet.from_cells("Prices by rule", columns, rows),),
    )


def prices_by_tries(plan: Plan, rule: Callable[[int], SelectionRule]) -> tuple[Price, ...]:
    """The price of each number of trials that an accountant bounds, in ascending order."""
    alone = Alone(plan=plan)
    dearest = max(plan.trials, key=lambda trial: alone.epsilon(trial) or 0.0).event
    quotes = []
    for tries in TRIES:
        priced = rule(tries)
        composed = Disclosure.ALL_SCORES in priced.discloses
        runs = tries if composed else 1
        panel = accountant_panel_for_runs(
            1 if tries == len(plan.trials) else runs
        )  # its own number has one price on the whole page
        try:
            epsilon = panel.epsilon(priced.event([dearest] * runs), plan.delta, plan.adjacency)
        except DpsweepError:
            continue
        if math.isfinite(epsilon):
            chance = 1 - (1 - BEST_SHARE) ** tries if composed else chance_of_best(priced, MANY, BEST_SHARE)
            quotes.append(Price(tries=expected_tries(priced, tries), chance=chance, epsilon=epsilon))
    return tuple(quotes)


def _rule_prices_picture(prices_by_rule: Mapping[str, tuple[Price, ...]], room: float) -> Drawing:
    levels = (room,) if math.isfinite(room) else ()

    def epsilon_curve_per_rule(x: Callable[[Price], float]) -> tuple[Curve, ...]:
        return tuple(
            Curve(label=label, x=tuple(map(x, own)), y=tuple(one.epsilon for one in own))
            for label, own in prices_by_rule.items()
        )

    by_tries = Chart(
        title="At equal numbers of tries",
        x_label="tries, on average",
        y_label="epsilon",
        curves=epsilon_curve_per_rule(lambda one: one.tries),
        log_x=True,
        log_y=True,
        levels=levels,
    )
    by_chance = Chart(
        title="At an equal chance to try a good point",
        x_label=f"chance to have tried one of the best {BEST_SHARE:.0%}, %",
        y_label="epsilon",
        curves=epsilon_curve_per_rule(lambda one: 100 * one.chance),
        log_y=True,
        levels=levels,
    )
    alt = (
        "Epsilon of this sweep's runs by the number of tries, and by the chance to try a good point, under four rules."
    )
    return charts.draw_charts("rivals", alt, by_tries, by_chance)
