"""Numbers in [0, 1] with 95 % intervals, from counts that may carry Gaussian noise.

Every function here reads the counts that it is given and public constants alone, so what follows from noisy counts is
free. The intervals cover both the noise, whose standard deviation is known, and the finite number of records. A count
may also be a sum of units' shares: a unit that adds shares which sum up to at most 1 varies at most as much as a unit
that adds 1 to one of its cells at random with these shares as probabilities, since variance is convex.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z95 = 1.959963984540054
DROWNED = 3.0
"""Standard deviations of its noise up to which the total of a ratio says nothing."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A score and its 95 % interval, all in [0, 1], and by their names other numbers that the same counts tell."""

    value: float
    low: float
    high: float
    also: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ratios:
    """Ratios of sums of cells: entry e adds `over[e]` and `under[e]` times its cell to both parts of its ratio.

    `ratio` and `cell` [entries] are indices; `over` and `under` [entries] are >= 0, and `over` is `under` or 0. A cell
    whose `over` is above 0 is a success of the ratio, any other of its cells a failure.
    """

    ratio: NDArray[np.int64]
    cell: NDArray[np.int64]
    over: NDArray[np.float64]
    under: NDArray[np.float64]

    def parts(self, counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The numerator and the denominator of each ratio."""
        taken = counts[self.cell]
        return _sums(self.ratio, self.over * taken), _sums(self.ratio, self.under * taken)

    def lengths(self) -> NDArray[np.float64]:
        """The standard deviation of each denominator where every cell has that of 1."""
        return np.sqrt(_sums(self.ratio, self.under**2))

    def two_of_each(self, cells: int) -> NDArray[np.float64]:
        """Counts that give every ratio two more successes and two more failures."""
        success = self.over > 0
        kinds = np.stack([_sums(self.ratio, success), _sums(self.ratio, ~success)])
        added = np.zeros(cells)
        np.maximum.at(added, self.cell, 2 / kinds[(~success).astype(np.int64), self.ratio])
        return added

    def slopes(self, values: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative [entries] of each ratio by each of its cells, where it has this value and denominator."""
        return (self.over - values[self.ratio] * self.under) / totals[self.ratio]

    def deviations(
        self, slopes: NDArray[np.float64], variances: NDArray[np.float64], known: NDArray[np.bool_]
    ) -> tuple[float, NDArray[np.float64]]:
        """The variance of the sum of the `known` ratios where cells have these variances, and of each of them."""
        own = np.where(known[self.ratio], slopes, 0.0)
        together = _sums(self.cell, own, len(variances))
        return float(variances @ together**2), _sums(self.ratio, own**2 * variances[self.cell])


def _sums(
    places: NDArray[np.int64], weights: NDArray[np.float64] | NDArray[np.bool_], size: int = 0
) -> NDArray[np.float64]:
    """The sum of the weights at each place."""
    return np.bincount(places, weights, minlength=size).astype(np.float64)


def mean_of_ratios(counts: NDArray[np.float64], ratios: Ratios, noise_std: float) -> Estimate:
    """The mean of ratios of counts [cells] that each carry noise, and its interval.

    The interval is the delta method's: the variance of the mean of ratios to first order in the noise, and in the
    sampling of each cell, at counts to which `two_of_each` is added (Agresti & Coull 1998); the bias to second order in
    the noise widens it. A ratio whose denominator is drowned by noise, or 0, may be anywhere in [0, 1]; the others may
    then have passed the threshold by the same luck, so that their deviations are added, not their variances. With more
    ratios the threshold is as much higher as the largest of their noises.

    In simulations of 2 to 10 classes with 30 to 1000 records in a class, noise of standard deviation 0 to 22 and ratios
    from .3 to .99, at most 7 % of intervals missed the truth where 5 % should.
    """
    over, under = ratios.parts(counts)
    known = under > (DROWNED + math.sqrt(2 * math.log(len(under)))) * ratios.lengths() * noise_std
    totals = np.where(known, under, 1.0)
    values = np.divide(over, under, out=np.zeros_like(over), where=known)
    slopes = ratios.slopes(values, totals)
    shrunk = np.maximum(counts, 0.0) + ratios.two_of_each(len(counts))
    shrunk_over, shrunk_under = ratios.parts(shrunk)
    shrunk_slopes = ratios.slopes(shrunk_over / shrunk_under, np.sqrt(totals * shrunk_under))
    by_noise, each_by_noise = ratios.deviations(slopes, np.full(len(counts), noise_std**2), known)
    by_sampling, each_by_sampling = ratios.deviations(shrunk_slopes, shrunk, known)
    bends = _sums(ratios.ratio, -slopes * ratios.under) * known / totals
    deviation = math.sqrt(by_noise + by_sampling)
    if not known.all():
        deviation = float(np.sqrt(each_by_noise + each_by_sampling).sum())
    margin = (Z95 * deviation + noise_std**2 * abs(float(bends.sum()))) / len(values)
    sure, unknown = float(values.mean()), float(np.mean(~known))
    drowned = np.clip(np.divide(over, under, out=np.zeros_like(over), where=~known & (under > 0)), 0.0, 1.0)
    value = min(max(sure + float(drowned.mean()), 0.0), 1.0)
    return Estimate(
        value=value, low=min(value, max(0.0, sure - margin)), high=max(value, min(1.0, sure + unknown + margin))
    )


def noisy_accuracy(right: float, wrong: float, noise_std: float) -> Estimate:
    """Accuracy from two counts that each carry noise: a function of the noisy counts alone, so free.

    The interval adds the variance of the ratio to first order in the noise to the binomial variance, whose
    rate is drawn towards 1/2 by two records of each kind (Agresti & Coull 1998). Units' shares in [0, 1] vary at
    most as much as such a coin of their mean, so it covers them too. It is all of [0, 1] where noise drowns counts.
    """
    total = right + wrong
    if total <= DROWNED * math.sqrt(2) * noise_std:
        value = min(max(right / total, 0.0), 1.0) if total > 0 else 0.0
        return Estimate(value=value, low=0.0, high=1.0)
    value = min(max(right / total, 0.0), 1.0)
    by_noise = noise_std**2 * (value**2 + (1 - value) ** 2) / total**2
    rate = (value * total + 2) / (total + 4)
    margin = Z95 * math.sqrt(by_noise + rate * (1 - rate) / total)
    return Estimate(value=value, low=max(0.0, value - margin), high=min(1.0, value + margin))


def wilson(right: float, total: int) -> Estimate:
    """Accuracy from exact counts with the score interval. Source: Wilson 1927."""
    value, z2 = right / total, Z95**2
    centre = (value + z2 / (2 * total)) / (1 + z2 / total)
    margin = Z95 / (1 + z2 / total) * math.sqrt(value * (1 - value) / total + z2 / (4 * total**2))
    return Estimate(value=value, low=min(value, max(0.0, centre - margin)), high=max(value, min(1.0, centre + margin)))


def binned_auroc(negatives: NDArray[np.float64], positives: NDArray[np.float64], noise_std: float) -> Estimate:
    """The area under the ROC curve from counts per bin [bins] of a decision value, in ascending order, with noise each.

    The value is the trapezoid over the bins: a pair of a negative and a positive in one bin counts 1/2. How the records
    of a bin compare is unknown, so the low end of the interval is that of the area in which no such pair counts, and
    the high end that of the area in which all do. The variance of both is that of the noise, to first order, and that
    of the sampling: by DeLong, DeLong, Clarke-Pearson 1988, with one more record of each class ranked as well as can
    be and one as badly; or where that is narrower, by the largest that any decision values have, area (1 - area) over
    the smaller class (Birnbaum and Klose 1957), as a score interval. It is all of [0, 1] where noise drowns a class.

    In simulations of 20 to 2000 records in a class, areas from .5 to .98 and noise of standard deviation 0 and 4, of
    decision values that are normal, exponential, of two levels, or uniform but for outliers, at most 5.5 % of intervals
    missed the true area of the decision values themselves.
    """
    classes = _Classes(negatives=negatives, positives=positives, noise_std=noise_std)
    if classes.drowned:
        return Estimate(value=min(max(classes.area(0.5), 0.0), 1.0), low=0.0, high=1.0)
    value = min(max(classes.area(0.5), 0.0), 1.0)
    low, high = classes.interval(0.0)[0], classes.interval(1.0)[1]
    return Estimate(value=value, low=min(value, max(0.0, low)), high=max(value, min(1.0, high)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes:
    """The noisy counts per bin of both classes."""

    negatives: NDArray[np.float64]
    positives: NDArray[np.float64]
    noise_std: float

    @property
    def totals(self) -> tuple[float, float]:
        """How many negatives and positives there are, with the noise of all bins."""
        return float(self.negatives.sum()), float(self.positives.sum())

    @property
    def drowned(self) -> bool:
        """Whether either total may as well be 0."""
        return min(self.totals) <= DROWNED * math.sqrt(len(self.negatives)) * self.noise_std

    def area(self, tie: float) -> float:
        """The area in which a pair of one bin counts `tie`; 0 where a class is empty."""
        n, m = self.totals
        return float(self.positives @ self._below(tie)) / (n * m) if n > 0 and m > 0 else 0.0

    def interval(self, tie: float) -> tuple[float, float]:
        """The interval of the area in which a pair of one bin counts `tie`."""
        (n, m), area = self.totals, self.area(tie)
        below, above = (self._below(tie) / n - area) ** 2, (self._above(tie) / m - area) ** 2
        by_noise = self.noise_std**2 * float(below.sum() / m**2 + above.sum() / n**2)
        ends = area**2 + (1 - area) ** 2
        by_positives = (float(np.maximum(self.positives, 0.0) @ below) + ends) / m**2
        by_negatives = (float(np.maximum(self.negatives, 0.0) @ above) + ends) / n**2
        margin = Z95 * math.sqrt(by_noise + by_positives + by_negatives)
        low, high = _score_interval(area, by_noise, min(n, m))
        return max(low, area - margin), min(high, area + margin)

    def _below(self, tie: float) -> NDArray[np.float64]:
        """How many negatives a positive of each bin is ranked above."""
        return np.cumsum(self.negatives) - (1 - tie) * self.negatives

    def _above(self, tie: float) -> NDArray[np.float64]:
        """How many positives a negative of each bin is ranked below."""
        return np.cumsum(self.positives[::-1])[::-1] - (1 - tie) * self.positives


def _score_interval(share: float, by_noise: float, records: float) -> tuple[float, float]:
    """All true shares p from which this one is 1.96 standard deviations away at most, of variance p (1 - p) / records.

    The noise adds `by_noise` to that.
    """
    z2 = Z95**2
    square, line = 1 + z2 / records, 2 * share + z2 / records
    root = math.sqrt(max(0.0, line**2 - 4 * square * (share**2 - z2 * by_noise)))
    return (line - root) / (2 * square), (line + root) / (2 * square)
