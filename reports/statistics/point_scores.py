"""Mean scores of a search's points, the error of each mean, and bootstrap draws of all means.

Where points were run several times, the error is the spread of the runs around their points' means, pooled over all
points; but over those of the nearest means where high and low scores do not spread alike: runs near the best may differ
by a tenth of a point, and those that nearly diverge by tens. Where they were run once, it is the standard error of a
score, which the number of scored records and the noise of their counts determine; it does not cover that another
training would end elsewhere. Where neither is known, nothing is decided: the errors are nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtri, stdtrit

from dpsweep.reports.statistics.run_rows import METHOD, OUTCOMES, scores, scoring_errors

DRAWS = 1000

FEWEST_FREEDOMS = 4
"""Degrees of freedom from which on the runs' own spread is used."""

POOLED_FREEDOMS = 20
"""Degrees of freedom of a point's own pool: its runs, and those of the nearest means."""

SCORE_GROUPS, UNEVEN = 4, 0.01
"""Runs are compared in so many groups of rising means; level of the test whether they spread alike."""

NO_EFFECT = 0.001
"""Level of the test whether the points differ at all."""

Values = NDArray[np.float64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class PointScores:
    """Points with a score: their settings, mean scores [points] and numbers of runs [points].

    `residuals` [runs of repeated points] are deviations from the points' means, scaled to the runs' variance, in the
    order of the means; `scored_to` [points] is the standard error of a mean by scoring alone.
    """

    settings: pd.DataFrame
    means: Values
    runs: NDArray[np.int64]
    residuals: Values
    scored_to: Values

    @cached_property
    def pools(self) -> NDArray[np.int64]:
        """The residuals of each point's pool: its first and the one after its last [2, points]."""
        ordered = np.sort(self.means[self.runs > 1])
        ends = np.append(0, np.cumsum(self._repeated_runs))
        width = math.ceil(POOLED_FREEDOMS / (self._repeated_runs.min() - 1))
        if width >= len(ordered) or _spread_alike(np.array_split(self.residuals, SCORE_GROUPS)):
            width = len(ordered)
        starts = np.arange(len(ordered) - width + 1)
        reaches = np.maximum(self.means[:, None] - ordered[starts], ordered[starts + width - 1] - self.means[:, None])
        first = reaches.argmin(axis=1)
        return np.stack([ends[first], ends[first + width]])

    @cached_property
    def freedoms(self) -> float:
        """Degrees of freedom of the errors, of the smallest pool; infinite where they follow from the scoring."""
        if (self.runs - 1).sum() < FEWEST_FREEDOMS:
            return np.inf
        freedoms = np.append(0, np.cumsum(np.repeat(1 - 1 / self._repeated_runs, self._repeated_runs)))
        first, last = self.pools
        return float((freedoms[last] - freedoms[first]).min().round())

    @property
    def _repeated_runs(self) -> NDArray[np.int64]:
        """The runs of each repeated point, in the order of the means."""
        repeated = self.runs > 1
        return np.asarray(self.runs[repeated][np.argsort(self.means[repeated], kind="stable")])

    @cached_property
    def errors(self) -> Values:
        """The standard error of each point's mean [points]; nan if nothing is known of it."""
        if np.isinf(self.freedoms):
            return self.scored_to
        squares, (first, last) = np.append(0, np.cumsum(self.residuals**2)), self.pools
        return np.asarray(np.sqrt((squares[last] - squares[first]) / (last - first) / self.runs))

    @property
    def table(self) -> pd.DataFrame:
        """The settings, with the mean scores in a column `score`."""
        return self.settings.assign(score=self.means)

    @property
    def known(self) -> bool:
        """Whether every mean has an error."""
        return len(self.means) > 0 and bool(np.isfinite(self.errors).all())

    def where(self, **settings: object) -> Chosen:
        """Which points have these values, or one of these values, of the settings with these names."""
        values = {name: one if isinstance(one, tuple) else (one,) for name, one in settings.items()}
        parts = [self.settings[name].isin(one).to_numpy() for name, one in values.items()]
        return np.asarray(np.logical_and.reduce([np.full(len(self.means), True), *parts]))

    @property
    def inflation(self) -> float:
        """Student's quantile over the normal one: the factor for errors that are estimated themselves."""
        return 1.0 if np.isinf(self.freedoms) else float(stdtrit(self.freedoms, 0.975) / ndtri(0.975))

    @property
    def vary(self) -> bool:
        """Whether the points differ by more than their errors: an F test at level `NO_EFFECT`.

        A search whose points do not differ cannot show that something makes no difference.
        """
        if not self.known or len(self.means) < 2:
            return False
        weights = 1 / np.maximum(self.errors, 1e-9) ** 2
        mean = float((weights * self.means).sum() / weights.sum())
        between = float((weights * (self.means - mean) ** 2).sum()) / (len(self.means) - 1)
        return bool(fdtrc(len(self.means) - 1, min(self.freedoms, 1e6), between) < NO_EFFECT)

    @cached_property
    def draws(self) -> Values:
        """Bootstrap draws of all means [draws, points], for known errors: resampled residuals, or normal errors.

        Their stream follows from the points: a page that is made again says the same, and methods' draws are
        independent.
        """
        shape, methods = (DRAWS, len(self.means)), " ".join(map(str, self.settings.get(METHOD, ()))).encode()
        random = Generator(Philox(crc32(self.means.tobytes(), crc32(methods))))
        if np.isinf(self.freedoms):
            return np.asarray(self.means + self.errors * random.standard_normal(shape))
        noise = np.empty(shape)
        for runs in np.unique(self.runs):
            own = self.runs == runs
            first, last = self.pools[:, own, None]
            noise[:, own] = self.residuals[random.integers(first, last, (DRAWS, len(first), int(runs)))].mean(axis=2)
        return np.asarray(self.means + self.inflation * noise)


def point_scores(rows: pd.DataFrame) -> PointScores:
    """The points of a table; runs with equal settings, whatever their repetition, are one point.

    Points without any score are left out.
    """
    found = scores(rows)
    kept = rows.loc[found.notna(), [name for name in rows.columns if name not in OUTCOMES]].reset_index(drop=True)
    values, errors = found.dropna().to_numpy(dtype=float), scoring_errors(rows)[found.notna().to_numpy()]
    place = kept.groupby(list(kept.columns), sort=False, dropna=False).ngroup().to_numpy(dtype=np.int64)
    runs = np.bincount(place)
    means = np.bincount(place, weights=values) / np.maximum(runs, 1)
    several = np.flatnonzero(runs[place] > 1)
    several = several[np.lexsort((place[several], means[place[several]]))]
    scale = np.sqrt(runs[place[several]] / (runs[place[several]] - 1))
    return PointScores(
        settings=kept.loc[~pd.Series(place).duplicated()].reset_index(drop=True),
        means=means,
        runs=runs,
        residuals=(values - means[place])[several] * scale,
        scored_to=np.sqrt(np.bincount(place, weights=errors**2)) / np.maximum(runs, 1),
    )


def _spread_alike(groups: Sequence[Values]) -> bool:
    """Whether the groups' spreads differ by no more than chance; *source*: Brown and Forsythe 1974, JASA 69."""
    distances = [np.abs(group - np.median(group)) for group in groups]
    together = np.concatenate(distances)
    between = sum(len(one) * (one.mean() - together.mean()) ** 2 for one in distances) / (len(groups) - 1)
    freedoms = len(together) - len(groups)
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in distances) / freedoms
    return bool(between == 0 or fdtrc(len(groups) - 1, freedoms, between / max(within, 1e-300)) >= UNEVEN)
