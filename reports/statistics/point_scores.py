"""Mean scores of a search's points, the error of each mean, bootstrap draws of all means, and statistics of them.

A mean has two errors. Its own one shrinks with the number of its runs: where points were run several times, it is the
spread of the runs around their points' means, pooled over all points; but over those of the nearest means where high
and low scores do not spread alike: runs near the best may differ by a tenth of a point, and those that nearly diverge
by tens. Where they were run once, it is the noise of their counts, which does not cover that another training would
end elsewhere. The other error is that of the finite number of scored records. All runs are scored on the same records,
so it does not shrink with repeats; in a difference of two points it is at most what their two shares of errors e on n
records make if they never err together, (e1 + e2) / n, so each point's part is e / n. Where no error is known, nothing
is decided: the errors are nan.

The largest of many noisy scores is too large, and a plain bootstrap takes only a part of that back. So points are
ordered by their scores with more noise, and read by their scores less the same noise: the two are independent, so that
a point that was lucky in the first is not in the second. The statistic is the mean over many such splits: the score
that a point which runs like these would select has on average. *Source*: data fission, Leiner, Duan, Wasserman and
Ramdas 2023, Section 2, with tau = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from scipy.special import digamma, fdtrc, gammaln, ndtri, polygamma, stdtrit

from dpsweep.accounting.records.plan import REPEAT
from dpsweep.accounting.records.trial_result import Status
from dpsweep.reports.statistics.verdict import (
    CONFIDENCE,
    IntervalEstimate,
    interval_estimate_from_draws,
    unknown_estimate,
)

LR, CLIP, REGULARIZER = "trainer.lr", "trainer.clip_norm", "trainer.regularizer"
NOISE, METHOD = "noise_multiplier", "method"
STEPS = "steps"
OUTCOMES = frozenset(
    {
        *("trial", "state", "accuracy", "accuracy_low", "accuracy_high", "records_error", "gap", "steps_run"),
        *("seconds", "device"),
        *("error", "attempts_charged", "attempts_started", "epsilon_alone", "conduct", "folder", "share", REPEAT),
    }
)
"""Columns of a sweep's table that are no settings of a point."""

Z95 = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class PointScore:
    """What a rule compares a point by, from so many finished `runs`.

    `run` is the one whose model is handed over if the point wins, the first of them, and `own` its own score.
    """

    value: float
    runs: int
    run: Any
    own: float


def score_of_point(scores: Mapping[Any, float], compared_by: Callable[[Sequence[float]], float]) -> PointScore | None:
    """The score of a point from those of its finished runs, in their order; None without any.

    >>> score_of_point({"first": 0.5, "second": 0.7, "third": 0.9}, max)
    PointScore(value=0.9, runs=3, run='first', own=0.5)
    """
    if not scores:
        return None
    first = next(iter(scores))
    return PointScore(value=compared_by([*scores.values()]), runs=len(scores), run=first, own=scores[first])


def scores_of_rows(rows: pd.DataFrame) -> pd.Series[float]:
    """The rows' scores: 0 for a diverged run, nan for a run without a result."""
    values = pd.to_numeric(rows["accuracy"]).astype(float).where(rows["state"] == Status.FINISHED)
    return values.where(rows["state"] != Status.DIVERGED, 0.0)


