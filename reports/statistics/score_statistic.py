"""Statistics of points' ordered mean scores, such as the best one, with bootstrap draws; and their differences.

The largest of many noisy scores is too large, and a plain bootstrap takes only a part of that back. So points are
ordered by their scores with more noise, and read by their scores less the same noise: the two are independent, so that
a point that was lucky in the first is not in the second. The statistic is the mean over many such splits: the score
that a point which runs like these would select has on average. *Source*: data fission, Leiner, Duan, Wasserman and
Ramdas 2023, Section 2, with tau = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dpsweep.reports.statistics.bootstrap import percentiles
from dpsweep.reports.statistics.point_scores import Chosen, PointScores, Values
from dpsweep.reports.statistics.verdict import CONFIDENCE, IntervalEstimate, unknown

Weights = Callable[[int], Values]
"""The weights of ordered scores, ascending, for a number of points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreStatistic:
    """A statistic of mean scores and its bootstrap draws [draws]; no draws if an error is unknown."""

    value: float
    draws: Values | None

    def __sub__(self, other: ScoreStatistic) -> ScoreStatistic:
        """The difference; draws of points of one `PointScores` that both statistics use are the same draws."""
        both = None if self.draws is None or other.draws is None else self.draws - other.draws
        return ScoreStatistic(value=self.value - other.value, draws=both)

    def estimate(self, name: str, level: float = CONFIDENCE) -> IntervalEstimate:
        """The statistic with its interval."""
        return unknown(name, self.value) if self.draws is None else percentiles(name, self.value, self.draws, level)


def statistic(points: PointScores, weights: Weights, chosen: Chosen | None = None) -> ScoreStatistic:
    """The weighted mean of the points' scores, or of the chosen points' scores, in ascending order."""
    places = np.arange(len(points.means)) if chosen is None else np.flatnonzero(chosen)
    if not len(places):
        return ScoreStatistic(value=np.nan, draws=None)
    means, weighted = points.means[places], weights(len(places))
    if not points.known:
        return ScoreStatistic(value=float(np.sort(means) @ weighted), draws=None)
    draws = points.draws[:, places]
    order = np.argsort(draws, axis=1)
    read = np.take_along_axis(2 * means - draws, order, axis=1) @ weighted
    spread = np.take_along_axis(draws, order, axis=1) @ weighted
    value = float(read.mean())
    return ScoreStatistic(value=value, draws=spread - spread.mean() + value)


def best(points: int) -> Values:
    """The largest score."""
    return mean_best(points, points)


def worst(points: int) -> Values:
    """The smallest score."""
    return np.asarray(best(points)[::-1])


def median(points: int) -> Values:
    """The median score.

    >>> median(4)
    array([0. , 0.5, 0.5, 0. ])
    """
    ranks = np.arange(points)
    middle = (ranks == (points - 1) // 2).astype(float) + (ranks == points // 2)
    return np.asarray(middle / 2)


def mean_best(points: int, draws: int) -> Values:
    """The expected maximum of `draws` distinct points, over all such draws.

    *Source*: the maximum of a sample without replacement has rank i or less with probability C(i, k) / C(n, k).

    >>> mean_best(3, 2).round(3)
    array([0.   , 0.333, 0.667])
    """
    count = min(draws, points)
    ranks = np.arange(points + 1, dtype=float)
    logs = gammaln(ranks + 1) - gammaln(np.maximum(ranks - count, 0) + 1)
    below = np.where(ranks >= count, np.exp(logs - logs[-1]), 0.0)
    return np.asarray(np.diff(below))
