"""A method's mean scores over a full grid of learning rates and of another setting, such as its clip norm.

What the grid tells: the shares of its variance, and the exponent e of best learning rate ~ clip_norm^e, in two
readings. *Peaks*: the best learning rate of each clip norm is the vertex of a parabola in log lr through its best
cell and that cell's neighbours; a clip norm counts if its best score beats the ends and the median of its row by three
standard errors, so that a plateau, or a grid that ends before the optimum, says nothing. *Axis*: where too few clip
norms have a peak but the grid is fine, the principal axis of its best cells in log-log coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsweep.reports.statistics.point_scores import LR, PointScores, Values, point_scores
from dpsweep.reports.statistics.verdict import (
    CONFIDENCE,
    IntervalEstimate,
    interval_estimate_from_draws,
    unknown_estimate,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreGrid:
    """Mean scores by setting and learning rate; `places` [settings, rates] are the points' places in `points`."""

    rates: Values
    settings: Values
    places: NDArray[np.int64]
    points: PointScores

    @property
    def means(self) -> Values:
        """The mean scores [settings, rates]."""
        return np.asarray(self.points.means[self.places])

    @property
    def errors(self) -> Values:
        """The standard errors of the means [settings, rates]."""
        return np.asarray(self.points.errors[self.places])

    @property
    def draws(self) -> Values:
        """Bootstrap draws of the means [draws, settings, rates]."""
        return np.asarray(self.points.draws[:, self.places])


def score_grid(rows: pd.DataFrame, key: str) -> ScoreGrid | None:
    """The grid over the values of `key` and of the learning rate; None if points are missing, or an axis is short."""
    if not {LR, key} <= set(rows.columns) or rows[[LR, key]].isna().any(axis=None) or rows.empty:
        return None
    planned, points = rows[[key, LR]].drop_duplicates(), point_scores(rows)
    settings, rates = (np.unique(points.settings[name].to_numpy(dtype=float)) for name in (key, LR))
    if len(planned) != len(points.means) or len(points.means) != len(settings) * len(rates):
        return None
    if len(settings) < 2 or len(rates) < 3:
        return None
    places = np.lexsort((points.settings[LR].to_numpy(dtype=float), points.settings[key].to_numpy(dtype=float)))
    return ScoreGrid(rates=rates, settings=settings, places=places.reshape(len(settings), len(rates)), points=points)


BY_RATE, BY_SETTING, BY_BOTH = 0, 1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class VarianceShares:
    """Shares of the variance of a grid's true scores, whose sum is 1, with bootstrap draws [draws, 3]."""

    values: Values
    draws: Values

    def total_share_of_parts(self, name: str, *parts: int, level: float = CONFIDENCE) -> IntervalEstimate:
        """The share of these parts together."""
        places = list(parts)
        return interval_estimate_from_draws(
            name, float(self.values[places].sum()), self.draws[:, places].sum(axis=1), level
        )


def variance_shares(grid: ScoreGrid) -> VarianceShares | None:
    """The shares; None if the points do not differ by more than their errors.

    A sum of squares of noisy means exceeds that of true ones by the noise's variance times its degrees of freedom,
    that of a bootstrap draw by the draw's noise in addition; both are subtracted. *Source*: the method of moments for
    variance components; Searle, Casella, McCulloch 1992, Section 4.4.
    """
    if not grid.points.has_significant_differences:
        return None
    settings, rates = grid.places.shape
    freedoms = np.array([rates - 1, settings - 1, (rates - 1) * (settings - 1)])
    noise = float((grid.errors**2).mean()) * freedoms
    draws = _normalized_shares(_sums_of_squares(grid.draws) - (1 + grid.points.student_inflation_factor**2) * noise)
    return VarianceShares(values=_normalized_shares(_sums_of_squares(grid.means) - noise), draws=draws)


def _sums_of_squares(means: Values) -> Values:
    """Sums of squares of grids [..., settings, rates] by rate, by setting, and by their interaction [..., 3]."""
    settings, rates = means.shape[-2:]
    whole = means.mean(axis=(-2, -1), keepdims=True)
    by_rate, by_setting = means.mean(axis=-2, keepdims=True) - whole, means.mean(axis=-1, keepdims=True) - whole
    rest = means - whole - by_rate - by_setting
    sums = [
        settings * (by_rate**2).sum(axis=(-2, -1)),
        rates * (by_setting**2).sum(axis=(-2, -1)),
        (rest**2).sum(axis=(-2, -1)),
    ]
    return np.stack(sums, axis=-1)


def _normalized_shares(squares: Values) -> Values:
    positive = np.maximum(squares, 0.0)
    return np.asarray(positive / np.maximum(positive.sum(axis=-1, keepdims=True), 1e-300))


FEWEST_PEAKS = 3
CLEAR = 3.0
"""Standard errors of a difference by which a best score must beat its row's plateau."""

BEST, FEWEST_CELLS = 0.01, 8
"""The share of cells whose axis is taken, and the smallest number of them that has one."""

AT_EDGE = 0.25
"""Share of the best cells at the smallest or largest learning rate beyond which the optimum may lie outside."""

NAME = "e"


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """The exponent, and what it was read from, in words."""

    exponent: IntervalEstimate
    source: str


