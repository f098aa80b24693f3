"""Estimates in [0, 1] with 95 % intervals, from counts that may carry Gaussian noise.

Every function here reads only its counts and public constants, so estimates from noisy counts are post-processing and
free. The intervals cover both the noise, whose standard deviation is known, and the finite number of records. A count
may also be a sum of units' shares. A unit whose shares sum up to at most 1 has at most the variance of a unit that adds
1 to one random cell with these shares as probabilities, since variance is convex.
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
NOISE_LEVEL = 3.0
"""A total of at most this many standard deviations of its noise counts as noise alone."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A score and its 95 % interval, all in [0, 1]; `also` holds further named scores from the same counts.

    `counts` are the released counts that it is made of. `records_error` is the part of its standard error that the
    finite number of records makes: all runs that are scored on the same records share it. None if it is unknown.
    """

    value: float
    low: float
    high: float
    also: Mapping[str, Estimate] = field(default_factory=dict)
    counts: tuple[float, ...] = ()
    records_error: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Ratios:
    """Ratios of weighted sums of cells: entry e adds its cell to the numerator and denominator of its ratio.

    `ratio` and `cell` [entries] are indices. The weights `numerator` and `denominator` [entries] are >= 0, and
    `numerator` is `denominator` or 0. A cell with `numerator` above 0 is a success of the ratio, other cells are
    failures.
    """

    ratio: NDArray[np.int64]
    cell: NDArray[np.int64]
    numerator: NDArray[np.float64]
    denominator: NDArray[np.float64]

    def numerators_and_denominators(
        self, counts: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The numerator and the denominator of each ratio."""
        entries = counts[self.cell]
        return _sums_of_weights_by_index(self.ratio, self.numerator * entries), _sums_of_weights_by_index(
            self.ratio, self.denominator * entries
        )

    def denominator_stds_for_unit_noise(self) -> NDArray[np.float64]:
        """The standard deviation of each denominator if every cell has standard deviation 1."""
        return np.sqrt(_sums_of_weights_by_index(self.ratio, self.denominator**2))

    def cell_pseudocounts_two_per_outcome(self, cells: int) -> NDArray[np.float64]:
        """Counts [cells] that add two successes and two failures to every ratio."""
        success = self.numerator > 0
        kinds = np.stack(
            [_sums_of_weights_by_index(self.ratio, success), _sums_of_weights_by_index(self.ratio, ~success)]
        )
        added = np.zeros(cells)
        np.maximum.at(added, self.cell, 2 / kinds[(~success).astype(np.int64), self.ratio])
        return added

    def derivatives_by_cell(self, values: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative [entries] of each ratio by each of its cells, at these values and denominators."""
        return (self.numerator - values[self.ratio] * self.denominator) / totals[self.ratio]

    def variances_of_sum_and_ratios(
        self, slopes: NDArray[np.float64], variances: NDArray[np.float64], reliable: NDArray[np.bool_]
    ) -> tuple[float, NDArray[np.float64]]:
        """The variance of the sum of the `reliable` ratios, and of each of them, for cells with these variances."""
        reliable_slopes = np.where(reliable[self.ratio], slopes, 0.0)
        by_cell = _sums_of_weights_by_index(self.cell, reliable_slopes, len(variances))
        return float(variances @ by_cell**2), _sums_of_weights_by_index(
            self.ratio, reliable_slopes**2 * variances[self.cell]
        )


def _sums_of_weights_by_index(
    places: NDArray[np.int64], weights: NDArray[np.float64] | NDArray[np.bool_], size: int = 0
) -> NDArray[np.float64]:
    """The sum of the weights at each place."""
    return np.bincount(places, weights, minlength=size).astype(np.float64)


def mean_of_ratios(counts: NDArray[np.float64], ratios: Ratios, noise_std: float) -> Estimate:
    """The mean of ratios of counts [cells] that each carry noise, and its interval.

    The interval uses the delta method: the variance of the mean of ratios to first order in the noise and in the
    sampling of each cell, at counts plus `cell_pseudocounts_two_per_outcome` (Agresti & Coull 1998); the second-order
    bias of the noise widens it. A ratio may be anywhere in [0, 1] if its denominator is 0 or not above its noise
    threshold. The other ratios may then have passed the threshold by the same chance, so their standard deviations are
    added, not their variances. For r ratios the threshold rises by sqrt(2 ln r), the order of the largest of r noises.

    In simulations of 2 to 10 classes with 30 to 1000 records in a class, noise of standard deviation 0 to 22 and ratios
    from .3 to .99, at most 7 % of intervals missed the true value; the nominal rate is 5 %.
    """
    numerators, denominators = ratios.numerators_and_denominators(counts)
    reliable = (
        denominators
        > (NOISE_LEVEL + math.sqrt(2 * math.log(len(denominators))))
        * ratios.denominator_stds_for_unit_noise()
        * noise_std
    )
    totals = np.where(reliable, denominators, 1.0)
    values = np.divide(numerators, denominators, out=np.zeros_like(numerators), where=reliable)
    slopes = ratios.derivatives_by_cell(values, totals)
    shrunk = np.maximum(counts, 0.0) + ratios.cell_pseudocounts_two_per_outcome(len(counts))
    shrunk_numerators, shrunk_denominators = ratios.numerators_and_denominators(shrunk)
    shrunk_slopes = ratios.derivatives_by_cell(
        shrunk_numerators / shrunk_denominators, np.sqrt(totals * shrunk_denominators)
    )
    by_noise, each_by_noise = ratios.variances_of_sum_and_ratios(slopes, np.full(len(counts), noise_std**2), reliable)
    by_sampling, each_by_sampling = ratios.variances_of_sum_and_ratios(shrunk_slopes, shrunk, reliable)
    curvatures = _sums_of_weights_by_index(ratios.ratio, -slopes * ratios.denominator) * reliable / totals
    deviation = math.sqrt(by_noise + by_sampling)
    if not reliable.all():
        deviation = float(np.sqrt(each_by_noise + each_by_sampling).sum())
    margin = (Z95 * deviation + noise_std**2 * abs(float(curvatures.sum()))) / len(values)
    reliable_mean, unreliable_share = float(values.mean()), float(np.mean(~reliable))
    guesses = np.clip(
        np.divide(numerators, denominators, out=np.zeros_like(numerators), where=~reliable & (denominators > 0)),
        0.0,
        1.0,
    )
    value = min(max(reliable_mean + float(guesses.mean()), 0.0), 1.0)
    low, high = reliable_mean - margin, reliable_mean + unreliable_share + margin
    return Estimate(
        value=value,
        low=min(value, max(0.0, low)),
        high=max(value, min(1.0, high)),
        counts=tuple(map(float, counts)),
        records_error=math.sqrt(by_sampling) / len(values) if reliable.all() else None,
    )


def noisy_accuracy(right: float, wrong: float, noise_std: float) -> Estimate:
    """Accuracy from two counts that each carry noise: a function of the noisy counts alone, hence free.

    The interval adds the variance of the ratio to first order in the noise to the binomial variance, with two records
    of each kind added to the counts (Agresti & Coull 1998). It also covers units' shares in [0, 1], which have at most
    the variance of a Bernoulli variable with the same mean. It is all of [0, 1] if the total is not above its noise.
    """
    total = right + wrong
    if total <= NOISE_LEVEL * math.sqrt(2) * noise_std:
        value = min(max(right / total, 0.0), 1.0) if total > 0 else 0.0
        return Estimate(value=value, low=0.0, high=1.0, counts=(right, wrong))
    value = min(max(right / total, 0.0), 1.0)
    by_noise = noise_std**2 * (value**2 + (1 - value) ** 2) / total**2
    rate = (value * total + 2) / (total + 4)
    by_records = rate * (1 - rate) / total
    margin = Z95 * math.sqrt(by_noise + by_records)
    return Estimate(
        value=value,
        low=max(0.0, value - margin),
        high=min(1.0, value + margin),
        counts=(right, wrong),
        records_error=math.sqrt(by_records),
    )


def accuracy_with_wilson_interval(right: float, total: int) -> Estimate:
    """Accuracy from exact counts, with Wilson's score interval. Source: Wilson 1927."""
    value, z2 = right / total, Z95**2
    centre = (value + z2 / (2 * total)) / (1 + z2 / total)
    margin = Z95 / (1 + z2 / total) * math.sqrt(value * (1 - value) / total + z2 / (4 * total**2))
    return Estimate(
        value=value,
        low=min(value, max(0.0, centre - margin)),
        high=max(value, min(1.0, centre + margin)),
        counts=(right, total - right),
        records_error=margin / Z95,
    )


def binned_auroc(negatives: NDArray[np.float64], positives: NDArray[np.float64], noise_std: float) -> Estimate:
    """The area under the ROC curve from noisy counts per bin [bins] of a decision value, in ascending order.

    The value is the trapezoidal area over the bins: a pair of a negative and a positive in one bin counts 1/2. The
    order of records within a bin is unknown, so the low end of the interval counts no pair within a bin, and the high
    end counts all of them. The variance of both ends is that of the noise, to first order, plus that of the sampling.
    The sampling variance is that of DeLong, DeLong, Clarke-Pearson 1988, with one best-ranked and one worst-ranked
    record added to each class; or, where this gives a narrower interval, the largest variance for any decision values,
    area (1 - area) over the smaller class (Birnbaum and Klose 1957), as a score interval. The interval is all of [0, 1]
    if the total of a class is not above its noise.

    In simulations of 20 to 2000 records in a class, areas from .5 to .98, noise of standard deviation 0 and 4, and
    decision values that were normal, exponential, of two levels, or uniform with outliers, at most 5.5 % of intervals
    missed the true area of the decision values.
    """
    classes = NoisyBins(negatives=negatives, positives=positives, noise_std=noise_std)
    counts = (*map(float, negatives), *map(float, positives))
    value = min(max(classes.auroc_for_tie_weight(0.5), 0.0), 1.0)
    if classes.is_class_total_within_noise:
        return Estimate(value=value, low=0.0, high=1.0, counts=counts)
    low, high = classes.auroc_interval_for_tie_weight(0.0)[0], classes.auroc_interval_for_tie_weight(1.0)[1]
    return Estimate(
        value=value,
        low=min(value, max(0.0, low)),
        high=max(value, min(1.0, high)),
        counts=counts,
        records_error=math.sqrt(classes.auroc_variances_for_tie_weight(0.5)[1]),
    )


def area_under_precision(recalls: NDArray[np.float64], fallouts: NDArray[np.float64], odds: float) -> float:
    """The area under the precision at each recall, of a curve through points of ascending recall and fallout, from 0.

    A fallout is the share of negatives above a threshold, `odds` the number of negatives for each positive. Between two
    points the fallout grows linearly, as for ties in a random order.

    >>> f"{area_under_precision(np.array([0.0, 1.0]), np.array([0.0, 1.0]), odds=3.0):.3f}"
    '0.250'
    """
    area = 0.0
    for start, end, low, high in zip(recalls[:-1], recalls[1:], fallouts[:-1], fallouts[1:], strict=True):
        if end <= start:
            continue
        slope = odds * (high - low) / (end - start)
        offset = odds * low - slope * start
        area += _integral_of_precision(float(start), float(end), 1 + slope, offset)
    return min(max(area, 0.0), 1.0)


def _integral_of_precision(start: float, end: float, factor: float, offset: float) -> float:
    """The integral of r / (factor r + offset) from start to end, of a denominator that is not negative there."""
    if abs(offset) <= 1e-12 * factor:
        return (end - start) / factor
    grown = (factor * end + offset) / max(factor * start + offset, 1e-300)
    return (end - start) / factor - offset / factor**2 * math.log(grown)


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyBins:
    """The noisy counts per bin of both classes, in ascending order of the decision value."""

    negatives: NDArray[np.float64]
    positives: NDArray[np.float64]
    noise_std: float

    @property
    def class_totals(self) -> tuple[float, float]:
        """The noisy numbers of negatives and of positives, summed over the bins."""
        return float(self.negatives.sum()), float(self.positives.sum())

    @property
    def is_class_total_within_noise(self) -> bool:
        """Whether the total of a class is not above its noise, so that the true total may be 0."""
        return min(self.class_totals) <= NOISE_LEVEL * math.sqrt(len(self.negatives)) * self.noise_std

    def auroc_for_tie_weight(self, tie: float) -> float:
        """The area if a pair within one bin counts `tie`; 0 if a class is empty."""
        n, m = self.class_totals
        return float(self.positives @ self._negatives_below_each_bin(tie)) / (n * m) if n > 0 and m > 0 else 0.0

    def auroc_interval_for_tie_weight(self, tie: float) -> tuple[float, float]:
        """The interval of the area if a pair within one bin counts `tie`."""
        area, (by_noise, by_records) = self.auroc_for_tie_weight(tie), self.auroc_variances_for_tie_weight(tie)
        margin = Z95 * math.sqrt(by_noise + by_records)
        low, high = _score_interval_of_noisy_share(area, by_noise, min(self.class_totals))
        return max(low, area - margin), min(high, area + margin)

    def auroc_variances_for_tie_weight(self, tie: float) -> tuple[float, float]:
        """The variances of the area by the noise and by the finite number of records, to first order."""
        (n, m), area = self.class_totals, self.auroc_for_tie_weight(tie)
        below, above = (
            (self._negatives_below_each_bin(tie) / n - area) ** 2,
            (self._positives_above_each_bin(tie) / m - area) ** 2,
        )
        by_noise = self.noise_std**2 * float(below.sum() / m**2 + above.sum() / n**2)
        ends = area**2 + (1 - area) ** 2
        by_positives = (float(np.maximum(self.positives, 0.0) @ below) + ends) / m**2
        by_negatives = (float(np.maximum(self.negatives, 0.0) @ above) + ends) / n**2
        return by_noise, by_positives + by_negatives

    def sum_over_pairs_and_its_std(self, area: float) -> tuple[float, float]:
        """The sum over pairs of 1 - area if ranked rightly and -area if not, a tie included, and its noise's std."""
        (n, m), bins = self.class_totals, len(self.negatives)
        by_positive = self._negatives_below_each_bin(0.0) - area * n
        by_negative = self._positives_above_each_bin(0.0) - area * m
        pairs = bins * (bins - 1) / 2
        squares = pairs * (1 - area) ** 2 + (bins**2 - pairs) * area**2
        variance = self.noise_std**2 * float((by_positive**2).sum() + (by_negative**2).sum())
        return float(self.positives @ by_positive), math.sqrt(variance + self.noise_std**4 * squares)

    def _negatives_below_each_bin(self, tie: float) -> NDArray[np.float64]:
        """For each bin, the number of negatives ranked below a positive of this bin."""
        return np.cumsum(self.negatives) - (1 - tie) * self.negatives

    def _positives_above_each_bin(self, tie: float) -> NDArray[np.float64]:
        """For each bin, the number of positives ranked above a negative of this bin."""
        return np.cumsum(self.positives[::-1])[::-1] - (1 - tie) * self.positives


def _score_interval_of_noisy_share(share: float, by_noise: float, records: float) -> tuple[float, float]:
    """The score interval: all p within 1.96 standard deviations of `share`.

    The variance is p (1 - p) / records + `by_noise`.
    """
    z2 = Z95**2
    square, line = 1 + z2 / records, 2 * share + z2 / records
    root = math.sqrt(max(0.0, line**2 - 4 * square * (share**2 - z2 * by_noise)))
    return (line - root) / (2 * square), (line + root) / (2 * square)
