"""What a page concludes from its maps: no point can be told apart, or the best lies at an end, and what to do then."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.reports.content.formatting import count_text, enumeration_text, setting_text
from dpsweep.reports.content.map_axes import are_all_numbers
from dpsweep.reports.content.panels import (
    Axis,
    MapPanel,
    Mark,
    no_point_told_apart_sentence,
    points_as_good_as_best_sentence,
)
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.prices import accountant_panel_for_runs

SHARES = frozenset({"momentum", "beta1", "beta2", "ema", "decay"})
"""The names of settings that are shares of one, and go towards one by what is missing to it."""

FEWEST = 3
"""The smallest number of values of an axis whose end says something about values beyond it."""


def conclusion_sentence(sweep: Sweep, panels: Sequence[MapPanel], clauses: Iterable[str]) -> str:
    """The page's conclusion: which settings matter, as the exhibits' clauses say, and whether the grid is wide enough.

    If they say neither, it counts the points that are as good as the best one. It is empty if a reader sees neither
    maps nor exhibits about all scores.
    """
    if apart := no_point_told_apart_sentence(panels):
        return apart
    sentence = "; ".join(filter(None, (*clauses, _clause_on_ends_of_axes(sweep, panels))))
    if not sentence:
        return points_as_good_as_best_sentence(panels)
    starts_with_word = sentence.startswith(("for ", "the "))  # and not with the name of a setting
    return f"{sentence[0].upper() if starts_with_word else sentence[0]}{sentence[1:]}."


def _clause_on_ends_of_axes(sweep: Sweep, panels: Sequence[MapPanel]) -> str:
    """That the best lies at the end of an axis, how to go beyond it and what that costs; empty if it lies at none."""
    ends = dict(_axis_ends_with_best_points(panels))
    if not ends:
        return ""
    at, beyond = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for (label, value), axis in sorted(ends.items(), key=lambda end: end[0][1] != end[1].values[0]):
        at[label].append(setting_text(value))
        beyond[axis.key or ""].append(setting_text(_value_beyond_end(axis, value)))
    where = enumeration_text([f"{label} = {' or '.join(values)}" for label, values in at.items()])
    wider = enumeration_text([f"{key}={','.join(values)}" for key, values in beyond.items()])
    price = _price_of_more_values(sweep, ends.items())
    return f"the best point, or one as good, lies at the edge of the grid, {where}: widen the grid with {wider}{price}"


def reason_for_no_map(rule: SelectionRule) -> str:
    """Why a search under this rule has no map, and what gives one; empty if it has one."""
    if Disclosure.ALL_SCORES in rule.discloses:
        return ""
    return (
        f"There is no map: {rule.name} pays for its winner alone, and a map would show the scores of all others. "
        "tuning=composition pays for every run and has a map."
    )


def _axis_ends_with_best_points(panels: Sequence[MapPanel]) -> Iterator[tuple[tuple[str, object], Axis]]:
    """The ends of numeric axes, by label and value, beyond which a better point may lie.

    An end with a point that is only as good as one inside is none, nor are both ends of an axis that hardly matters.
    """
    for panel in panels:
        for axis, dimension in ((panel.across, 1), (panel.down, 0)):
            if axis.key is None or len(axis.values) < FEWEST or not are_all_numbers(axis.values):
                continue
            marks = sorted((cell.mark, place[dimension]) for place, cell in panel.cells.items())
            good = {place: mark for mark, place in marks if mark in (Mark.AS_GOOD, Mark.BEST)}
            ends = [place for place in (0, len(axis.values) - 1) if place in good]
            if len(good) > len(ends):  # some value inside is as good
                ends = [place for place in ends if good[place] is Mark.BEST and len(ends) == 1]
            yield from (((axis.label, axis.values[place]), axis) for place in ends)


def _value_beyond_end(axis: Axis, end: object) -> float:
    """The next value of an axis of numbers: a step by ratio, for shares near one by that of what is missing to one.

    >>> lr, offset = (Axis(key="trainer.lr", values=one) for one in ((0.1, 0.4), (-1, 0)))
    >>> momentum = Axis(key="trainer.momentum", values=(0.9, 0.99))
    >>> _value_beyond_end(lr, 0.4), _value_beyond_end(lr, 0.1), _value_beyond_end(momentum, 0.99)
    (1.6, 0.025, 0.999)
    >>> _value_beyond_end(offset, 0)
    1
    """
    values = [float(str(value)) for value in axis.values]
    last, inner = (values[0], values[1]) if end == axis.values[0] else (values[-1], values[-2])
    if (axis.key or "").rpartition(".")[2] in SHARES and min(values) >= 0.5 and max(values) < 1:
        beyond = 1 - (1 - last) ** 2 / (1 - inner)
    else:
        beyond = last * last / inner if min(values) > 0 else 2 * last - inner
    rounded = float(f"{beyond:.3g}")
    return round(rounded) if all(isinstance(value, int) for value in axis.values) and rounded >= 1 else rounded


def _price_of_more_values(sweep: Sweep, ends: Iterable[tuple[tuple[str, object], Axis]]) -> str:
    """The price of a sweep of one more value beyond each of these ends; empty where other runs would be priced."""
    if not sweep.shown.adds_up:
        return ""
    plan, beyond = sweep.plan, []
    for _, axis in ends:
        first, last = (
            [trial.event for trial in plan.trials if trial.axes.get(axis.key or "") == one]
            for one in (axis.values[0], axis.values[-1])
        )
        if first != last:  # such as steps: runs beyond the end have another price
            return ""
        beyond.extend(first)
    try:
        panel = accountant_panel_for_runs(len(beyond))
        epsilon = panel.epsilon(sweep.rule.event(beyond), plan.delta, plan.adjacency)
    except DpsweepError:
        return ""
    if not math.isfinite(epsilon):
        return ""
    runs = count_text(len(beyond), "run")
    return f", which costs epsilon {epsilon_text_rounded_up(epsilon)} more, for {runs} with the same noise"
