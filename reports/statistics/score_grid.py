"""A method's mean scores over a full grid of learning rates and of another setting, such as its clip norm.

What the grid tells: the shares of its variance, the range of the scores at the best learning rate, and the exponent e
of best learning rate ~ clip_norm^e. The best learning rate of each clip norm is the vertex of a parabola in log lr
through its best cell and that cell's neighbours. A clip norm counts if its best score beats the ends and the median of
its row, and the best constant predictor, by three standard errors: a plateau, a grid that ends before the optimum, or
the best of runs that learned nothing says nothing. The slope is the median of those of all pairs of clip norms; its
interval is of clip norms drawn with replacement, each with scores drawn anew, which counts the noise of scores twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from dpsweep.reports.statistics.point_scores import (
    LR,
    PointScores,
    Values,
    point_scores,
    weighted_mean_of_ordered_scores,
    weights_of_best,
    weights_of_worst,
)
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


def range_at_best_rate(grid: ScoreGrid, level: float = CONFIDENCE) -> IntervalEstimate:
    """The best minus the worst score over the settings, at the learning rate of the grid's best score.

    The estimate's name is that learning rate.
    """
    place = int(grid.means.max(axis=0).argmax())
    chosen = np.isin(np.arange(len(grid.points.means)), grid.places[:, place])
    best, worst = (
        weighted_mean_of_ordered_scores(grid.points, weights, chosen) for weights in (weights_of_best, weights_of_worst)
    )
    one = (best - worst).estimate(f"{grid.rates[place]:g}", level)
    return replace(one, value=max(one.value, 0.0), low=max(one.low, 0.0))


FEWEST_ROWS = 8
"""Usable clip norms from which on a slope is told."""

CLEAR = 3.0
"""Standard errors by which a best score must beat its row's ends and median, and the best constant predictor."""

NAME, CLIP_NORM = "e", "clip norm"


@dataclass(frozen=True, kw_only=True)
class Slope:
    """The exponent e of best learning rate ~ clip_norm^e, and the number of usable clip norms, or of another `setting`.

    `reason` says why the estimate has no interval; it is empty if there is one.
    """

    estimate: IntervalEstimate
    rows: int
    reason: str = ""
    setting: str = CLIP_NORM

    @property
    def basis_text(self) -> str:
        """What the exponent was read from, or why it is not told."""
        return self.reason or f"from {self.rows} usable {self.setting}s"


def slope_of_best_rate(
    grid: ScoreGrid | None, best_constant: float | None, level: float = CONFIDENCE, setting: str = CLIP_NORM
) -> Slope:
    """The slope over the usable clip norms, or another `setting`; without an interval where they give no single number.

    `best_constant` is the score of the best predictor that always says the same, None if it is not known.
    """
    if grid is None or not grid.points.has_significant_differences:
        return _untold_slope("no grid whose points differ by more than noise")
    if best_constant is None:
        return _untold_slope("what the best constant predictor scores is not known")
    usable = mask_of_usable_rows(grid, best_constant)
    if (rows := int(usable.sum())) < FEWEST_ROWS:
        return _untold_slope(f"{rows} of {len(usable)} {setting}s are usable, {FEWEST_ROWS} are needed", rows)
    settings, scores = grid.settings[usable], np.concatenate([grid.means[None, usable], grid.draws[:, usable]])
    peaks = log_rate_at_peak_of_each_row(np.log(grid.rates), scores)
    return replace(_slope_of_peaks(np.log(settings), peaks[0], peaks[1:], level, setting), setting=setting)


def _untold_slope(reason: str, rows: int = 0) -> Slope:
    return Slope(estimate=unknown_estimate(NAME), rows=rows, reason=reason)


