"""Arrangement of a sweep's points into the panels of a heatmap: columns, rows, and one panel per further key."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.records.plan import REPEAT
from dpsweep.accounting.searches.interface import POINT_SCORES
from dpsweep.reports.content.formatting import axis_label, method_label, setting_text
from dpsweep.reports.content.map_axes import across_down_and_facets, distinct_values, equal_with_bools_apart
from dpsweep.reports.content.score_scale import PERCENT, ScoreScale
from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.statistics.point_scores import Z95, score_of_point, scores_of_points

RUNS, COMPARED, SCORED, PLANNED, ERROR = "runs", "compared", "scored", "planned", "error_in_comparisons"
"""The columns with a point's number of runs, what the rule compares, how many have a score and were to have one, and
the point's standard error in a comparison."""

FAR_OUT = 3.0
"""Interquartile ranges below the lower quartile at which the colour scale ends. *Source*: Tukey 1977."""


class Mark(IntEnum):
    """The mark of a cell: best of all, best of its method, not significantly worse than the best, below the scale.

    `CHOSEN` takes the place of `BEST` where no point can be told apart from it: then no other cell is marked.
    """

    NONE = 0
    BELOW = 1
    AS_GOOD = 2
    BEST_OF_METHOD = 3
    BEST = 4
    CHOSEN = 5


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point on a map: its only run, or the mean of its `runs`; None if no run has a score.

    `error` is its standard error in a comparison with other points, None if it is unknown. `compared` is what the rule
    compares, where that is not the mean.
    """

    state: State
    accuracy: float | None
    low: float | None
    high: float | None
    mark: Mark
    runs: int = 1
    error: float | None = None
    compared: float | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether the score says more than that it is on its scale."""
        return self.accuracy is not None and not (self.low == 0 and self.high == 1)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A swept key with its values in the grid; a key of None is an axis that the method does not have."""

    key: str | None
    values: tuple[object, ...]

    @property
    def label(self) -> str:
        """The quantity's name."""
        return "" if self.key is None else axis_label(self.key)

    @cached_property  # a page asks for it in each cell of a map
    def ticks(self) -> tuple[str, ...]:
        """The values as they were typed."""
        return ("",) if self.key is None else tuple(setting_text(value) for value in self.values)


@dataclass(frozen=True, kw_only=True)
class MapPanel:
    """One map: a method at one noise multiplier. `cells` maps (row, column) to the point there; `scale` says scores."""

    method: str
    facet: tuple[str, ...]
    across: Axis
    down: Axis
    cells: Mapping[tuple[int, int], Cell]
    scale: ScoreScale = PERCENT

    @property
    def label(self) -> str:
        """The method's name for readers."""
        return method_label(self.method)

    @property
    def name(self) -> str:
        """Method and facet in one line."""
        return ", ".join((self.label, *self.facet))


def build_map_panels(
    table: pd.DataFrame,
    axes: Sequence[str],
    compared_by: str = "mean",
    scale: ScoreScale = PERCENT,
) -> tuple[MapPanel, ...]:
    """One panel per method, noise multiplier and further key; lr is the horizontal axis wherever it varies.

    A point that was run several times, as a repetition or because a sampler proposed it again, shows the mean.
    `compared_by` names what the rule compares points by, one of `POINT_SCORES`.
    """
    keys_of_points = [key for key in axes if key != REPEAT]
    points = _table_of_point_means(table, keys_of_points, compared_by)
    best = _index_of_best_point(points)
    panels: list[MapPanel] = []
    for _, rows in points.groupby("method", sort=False):
        keys = [key for key in keys_of_points if rows[key].notna().any()]
        across, down, facets = _axes_and_facets(rows, keys)
        across_and_down = [
            Axis(key=key, values=(None,) if key is None else tuple(distinct_values(rows[key])))
            for key in (across, down)
        ]
        marks = {_index_of_best_point(rows): Mark.BEST_OF_METHOD} | {best: Mark.BEST}
        groups = [rows]
        for key in facets:
            groups = [
                own[[equal_with_bools_apart(one, step) for one in own[key]]]
                for own in groups
                for step in distinct_values(own[key])
            ]
        panels.extend(_build_panel(own, facets, marks, *across_and_down) for own in groups)
    return _with_cells_as_good_as_best_marked([replace(panel, scale=scale) for panel in panels])


def _index_of_best_point(points: pd.DataFrame) -> int | None:
    """Index of the point that is best by what the rule compares, as `index_of_winning_run` finds it."""
    scored = points.loc[points[SCORED] > 0]
    if scored.empty:
        return None
    able = scored.loc[scored[SCORED] >= min(scored[PLANNED].iloc[0], scored[SCORED].max())]
    return int(str(able[COMPARED].astype(float).idxmax()))