def scoring_errors(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The standard error that scoring alone gives each score, from its 95 % interval [rows]; nan if it is unknown.

    It covers the number of scored records and the noise of counts, and no difference between two trainings.
    """
    if not {"accuracy_low", "accuracy_high"} <= set(rows.columns):
        return np.full(len(rows), np.nan)
    low, high = (pd.to_numeric(rows[name]).to_numpy(dtype=float) for name in ("accuracy_low", "accuracy_high"))
    widths = np.where((rows["state"] == Status.DIVERGED).to_numpy(), 0.0, high - low)
    return np.asarray(widths / (2 * Z95), dtype=float)


def records_errors(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The part of `scoring_errors` that the finite number of records makes [rows]; 0 where it is unknown."""
    if "records_error" not in rows.columns:
        return np.zeros(len(rows))
    return np.asarray(np.nan_to_num(pd.to_numeric(rows["records_error"]).to_numpy(dtype=float)))


def rows_of_method(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """The rows of one method."""
    return table[table[METHOD] == method]


def group_rows_by_column(table: pd.DataFrame, key: str) -> list[tuple[Any, pd.DataFrame]]:
    """The rows grouped by the values of a numeric column, ascending."""
    values = pd.to_numeric(table[key]).astype(float)
    return [(value, table[values == value]) for value in sorted(set(values.dropna()))]


DRAWS = 1000

FEWEST_FREEDOMS = 4
"""Degrees of freedom from which on the runs' own spread is used."""

POOLED_FREEDOMS = 20
"""Degrees of freedom of a point's own pool: its runs, and those of the nearest means."""

SCORE_GROUPS, UNEVEN = 4, 0.01
"""Runs are compared in so many groups of rising means; level of the test whether they spread alike."""

PRIORS = np.geomspace(0.1, 1e4, 400)
"""Candidates for the degrees of freedom of the variance that all points have in common."""

LEAST_RATIO = 0.01
"""The least variance of a point's runs over the median one: equal counts by chance are no certainty."""

NO_EFFECT = 0.001
"""Level of the test whether the points differ at all."""

LEAST_SHARE = 0.05
"""The least score by which the records' part of an error is divided to bound that of a difference."""

Values = NDArray[np.float64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class PointScores:
    """Points with a score: their settings, mean scores [points] and numbers of runs [points].

    `residuals` [runs of repeated points] are deviations from the points' means, scaled to the runs' variance, in the
    order of the means; `scored_to` [points] is the standard error of a mean by the noise of its scores alone, and
    `by_records` [points] that by the finite number of records.
    """

    settings: pd.DataFrame
    means: Values
    runs: NDArray[np.int64]
    residuals: Values
    scored_to: Values
    by_records: Values
    spreads: Values

    @cached_property
    def residual_index_range_of_each_pool(self) -> NDArray[np.int64]:
        """The residuals of each point's pool: its first and the one after its last [2, points]."""
        ordered = np.sort(self.means[self.runs > 1])
        ends = np.append(0, np.cumsum(self._run_counts_of_repeated_points))
        width = math.ceil(POOLED_FREEDOMS / (self._run_counts_of_repeated_points.min() - 1))
        if width >= len(ordered) or _are_spreads_alike(np.array_split(self.residuals, SCORE_GROUPS)):
            width = len(ordered)
        starts = np.arange(len(ordered) - width + 1)
        reaches = np.maximum(self.means[:, None] - ordered[starts], ordered[starts + width - 1] - self.means[:, None])
        first = reaches.argmin(axis=1)
        return np.stack([ends[first], ends[first + width]])

    @cached_property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the errors, of the smallest pool; infinite where they follow from the scoring."""
        if (self.runs - 1).sum() < FEWEST_FREEDOMS:
            return np.inf
        freedoms = np.append(
            0, np.cumsum(np.repeat(1 - 1 / self._run_counts_of_repeated_points, self._run_counts_of_repeated_points))
        )
        first, last = self.residual_index_range_of_each_pool
        return float((freedoms[last] - freedoms[first]).min().round())

    @property
    def _run_counts_of_repeated_points(self) -> NDArray[np.int64]:
        """The runs of each repeated point, in the order of the means."""
        repeated = self.runs > 1
        return np.asarray(self.runs[repeated][np.argsort(self.means[repeated], kind="stable")])

    @cached_property
    def own_errors(self) -> Values:
        """The part of each mean's standard error that its runs do not share with others [points]; nan if unknown."""
        if not len(self.residuals):
            return self.scored_to
        squares, (first, last) = np.append(0, np.cumsum(self.residuals**2)), self.residual_index_range_of_each_pool
        spread = np.asarray(np.sqrt((squares[last] - squares[first]) / (last - first) / self.runs))
        return np.maximum(spread, self.scored_to) if np.isinf(self.degrees_of_freedom) else spread

    @cached_property
    def errors(self) -> Values:
        """The standard error of each mean in a comparison with others [points]; nan if nothing is known of it."""
        return np.hypot(self.own_errors, self._records_part_in_differences)

    @property
    def errors_of_means(self) -> Values:
        """The standard error of each mean by itself [points], as a factor of normal quantiles."""
        return np.hypot(self.student_inflation_factor * self.own_errors, self.by_records)

    @property
    def _records_part_in_differences(self) -> Values:
        return np.asarray(self.by_records / np.sqrt(np.maximum(self.means, LEAST_SHARE)))

    @cached_property
    def own_variances(self) -> tuple[Values, Values]:
        """The variance of each mean by its own runs, and its degrees of freedom, each [points]; 0 for single runs.

        Variances of few runs are drawn towards their common value as far as they scatter no more than chance, except
        for those far above it. *Source*: Smyth 2004, Sections 3 and 6.2.
        """
        repeated = self.runs > 1
        own, freedoms = np.zeros(len(self.means)), np.ones(len(self.means))
        d, squares = (self.runs - 1.0)[repeated], (self.spreads * self.runs)[repeated]
        if not squares.any():
            return own, freedoms
        logs = np.log(np.maximum(squares, LEAST_RATIO * np.median(squares[squares > 0])))
        logs = logs - digamma(d / 2) + np.log(d / 2)
        excess = logs.var() - polygamma(1, d / 2).mean()
        prior = float(PRIORS[np.abs(polygamma(1, PRIORS / 2) - excess).argmin()])
        common = math.exp(logs.mean() + digamma(prior / 2) - math.log(prior / 2))
        shrunk, far = (prior * common + d * squares) / (prior + d), fdtrc(d, prior, squares / common) < UNEVEN
        own[repeated] = np.where(far, squares, shrunk) / self.runs[repeated]
        freedoms[repeated] = np.where(far, d, prior + d)
        return own, freedoms

    @property
    def table(self) -> pd.DataFrame:
        """The settings, with the mean scores in a column `score`."""
        return self.settings.assign(score=self.means)

    @property
    def has_known_errors(self) -> bool:
        """Whether every mean has an error."""
        return len(self.means) > 0 and bool(np.isfinite(self.errors).all())

    def mask_of_points_with_settings(self, **settings: object) -> Chosen:
        """Which points have these values, or one of these values, of the settings with these names."""
        values = {name: one if isinstance(one, tuple) else (one,) for name, one in settings.items()}
        parts = [self.settings[name].isin(one).to_numpy() for name, one in values.items()]
        return np.asarray(np.logical_and.reduce([np.full(len(self.means), True), *parts]))

    @property
    def student_inflation_factor(self) -> float:
        """Student's quantile over the normal one: the factor for errors that are estimated themselves."""
        return (
            1.0 if np.isinf(self.degrees_of_freedom) else float(stdtrit(self.degrees_of_freedom, 0.975) / ndtri(0.975))
        )

    @property
    def has_significant_differences(self) -> bool:
        """Whether the points differ by more than their errors: an F test at level `NO_EFFECT`.

        A search whose points do not differ cannot show that something makes no difference.
        """
        if not self.has_known_errors or len(self.means) < 2:
            return False
        weights = 1 / np.maximum(self.errors, 1e-9) ** 2
        mean = float((weights * self.means).sum() / weights.sum())
        between = float((weights * (self.means - mean) ** 2).sum()) / (len(self.means) - 1)
        return bool(fdtrc(len(self.means) - 1, min(self.degrees_of_freedom, 1e6), between) < NO_EFFECT)

    @cached_property
    def draws(self) -> Values:
        """Bootstrap draws of all means [draws, points], for known errors: resampled residuals, or normal errors.

        Their stream follows from the points: a page that is made again says the same, and methods' draws are
        independent.
        """
        shape, methods = (DRAWS, len(self.means)), " ".join(map(str, self.settings.get(METHOD, ()))).encode()
        random = Generator(Philox(crc32(self.means.tobytes(), crc32(methods))))
        if np.isinf(self.degrees_of_freedom):
            return np.asarray(self.means + self.errors * random.standard_normal(shape))
        noise = np.empty(shape)
        for runs in np.unique(self.runs):
            own = self.runs == runs
            first, last = self.residual_index_range_of_each_pool[:, own, None]
            noise[:, own] = self.residuals[random.integers(first, last, (DRAWS, len(first), int(runs)))].mean(axis=2)
        draws = self.means + self.student_inflation_factor * noise
        if self.by_records.any():
            draws += self._records_part_in_differences * random.standard_normal(shape)
        return np.asarray(draws)


def point_scores(rows: pd.DataFrame) -> PointScores:
    """The points of a table; runs with equal settings, whatever their repetition, are one point.

    Points without any score are left out.
    """
    scored = scores_of_rows(rows).notna()
    kept = rows.loc[scored, [name for name in rows.columns if name not in OUTCOMES]].reset_index(drop=True)
    place = kept.groupby(list(kept.columns), sort=False, dropna=False).ngroup().to_numpy(dtype=np.int64)
    return scores_of_points(
        rows[scored], place.astype(np.int64), kept.loc[~pd.Series(place).duplicated()].reset_index(drop=True)
    )


def scores_of_points(rows: pd.DataFrame, place: NDArray[np.int64], settings: pd.DataFrame) -> PointScores:
    """The points with these `settings`, from rows with scores; `place` [rows] is the point of each, from 0 upwards."""
    values, errors = scores_of_rows(rows).to_numpy(dtype=float), scoring_errors(rows)
    records = np.minimum(records_errors(rows), np.abs(errors))
    runs = np.bincount(place)
    means = np.bincount(place, weights=values) / np.maximum(runs, 1)
    several = np.flatnonzero(runs[place] > 1)
    several = several[np.lexsort((place[several], means[place[several]]))]
    scale = np.sqrt(runs[place[several]] / (runs[place[several]] - 1))
    return PointScores(
        settings=settings,
        means=means,
        runs=runs,
        residuals=(values - means[place])[several] * scale,
        scored_to=np.sqrt(np.bincount(place, weights=errors**2 - records**2)) / np.maximum(runs, 1),
        by_records=np.nan_to_num(np.bincount(place, weights=records)) / np.maximum(runs, 1),
        spreads=np.bincount(place, weights=(values - means[place]) ** 2) / np.maximum(runs * (runs - 1), 1),
    )


def _are_spreads_alike(groups: Sequence[Values]) -> bool:
    """Whether the groups' spreads differ by no more than chance; *source*: Brown and Forsythe 1974, JASA 69."""
    distances = [np.abs(group - np.median(group)) for group in groups]
    together = np.concatenate(distances)
    between = sum(len(one) * (one.mean() - together.mean()) ** 2 for one in distances) / (len(groups) - 1)
    freedoms = len(together) - len(groups)
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in distances) / freedoms
    return bool(between == 0 or fdtrc(len(groups) - 1, freedoms, between / max(within, 1e-300)) >= UNEVEN)


Weights = Callable[[int], Values]
"""The weights of ordered scores, ascending, for a number of points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreStatistic:
    """A statistic of mean scores and its bootstrap draws [draws]; no draws if an error is unknown.

    `shares` are the weights with which it reads each point's mean [points], by the identity of the points.
    """

    value: float
    draws: Values | None
    shares: Mapping[int, tuple[PointScores, Values]]

    def __sub__(self, other: ScoreStatistic) -> ScoreStatistic:
        """The difference; draws of points of one `PointScores` that both statistics use are the same draws."""
        both = None if self.draws is None or other.draws is None else self.draws - other.draws
        shares = dict(self.shares)
        for key, (points, weights) in other.shares.items():
            shares[key] = points, (shares[key][1] if key in shares else 0.0) - weights
        return ScoreStatistic(value=self.value - other.value, draws=both, shares=shares)

    def estimate(self, name: str, level: float = CONFIDENCE) -> IntervalEstimate:
        """The statistic with its interval: the wider of that of the draws and Welch's, at each end.

        The draws pool the runs of many points; where these spread unlike, few runs of the points that were read say so.
        *Source*: Welch 1947 and Satterthwaite 1946.
        """
        if self.draws is None:
            return unknown_estimate(name, self.value)
        pooled = interval_estimate_from_draws(name, self.value, self.draws, level)
        half = self._half_width_by_own_runs(level)
        return replace(pooled, low=min(pooled.low, self.value - half), high=max(pooled.high, self.value + half))

    def _half_width_by_own_runs(self, level: float) -> float:
        """Half of Welch's interval, from the spreads of the points that were read; 0 where points have single runs."""
        parts = [
            (weights**2 * points.own_variances[0], points.own_variances[1])
            for points, weights in self.shares.values()
            if np.isfinite(points.degrees_of_freedom)
        ]
        if not parts:
            return 0.0
        variances, freedoms = (np.concatenate(column) for column in zip(*parts, strict=True))
        total = float(variances.sum())
        if total == 0:
            return 0.0
        freedom = min(total**2 / max(float((variances**2 / freedoms).sum()), 1e-300), 1e6)
        return float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total)


def weighted_mean_of_ordered_scores(
    points: PointScores, weights: Weights, chosen: Chosen | None = None
) -> ScoreStatistic:
    """The weighted mean of the points' scores, or of the chosen points' scores, in ascending order."""
    places = np.arange(len(points.means)) if chosen is None else np.flatnonzero(chosen)
    if not len(places):
        return ScoreStatistic(value=np.nan, draws=None, shares={})
    means, weighted = points.means[places], weights(len(places))
    if not points.has_known_errors:
        return ScoreStatistic(value=float(np.sort(means) @ weighted), draws=None, shares={})
    draws = points.draws[:, places]
    order = np.argsort(draws, axis=1)
    read = np.take_along_axis(2 * means - draws, order, axis=1) @ weighted
    spread = np.take_along_axis(draws, order, axis=1) @ weighted
    value = float(read.mean())
    shares = np.bincount(places[order].ravel(), np.tile(weighted, len(draws)), len(points.means)) / len(draws)
    return ScoreStatistic(value=value, draws=spread - spread.mean() + value, shares={id(points): (points, shares)})


def weights_of_best(points: int) -> Values:
    """The largest score."""
    return weights_of_mean_best(points, points)


def weights_of_worst(points: int) -> Values:
    """The smallest score."""
    return np.asarray(weights_of_best(points)[::-1])


def weights_of_median(points: int) -> Values:
    """The median score.

    >>> weights_of_median(4)
    array([0. , 0.5, 0.5, 0. ])
    """
    ranks = np.arange(points)
    middle = (ranks == (points - 1) // 2).astype(float) + (ranks == points // 2)
    return np.asarray(middle / 2)


def weights_of_mean_best(points: int, draws: int) -> Values:
    """The expected maximum of `draws` distinct points, over all such draws.

    *Source*: the maximum of a sample without replacement has rank i or less with probability C(i, k) / C(n, k).

    >>> weights_of_mean_best(3, 2).round(3)
    array([0.   , 0.333, 0.667])
    """
    count = min(draws, points)
    ranks = np.arange(points + 1, dtype=float)
    logs = gammaln(ranks + 1) - gammaln(np.maximum(ranks - count, 0) + 1)
    below = np.where(ranks >= count, np.exp(logs - logs[-1]), 0.0)
    return np.asarray(np.diff(below))
