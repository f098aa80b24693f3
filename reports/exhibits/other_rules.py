"""Prices of this sweep's runs under other selection rules, by the number of trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.notation import epsilon_up
from dpsweep.accounting.pricing.rule_prices import BEST_SHARE
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.private_selection import PoissonSelection, PrivateSelection
from dpsweep.accounting.selection.random_stopping import RandomStopping
from dpsweep.reports.content.formatting import percent
from dpsweep.reports.content.sweep_table import Alone
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.exhibits.page_accountants import panel_for
from dpsweep.reports.figures import charts
from dpsweep.reports.figures.charts import Chart, Curve

FEWEST = 5
"""Smallest number of points for the comparison: with fewer points, paying for all of them is the cheapest."""

TRIES = (1, 2, 5, 10, 30, 100)
MANY = 1000
"""Number of points of a grid fine enough that all trials are of different points, also under composition."""

SOURCE = "priced by the accountants from the events in plan.json"


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a search with `tries` expected trials, and the chance that one of them is among the best points."""

    tries: float
    chance: float
    epsilon: float


def rivals(plan: Plan, room: float) -> Exhibit | None:
    """Prices by the number of trials and by the chance to try a good point.

    None if the runs are few or share batches, or if no accountant bounds them.

    `room` is the epsilon that the account had for this sweep, infinity without a limit.
    """
    if plan.shared or plan.finals or len(plan.trials) < FEWEST:
        return None
    prices_by_rule = {label: own for label, rule in _rules(plan).items() if (own := prices(plan, rule))}
    if not prices_by_rule:
        return None
    return Exhibit(
        key="rivals",
        title="Prices under other selection rules",
        note="Epsilon at this sweep's delta and noise, every run at the price of the most expensive one. Composition "
        "pays for every try and shows all of them; the other rules pay for a secret, random number of tries and show "
        "the winner. Left: at equal numbers of tries. Right: at an equal chance to try one of the best "
        f"{BEST_SHARE:.0%} of the points. The dashed line is the epsilon that the account had for this sweep.",
        source=SOURCE,
        drawings=(_draw(prices_by_rule, room),),
        sheets=(_sheet(prices_by_rule),),
    )


def prices(plan: Plan, rule: Callable[[int], SelectionRule]) -> tuple[Price, ...]:
    """The price of each number of trials that an accountant bounds, in ascending order."""
    alone = Alone(delta=plan.delta, adjacency=plan.adjacency, quoted={})
    dearest = max(plan.trials, key=lambda trial: alone.epsilon(trial) or 0.0).event
    quotes = []
    for tries in TRIES:
        priced = rule(tries)
        composed = not priced.draws_in_secret
        runs = tries if composed else 1
        panel = panel_for(1 if tries == len(plan.trials) else runs)  # its own number has one price on the whole page
        try:
            epsilon = panel.epsilon(priced.event([dearest] * runs), plan.delta, plan.adjacency)
        except DpsweepError:
            continue
        if math.isfinite(epsilon):
            chance = 1 - (1 - BEST_SHARE) ** tries if composed else priced.chance_of_best(MANY, BEST_SHARE)
            quotes.append(Price(tries=priced.expected_tries(tries), chance=chance, epsilon=epsilon))
    return tuple(quotes)


def _rules(plan: Plan) -> Mapping[str, Callable[[int], SelectionRule]]:
    return {
        "composition": lambda _: Composition(),
        "random stopping": lambda tries: RandomStopping(gamma=1 / tries, delta=plan.delta),
        "private selection": lambda tries: PrivateSelection(mean=tries),
        "Poisson selection": lambda tries: PoissonSelection(mean=tries),
    }


def _draw(prices_by_rule: Mapping[str, tuple[Price, ...]], room: float) -> charts.Drawing:
    levels = (room,) if math.isfinite(room) else ()

    def curves(x: Callable[[Price], float]) -> tuple[Curve, ...]:
        return tuple(
            Curve(label=label, x=tuple(map(x, own)), y=tuple(one.epsilon for one in own))
            for label, own in prices_by_rule.items()
        )

    by_tries = Chart(
        title="At equal numbers of tries",
        x_label="tries, on average",
        y_label="epsilon",
        curves=curves(lambda one: one.tries),
        log_x=True,
        log_y=True,
        levels=levels,
    )
    by_chance = Chart(
        title="At an equal chance to try a good point",
        x_label=f"chance to have tried one of the best {BEST_SHARE:.0%}, %",
        y_label="epsilon",
        curves=curves(lambda one: 100 * one.chance),
        log_y=True,
        levels=levels,
    )
    alt = (
        "Epsilon of this sweep's runs by the number of tries, and by the chance to try a good point, under four rules."
    )
    return charts.charts("rivals", alt, (by_tries, by_chance))


def _sheet(prices_by_rule: Mapping[str, tuple[Price, ...]]) -> Sheet:
    rows = tuple(
        (
            Item(text=label),
            Item(text=f"{one.tries:.3g}", key=one.tries),
            Item(text=f"{percent(one.chance)} %", key=one.chance),
            Item(text=epsilon_up(one.epsilon), key=one.epsilon),
        )
        for label, own in prices_by_rule.items()
        for one in own
    )
    return Sheet(
        caption="Prices by rule", columns=("rule", "tries", f"tried a top-{BEST_SHARE:.0%} point", "epsilon"), rows=rows
    )