def _table_of_point_means(table: pd.DataFrame, keys: Sequence[str], compared_by: str) -> pd.DataFrame:
    """One row per point, in the order of first runs: the mean of its finished runs, its errors, and their number."""
    points: dict[str, list[dict[Hashable, Any]]] = {}
    for row in table.to_dict("records"):
        points.setdefault(repr([row["method"], row["noise_multiplier"], *(row[key] for key in keys)]), []).append(row)
    if not points:
        return table.assign(**{COMPARED: None, SCORED: 0, PLANNED: 1, ERROR: None})
    scored = [[run for run in runs if _has_score(run)] for runs in points.values()]
    score = POINT_SCORES[compared_by]
    scores = [score_of_point({place: run["accuracy"] for place, run in enumerate(own)}, score) for own in scored]
    rows = [
        {
            **(runs[0] if point is None else own[point.run]),
            RUNS: len(runs) if point is None else point.runs,
            COMPARED: None if point is None else point.value,
            SCORED: len(own),
            ERROR: None,
        }
        for runs, own, point in zip(points.values(), scored, scores, strict=True)
    ]
    for row, values in zip((row for row in rows if row[SCORED]), _means_and_errors(scored), strict=True):
        row.update(values)
    planned = min(map(len, points.values())) if REPEAT in table else 1
    return pd.DataFrame(rows, dtype=object).assign(**{PLANNED: planned})


def _has_score(run: Mapping[Hashable, Any]) -> bool:
    return run["state"] == State.FINISHED and run["accuracy"] is not None


def _means_and_errors(scored: Sequence[Sequence[dict[Hashable, Any]]]) -> Iterator[dict[Hashable, Any]]:
    """The mean of each point with scored runs and its 95 % interval, and its error in comparisons.

    A point that ran once keeps its run's interval, unless the spread of repeated runs is known.
    """
    able = [runs for runs in scored if runs]
    if not able:
        return
    place = np.repeat(np.arange(len(able)), list(map(len, able)))
    scores = scores_of_points(pd.DataFrame([run for runs in able for run in runs]), place, pd.DataFrame())
    margins = Z95 * scores.errors_of_means
    errors = scores.student_inflation_factor * scores.errors
    for runs, mean, margin, error in zip(able, scores.means, margins, errors, strict=True):
        values: dict[Hashable, Any] = {ERROR: float(error) if math.isfinite(error) else None}
        if len(runs) > 1 or len(scores.residuals):
            known = math.isfinite(margin)
            values["accuracy"] = float(mean)
            values["accuracy_low"] = max(0.0, float(mean - margin)) if known else None
            values["accuracy_high"] = min(1.0, float(mean + margin)) if known else None
        yield values


def common_scale_of_panels(panels: Sequence[MapPanel]) -> ScoreScale:
    """The scale of all panels; that of plain scores where they differ."""
    scales = {panel.scale for panel in panels}
    return scales.pop() if len(scales) == 1 else PERCENT


def colour_scale_ends(panels: Iterable[MapPanel]) -> tuple[float, float]:
    """The ends of the colour scale of all panels: the highest score, and the lowest that is no far outlier.

    They are at least one percentage point apart. Where no panel has a best point told apart, they are the ends of
    the intervals: then differences of colour are no larger than those of chance.
    """
    cells = [cell for cell in _finished_cells(panels) if cell.accuracy is not None]
    scores = sorted(cell.accuracy for cell in cells if cell.accuracy is not None)
    if not scores:
        return 0.0, 1.0
    marks = {cell.mark for cell in cells}
    if Mark.CHOSEN in marks and Mark.BEST not in marks:
        ends = [end for cell in cells for end in (cell.low, cell.high) if end is not None]
        return min(scores[0], *ends), max(scores[-1], *ends)
    lower, upper = np.quantile(scores, (0.25, 0.75))
    fence = float(lower - FAR_OUT * (upper - lower)) - 1e-12
    low, high = next(score for score in scores if score >= fence), scores[-1]
    spare = max(0.0, 0.01 - (high - low)) / 2
    return max(0.0, low - spare), min(1.0, high + spare)


def _finished_cells(panels: Iterable[MapPanel]) -> list[Cell]:
    return [cell for panel in panels for cell in panel.cells.values() if cell.state is State.FINISHED]


def mark_cells_below_scale(panels: Sequence[MapPanel]) -> tuple[MapPanel, ...]:
    """The panels, with a mark on cells whose scores are below the common colour scale."""
    low, _ = colour_scale_ends(panels)
    return _mark_unmarked_cells(panels, Mark.BELOW, lambda cell: cell.accuracy is not None and cell.accuracy < low)


def _mark_unmarked_cells(
    panels: Sequence[MapPanel], mark: Mark, applies: Callable[[Cell], bool]
) -> tuple[MapPanel, ...]:
    """The panels, with this mark on the finished cells to which it applies and that have no other mark."""

    def mark_cell(cell: Cell) -> Cell:
        free = cell.mark is Mark.NONE and cell.state is State.FINISHED
        return replace(cell, mark=mark) if free and applies(cell) else cell

    return tuple(
        replace(panel, cells={place: mark_cell(cell) for place, cell in panel.cells.items()}) for panel in panels
    )


