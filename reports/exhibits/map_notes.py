"""What a page says below its maps: that no point can be told apart, or that the best lies at the end of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.reports.content.formatting import enumeration_text, setting_text
from dpsweep.reports.content.panels import Axis, MapPanel, Mark, no_point_told_apart_sentence
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.prices import accountant_panel_for_runs

FEWEST = 3
"""The smallest number of values of an axis whose end says something about values beyond it."""


def map_note_sentences(sweep: Sweep, panels: Sequence[MapPanel]) -> tuple[str, ...]:
    """What the maps leave open, with the price of a wider grid; nothing for maps of tries that nobody may see."""
    if apart := no_point_told_apart_sentence(panels):
        return (apart,)
    ends = dict(_axis_ends_with_best_points(panels))
    if not ends:
        return ()
    where = enumeration_text([f"{key} = {setting_text(value)}" for key, value in ends])
    sentence = f"The best point, or one as good, lies at the end of an axis: {where}. A better one may lie beyond it."
    return (" ".join(filter(None, (sentence, _price_of_wider_grid_sentence(sweep, ends.items())))),)


def reason_for_no_map(rule: SelectionRule) -> str:
    """Why a search under this rule has no map, and what gives one; empty if it has one."""
    if Disclosure.ALL_SCORES in rule.discloses:
        return ""
    return (
        f"There is no map: {rule.name} pays for its winner alone, and a map would show the scores of all others. "
        "tuning=composition pays for every run and has a map; `dpsweep plan` prices both."
    )


def _axis_ends_with_best_points(panels: Sequence[MapPanel]) -> Iterator[tuple[tuple[str, object], Axis]]:
    """The ends of numeric axes, by label and value, at which the best point or one as good lies."""
    for panel in panels:
        for axis, dimension in ((panel.down, 0), (panel.across, 1)):
            numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in axis.values)
            if axis.key is None or len(axis.values) < FEWEST or not numbers:
                continue
            for place, cell in panel.cells.items():
                if cell.mark in (Mark.BEST, Mark.AS_GOOD) and place[dimension] in (0, len(axis.values) - 1):
                    yield (axis.label, axis.values[place[dimension]]), axis


def _price_of_wider_grid_sentence(sweep: Sweep, ends: Iterable[tuple[tuple[str, object], Axis]]) -> str:
    """The price of the grid with one more value beyond each of these ends; empty where other runs would be priced."""
    plan = sweep.plan
    if plan.proposed is not None or plan.final_runs or plan.has_shared_subsamples or plan.has_public_data:
        return ""
    beyond = [
        trial.event for (_, value), axis in ends for trial in plan.trials if trial.axes.get(axis.key or "") == value
    ]
    epsilon = _epsilon_with_more_events(plan, sweep.rule, beyond)
    if not math.isfinite(epsilon):
        return ""
    return (
        f"One more value there is {len(beyond)} runs more: the search would cost epsilon "
        f"{epsilon_text_rounded_up(epsilon)}."
    )


def _epsilon_with_more_events(plan: Plan, rule: SelectionRule, more: Sequence[PlanEvent]) -> float:
    events = [*plan.priced_events, *more]
    try:
        return accountant_panel_for_runs(len(events)).epsilon(rule.event(events), plan.delta, plan.adjacency)
    except DpsweepError:
        return math.inf