def _slope_of_peaks(x: Values, peaks: Values, draws: Values, level: float, setting: str) -> Slope:
    """The slope of the peaks [rows] over x [rows], ascending; `draws` [draws, rows] are bootstrap draws of the peaks.

    It is not told if the halves of the rows have different slopes, or if one row alone moves it out of its interval.
    """
    rows, random = len(x), Generator(Philox(crc32(peaks.tobytes())))
    halves = slice(rows // 2), slice(rows // 2, rows)
    low, high = (float(median_of_pairwise_slopes(x[half], peaks[half])) for half in halves)
    low_draws, high_draws = (_slopes_of_resampled_rows(x[half], draws[:, half], random) for half in halves)
    change = interval_estimate_from_draws("", high - low, _finite_draws(high_draws - low_draws))
    if not change.low <= 0 <= change.high:
        place = math.exp(x[rows // 2 - 1])
        return _untold_slope(f"{low:.2f} up to {setting} {place:.3g}, {high:.2f} above", rows)
    value = float(median_of_pairwise_slopes(x, peaks))
    one = interval_estimate_from_draws(NAME, value, _finite_draws(_slopes_of_resampled_rows(x, draws, random)), level)
    one = replace(one, low=min(one.low, value), high=max(one.high, value))  # draws may be biased on one side
    for row in range(rows):
        without = float(median_of_pairwise_slopes(np.delete(x, row), np.delete(peaks, row)))
        if not one.low <= without <= one.high:
            return _untold_slope(f"{value:.2f}, but {without:.2f} without {setting} {math.exp(x[row]):.3g}", rows)
    return Slope(estimate=one, rows=rows)


def _slopes_of_resampled_rows(x: Values, draws: Values, random: Generator) -> Values:
    """The slope of each draw [draws, rows] over as many rows, drawn with replacement."""
    rows = random.integers(0, len(x), draws.shape)
    return median_of_pairwise_slopes(x[rows], np.take_along_axis(draws, rows, axis=1))


def _finite_draws(draws: Values) -> Values:
    """The draws without those of a single row drawn again and again, which has no slope."""
    return draws[np.isfinite(draws)]


def median_of_pairwise_slopes(x: Values, y: Values) -> Values:
    """The median slope over all pairs of points with different x [..., points]; nan without such a pair.

    It is robust: up to 29 % of the points may lie anywhere. *Source*: Theil 1950; Sen 1968.

    >>> median_of_pairwise_slopes(np.arange(5.0), np.array([0.0, 2.0, 4.0, 6.0, -90.0]))
    array(2.)
    """
    one, other = np.triu_indices(x.shape[-1], 1)
    runs = x[..., other] - x[..., one]
    slopes = np.sort(np.where(runs == 0, np.nan, (y[..., other] - y[..., one]) / np.where(runs == 0, 1.0, runs)))
    pairs = (runs != 0).sum(axis=-1, keepdims=True)
    middle = np.concatenate([np.maximum(pairs - 1, 0) // 2, np.minimum(pairs // 2, slopes.shape[-1] - 1)], axis=-1)
    return np.asarray(np.take_along_axis(slopes, middle, -1).mean(axis=-1))


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


def mask_of_usable_rows(grid: ScoreGrid, best_constant: float) -> NDArray[np.bool_]:
    """The rows whose best score is inside the row, and clearly above its ends, its median and a constant [settings]."""
    means, errors, rows = grid.means, grid.errors, np.arange(len(grid.settings))[:, None]
    order = np.argsort(means, axis=1)
    last = means.shape[1] - 1
    best, middle = order[:, -1:], order[:, (last + 1) // 2]
    plateau = np.stack([np.zeros_like(middle), np.full_like(middle, last), middle], axis=1)
    clear = CLEAR * grid.points.student_inflation_factor
    margin = clear * np.hypot(errors[rows, best], errors[rows, plateau])
    inside = (best > 0) & (best < last) & (means[rows, best] - best_constant >= clear * errors[rows, best])
    return np.asarray(inside[:, 0] & (means[rows, best] - means[rows, plateau] >= margin).all(axis=1))