def _with_cells_as_good_as_best_marked(panels: Sequence[MapPanel]) -> tuple[MapPanel, ...]:
    """The panels with marks on the points that cannot be told apart from the best.

    Where no point can be, the best one is only the chosen one, and no other cell has a mark.
    """
    cells = [cell for cell in _finished_cells(panels) if cell.accuracy is not None]
    best = next((cell for cell in cells if cell.mark is Mark.BEST), None)
    if best is None:
        return tuple(panels)
    others = [cell for cell in cells if cell is not best]
    if not others or (best.is_ranked and any(one.is_ranked and not _is_as_good_as_best(best, one) for one in others)):
        return _mark_unmarked_cells(panels, Mark.AS_GOOD, partial(_is_as_good_as_best, best))
    return tuple(
        replace(
            panel,
            cells={
                place: replace(cell, mark=Mark.CHOSEN if cell.mark is Mark.BEST else Mark.NONE)
                for place, cell in panel.cells.items()
            },
        )
        for panel in panels
    )


def _is_as_good_as_best(best: Cell, cell: Cell) -> bool:
    """Whether 0 is in the 95 % interval of the difference of two points that are scored on the same records."""
    if cell.accuracy is None or best.accuracy is None or cell.error is None or best.error is None:
        return False
    if not (cell.is_ranked and best.is_ranked):
        return False
    return best.accuracy - cell.accuracy <= Z95 * math.hypot(best.error, cell.error)


def no_point_told_apart_sentence(panels: Sequence[MapPanel]) -> str:
    """That no point can be told apart from the chosen one; empty if some can."""
    cells = _finished_cells(panels)
    if not any(cell.mark is Mark.CHOSEN for cell in cells):
        return ""
    return (
        f"No point can be told apart from the chosen one: the scores of all {len(cells)} points differ by no more than "
        "their errors. More records, a metric with less noise or repeats of fewer points would tell more."
    )


def points_as_good_as_best_sentence(panels: Sequence[MapPanel]) -> str:
    """How many points are not significantly worse than the best one; empty if no point is the best of others."""
    cells = [cell for cell in _finished_cells(panels) if cell.accuracy is not None]
    best = next((cell for cell in cells if cell.mark is Mark.BEST), None)
    if best is None or len(cells) < 2:
        return ""
    cells = [best, *(cell for cell in cells if cell is not best and cell.is_ranked and cell.error is not None)]
    if len(cells) < 2 or best.error is None:
        return ""
    others = f"other {len(cells) - 1} points" if len(cells) > 2 else "other point"
    good = sum(_is_as_good_as_best(best, cell) for cell in cells if cell is not best)
    if not good:
        return f"The {others} {'are' if len(cells) > 2 else 'is'} significantly worse than the best one."
    return f"Of the {others}, {good} {'are' if good > 1 else 'is'} not significantly worse than the best one."


def _axes_and_facets(rows: pd.DataFrame, keys: Sequence[str]) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(across, down, facets): varying keys first, then lr, then numeric keys, then keys with more values."""
    steps = {key: distinct_values(rows[key]) for key in keys if not _is_determined_by_noise(rows, key)}
    across, down, facets = across_down_and_facets(steps)
    return across, down, ("noise_multiplier", *facets)


def _is_determined_by_noise(rows: pd.DataFrame, key: str) -> bool:
    """Whether the noise multiplier determines the value of this privacy setting."""
    if not key.startswith("privacy."):
        return False
    return all(len(distinct_values(group[key])) < 2 for _, group in rows.groupby("noise_multiplier", dropna=False))


def _build_panel(
    rows: pd.DataFrame, facets: Sequence[str], marks: Mapping[int | None, Mark], across: Axis, down: Axis
) -> MapPanel:
    first = rows.iloc[0]
    facet = [f"{axis_label(key)} {setting_text(first[key])}" for key in facets if first[key] is not None]
    alone = set(rows["epsilon_alone"]) if "epsilon_alone" in rows else set()
    if len(alone) == 1 and alone != {None}:  # by which the papers name a panel; it is not the price of the search
        facet.append(f"one run \N{GREEK SMALL LETTER EPSILON} {epsilon_text_rounded_up(*alone)}")
    cells: dict[tuple[int, int], Cell] = {}
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        cells[_position_on_axis(row, down), _position_on_axis(row, across)] = Cell(
            state=State(row["state"]),
            accuracy=row["accuracy"],
            low=row["accuracy_low"],
            high=row["accuracy_high"],
            mark=marks.get(int(str(index)), Mark.NONE),
            runs=row[RUNS],
            error=row[ERROR],
            compared=None if row[COMPARED] == row["accuracy"] else row[COMPARED],
        )
    return MapPanel(method=str(first["method"]), facet=tuple(facet), across=across, down=down, cells=cells)


def _position_on_axis(row: Mapping[Hashable, Any], axis: Axis) -> int:
    if axis.key is None:
        return 0
    return next(place for place, value in enumerate(axis.values) if equal_with_bools_apart(value, row[axis.key]))