def exponent_of_best_rate_ridge(grid: ScoreGrid | None, level: float = CONFIDENCE) -> Ridge:
    """The exponent of a grid; without an interval if the grid does not show it."""
    if grid is None or not grid.points.has_significant_differences:
        return Ridge(exponent=unknown_estimate(NAME), source="no grid whose points differ by more than noise")
    peaked = _mask_of_rows_with_clear_peak(grid)
    if peaked.sum() >= FEWEST_PEAKS:
        return Ridge(
            exponent=_exponent_from_peaks(grid, peaked, level), source=f"{peaked.sum()} clip norms with a clear best lr"
        )
    cells = math.ceil(BEST * grid.places.size)
    if cells < FEWEST_CELLS:
        return Ridge(exponent=unknown_estimate(NAME), source=f"{peaked.sum()} clip norms with a clear best lr: too few")
    return Ridge(exponent=_exponent_from_axis(grid, cells, level), source=f"the axis of the best {cells} cells")


def log_rate_at_peak_of_each_row(log_rates: Values, scores: Values) -> Values:
    """The log learning rate of the best score of each row [..., rates], by the parabola through it and its neighbours.

    A row whose best is at an end has its peak there.

    >>> log_rate_at_peak_of_each_row(np.array([0.0, 1.0, 2.0, 3.0]), np.array([[0.0, 3.0, 4.0, 3.0]]))
    array([2.])
    """
    last = scores.shape[-1] - 1
    best = scores.argmax(axis=-1)
    middle = np.clip(best, 1, last - 1)
    left, top, right = (np.take_along_axis(scores, (middle + by)[..., None], -1)[..., 0] for by in (-1, 0, 1))
    before, after = log_rates[middle] - log_rates[middle - 1], log_rates[middle + 1] - log_rates[middle]
    falls, rises = (top - left) / before, (right - top) / after
    bend = (rises - falls) / (before + after)
    shift = np.where(bend < 0, -(falls + bend * before) / np.where(bend < 0, 2 * bend, 1.0), 0.0)
    inside = log_rates[middle] + np.clip(shift, -before, after)
    return np.asarray(np.where((best == 0) | (best == last), log_rates[best], inside))


def _mask_of_rows_with_clear_peak(grid: ScoreGrid) -> NDArray[np.bool_]:
    """The rows whose best score is inside the row and clearly above its ends and its median [settings]."""
    means, errors, rows = grid.means, grid.errors, np.arange(len(grid.settings))[:, None]
    order = np.argsort(means, axis=1)
    last = means.shape[1] - 1
    best, middle = order[:, -1:], order[:, (last + 1) // 2]
    plateau = np.stack([np.zeros_like(middle), np.full_like(middle, last), middle], axis=1)
    margin = CLEAR * grid.points.student_inflation_factor * np.hypot(errors[rows, best], errors[rows, plateau])
    inside = (best[:, 0] > 0) & (best[:, 0] < last)
    return np.asarray(inside & (means[rows, best] - means[rows, plateau] >= margin).all(axis=1))


def _exponent_from_peaks(grid: ScoreGrid, peaked: NDArray[np.bool_], level: float) -> IntervalEstimate:
    log_rates, x = np.log(grid.rates), np.log(grid.settings[peaked])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    value = float(log_rate_at_peak_of_each_row(log_rates, grid.means[peaked]) @ weights)
    one = interval_estimate_from_draws(
        NAME, value, log_rate_at_peak_of_each_row(log_rates, grid.draws[:, peaked]) @ weights, level
    )
    if not one.has_interval:
        return one
    return replace(one, low=min(one.low, value), high=max(one.high, value))  # draws may be biased on one side


def _exponent_from_axis(grid: ScoreGrid, cells: int, level: float) -> IntervalEstimate:
    """The slope of the axis; unknown if it may be vertical, or if the best cells are at the grid's edge."""
    means = grid.means.reshape(1, -1)
    angle, edge = _axis_angle_and_edge_share(grid, means, cells)
    if edge[0] > AT_EDGE:
        return unknown_estimate(NAME)
    angles, _ = _axis_angle_and_edge_share(grid, grid.draws.reshape(-1, means.size), cells)
    turned = angle[0] + np.mod(angles - angle[0] + math.pi / 2, math.pi) - math.pi / 2
    one = interval_estimate_from_draws(NAME, float(angle[0]), turned, level)
    if not one.has_interval or one.low <= -math.pi / 2 or one.high >= math.pi / 2:
        return unknown_estimate(NAME, math.tan(angle[0]))
    return IntervalEstimate(name=NAME, value=math.tan(one.value), low=math.tan(one.low), high=math.tan(one.high))


def _axis_angle_and_edge_share(grid: ScoreGrid, scores: Values, cells: int) -> tuple[Values, Values]:
    """The angle of the best cells' principal axis against log clip norm, and their share at the ends of log lr.

    `scores` are flattened grids [..., settings * rates].
    """
    best = np.argpartition(scores, -cells, axis=-1)[..., -cells:]
    row, column = np.divmod(best, len(grid.rates))
    x, y = np.log(grid.settings)[row], np.log(grid.rates)[column]
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    angle = np.arctan2(2 * (x * y).sum(axis=-1), (x * x - y * y).sum(axis=-1)) / 2
    edge = ((column == 0) | (column == len(grid.rates) - 1)).mean(axis=-1)
    return np.asarray(angle), np.asarray(edge)
