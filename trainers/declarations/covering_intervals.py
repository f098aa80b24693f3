"""Intervals that hold at any level, for a score that was chosen among many.

A 95 % interval covers one score that was chosen beforehand. The winner of a search was chosen by its score, so its
interval has to hold for every run that could have won: at level 0.05 / R each, for R such runs, far out where normal
approximations of the sampling fail. So these intervals invert tails that hold for every size: the law of a binomial
variable plus the noise of its counts, and for units that add fractions the bound of Hoeffding on its generating
function. They read what the estimates read: the noisy counts alone. The number of units is private too: it is bounded
by its noisy value at a twentieth of the level, and tails are taken at the largest number, where they are largest.

*Claim.* If a winner's interval is at the level .05 / R, for R runs that may win, a page whose interval misses the true
score of its winner appears with probability at most .05.

*Proof.* Let M(i) be the event that the interval of run i misses the true score of its model, that is its mean over the
population that the units were drawn from. (1) *Every point.* The plan fixes the runs i = 1, ..., R (points times
repeats), and none of them depends on a score: given its model, run i is scored once on held-out units that no training
has read, so P(M(i)) <= .05 / R. Whichever run is named, the page misses only if some M(i) happens: probability at most
.05. The scores may depend on one another in any way, and they do, since all read the same units. (2) *Proposed points.*
A sampler names the point of turn t from earlier scores. But the model that point j would have at turn t depends on the
coins of turn t and on j alone, so the pairs (t, j) are fixed beforehand: R is their number. (3) *A secret draw.* The
number of tries K is drawn beforehand from a public law, independently of all scores. P(some try k <= K misses) <= sum
over k of P(K >= k) P(M(k)) = E[K] .05 / R, so R = max(1, E[K]), the mean of the law and never the number drawn: an
interval whose width depended on K would tell it. (4) *A final run on the search's records* may follow each of these
runs, with coins of its own: R doubles. *A final run on records that the search has not read* (disjoint parts) chose
nothing: R = 1. QED

*Sources*: Clopper and Pearson 1934 (inversion of exact tails); Hoeffding 1963, Theorem 1 and Section 5 (fractions, and
statistics of two samples).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, gammaln, ndtr, ndtri, xlog1py, xlogy

from dpsweep.accounting.codec import fraction
from dpsweep.accounting.profiles.privacy_profiles import first_within
from dpsweep.trainers.declarations.estimates import NoisyBins, Ratios, area_under_precision

if TYPE_CHECKING:
    from numpy.typing import NDArray

OF_TOTAL = 0.05
"""The share of the level for the noise of the number of units."""

LATTICE = 0.02
"""What the log of a tail may rise by where fewer units have another place on the lattice of counts."""

LEAST, TOLERANCE = 1e-6, 1e-7
"""The least share that is told from 0, and the precision of the ends; the outer end is taken."""

HALVINGS = 34
"""Halvings of the range of a generating function's argument."""

ROUGH_HALVINGS = 10
"""Halvings of the range of a slope at which any value gives a bound."""

REACH = 7.0
"""Standard deviations around the mean of a binomial variable whose probabilities are added one by one."""

FEW_RATIOS = 2
"""The number of ratios up to which each has an interval of its own."""

MOST_STEEP = 700.0
"""The largest argument of a generating function: its exponential is still a float64."""


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """A sum of counts that each carry Gaussian noise; `std` is the standard deviation of the sum's noise."""

    value: float
    std: float


def share_interval(
    right: NoisyCount, wrong: NoisyCount, level: float, *, whole_units: bool = True
) -> tuple[float, float]:
    """An interval for the probability p that a unit is right, which misses it with probability at most `level`.

    With `whole_units` each unit adds 1 to one of the counts; otherwise it adds fractions that sum to 1, and p is their
    mean. For true counts (r, w) of n units, (1 - p) r - p w is the deviation of r from p n, and its noisy value has
    noise of known deviation. An end of the interval is the p at which the observed deviation has this probability.

    >>> low, high = share_interval(NoisyCount(value=90.0, std=0.0), NoisyCount(value=10.0, std=0.0), 0.05)
    >>> f"{low:.4f} {high:.4f}"
    '0.8238 0.9510'
    """
    fraction("level", level)
    low = _lower_end_of_share(right, wrong, level, whole_units=whole_units)
    high = 1 - _lower_end_of_share(wrong, right, level, whole_units=whole_units)
    return (low, high) if low <= high else (0.0, 1.0)  # counts that contradict each other say nothing


def interval_of_mean_of_ratios(
    counts: NDArray[np.float64], ratios: Ratios, noise_std: float, level: float, *, whole_units: bool = True
) -> tuple[float, float]:
    """An interval for the mean of k ratios of counts [cells].

    A ratio whose successes count w times is a function w q / (w q + 1 - q) of the share q of successes. Each ratio has
    an interval of its own at level / k, and the ends are averaged. Many recalls are bounded together: their units are
    independent given the sizes of the classes, and the deviation of the mean is far smaller than the mean deviation.
    """
    if int(ratios.ratio.max()) + 1 > FEW_RATIOS and (
        found := _interval_of_mean_recall(counts, ratios, noise_std, level)
    ):
        return found
    success, cells = ratios.numerator > 0, counts[ratios.cell]
    sums = [np.bincount(ratios.ratio, part * cells) for part in (success, ~success)]
    stds = [noise_std * np.sqrt(np.bincount(ratios.ratio, part)) for part in (success, ~success)]
    weights = np.zeros(len(sums[0]))
    np.maximum.at(weights, ratios.ratio, ratios.numerator)
    ends = []
    for right, wrong, right_std, wrong_std, weight in zip(*sums, *stds, weights, strict=True):
        shares = share_interval(
            NoisyCount(value=float(right), std=float(right_std)),
            NoisyCount(value=float(wrong), std=float(wrong_std)),
            level / len(weights),
            whole_units=whole_units,
        )
        ends.append([weight * share / (weight * share + 1 - share) for share in shares])
    low, high = np.mean(ends, axis=0)
    return float(low), float(high)


def _interval_of_mean_recall(
    counts: NDArray[np.float64], ratios: Ratios, noise_std: float, level: float
) -> tuple[float, float] | None:
    """The interval for a mean of many shares of cells of their own; None for others, and for classes within noise."""
    classes = int(ratios.ratio.max()) + 1
    if (ratios.denominator != 1).any() or len(np.unique(ratios.cell)) < len(ratios.cell):
        return None
    rights, totals = ratios.numerators_and_denominators(counts)
    spread = noise_std * np.sqrt(np.bincount(ratios.ratio))
    units = totals + float(ndtri(OF_TOTAL * level / classes)) * spread if noise_std > 0 else totals
    if units.min() < 1:
        return None
    mean = float((rights / totals).mean())
    std = noise_std * math.sqrt(float((1 / units**2).sum())) / classes
    log_level = math.log((1 - OF_TOTAL) * level / 2)

    def lower_end(value: float) -> float:
        return _largest_value_that_is_too_small(
            lambda share: _log_mean_recall_tail(units, share, value - share, std), log_level, value
        )

    return lower_end(mean), 1 - lower_end(1 - mean)


def _log_mean_recall_tail(units: NDArray[np.float64], share: float, deviation: float, std: float) -> float:
    """A bound on the log of the chance that a mean recall, for these classes [classes], is so far above `share`.

    It is Hoeffding's bound at the argument t that is best for a normal law, or for a binomial one where that is
    smaller, at the worst recalls p with this mean. The sum of n log(1 - p + p e^(t / (C n))) over the classes is
    concave in p. So for every slope it is at most the largest value of the sum less `slope` times what the recalls
    exceed the mean by: a rough search for the slope will do.
    """
    classes, spread = len(units), float((1 / units).sum()) / len(units) ** 2
    reached = min(share + deviation, 1 - LEAST)
    of_binomial = (math.log(reached / share) - math.log((1 - reached) / (1 - share))) / spread
    steepness = min(deviation / (spread * share * (1 - share) + std**2), of_binomial)
    grown = np.expm1(steepness / (classes * units))

    def recalls(slope: float) -> NDArray[np.float64]:
        return np.clip((units * grown / slope - 1) / grown, 0.0, 1.0)

    low, high = math.log(float((units * grown / (1 + grown)).min())), math.log(float((units * grown).max()))
    for _ in range(ROUGH_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if recalls(math.exp(middle)).mean() > share else (low, middle)
    slope = math.exp(high)
    worst = recalls(slope)
    largest = float((units * np.log1p(worst * grown)).sum()) - slope * (float(worst.sum()) - classes * share)
    return largest - steepness * (share + deviation) + (steepness * std) ** 2 / 2


def auroc_interval(
    negatives: NDArray[np.float64], positives: NDArray[np.float64], noise_std: float, level: float
) -> tuple[float, float]:
    """An interval for the area under the ROC curve, from noisy counts per bin [bins] of a decision value.

    The order within a bin is unknown: the low end counts no pair within a bin, the high end all of them. The area is a
    mean over pairs, which deviates no more than a mean over as many units as the smaller class has. The noise of the
    sum over pairs is bounded to first order at the noisy counts, plus that of the product of both noises.
    """
    classes = NoisyBins(negatives=negatives, positives=positives, noise_std=noise_std)
    mirrored = NoisyBins(negatives=positives, positives=negatives, noise_std=noise_std)
    low, high = _lower_end_of_auroc(classes, level), 1 - _lower_end_of_auroc(mirrored, level)
    return (low, high) if low <= high else (0.0, 1.0)


def average_precision_interval(
    negatives: NDArray[np.float64], positives: NDArray[np.float64], noise_std: float, level: float, *, whole_units: bool
) -> tuple[float, float]:
    """An interval for the area under the precision at each recall, from noisy counts per bin [bins] as above.

    The recall and the fallout at each edge of a bin and the share of positives are bounded at once, each at its part of
    the level. Between two edges the order is unknown. At a recall that is certainly below that of an edge, the fallout
    is at most that of the edge; at a recall that is certainly above, it is at least that of the edge.
    """
    bins = len(positives)
    each = level / (2 * (bins - 1) + 1)

    def share(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float, float]:
        right, wrong = (
            NoisyCount(value=float(part.sum()), std=noise_std * math.sqrt(part.size)) for part in (above, below)
        )
        return share_interval(right, wrong, each, whole_units=whole_units)

    least, most = share(positives, negatives)
    if least <= 0:
        return 0.0, 1.0
    recalls, fallouts = (
        np.array([[0.0, 0.0], *(share(own[edge:], own[:edge]) for edge in range(bins - 1, 0, -1)), [1.0, 1.0]])
        for own in (positives, negatives)
    )
    low, high = np.maximum.accumulate(recalls[:, 0]), np.minimum.accumulate(recalls[::-1, 1])[::-1]
    fewest, largest = np.maximum.accumulate(fallouts[:, 0]), np.minimum.accumulate(fallouts[::-1, 1])[::-1]
    return (
        area_under_precision(*_steps(low, largest[1:]), odds=(1 - least) / least),
        area_under_precision(*_steps(high, fewest[:-1]), odds=(1 - most) / most),
    )


def _steps(
    recalls: NDArray[np.float64], fallouts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The curve with one fallout between each recall [n + 1] and the next one."""
    return np.repeat(recalls, 2)[1:-1], np.repeat(fallouts, 2)


def _lower_end_of_share(right: NoisyCount, wrong: NoisyCount, level: float, *, whole_units: bool) -> float:
    """The lower end of an interval at this level for both ends."""
    spread = math.hypot(right.std, wrong.std)
    units, log_level = _largest_total_and_log_level_of_one_end(right.value + wrong.value, spread, level)
    if units < 1 or right.value <= 0 or right.value + wrong.value <= 0:
        return 0.0
    log_tail = _log_noisy_binomial_tail if whole_units else _log_noisy_hoeffding_tail

    def own_log_tail(share: float) -> float:
        deviation = (1 - share) * right.value - share * wrong.value
        std = math.hypot((1 - share) * right.std, share * wrong.std)
        return log_tail(units, share, deviation, std)

    return _largest_value_that_is_too_small(own_log_tail, log_level, right.value / (right.value + wrong.value))


def _lower_end_of_auroc(classes: NoisyBins, level: float) -> float:
    spread = classes.noise_std * math.sqrt(len(classes.negatives))
    bounds = [
        _largest_total_and_log_level_of_one_end(float(own.sum()), spread, level / 2)
        for own in (classes.negatives, classes.positives)
    ]
    (least, _), (most, _) = sorted(bounds)
    if least < 1:
        return 0.0
    log_level = _largest_total_and_log_level_of_one_end(least, spread, level)[1]

    def log_tail(area: float) -> float:
        pairs, std = classes.sum_over_pairs_and_its_std(area)
        return _log_noisy_hoeffding_tail(least, area, pairs / most, std / most)

    return _largest_value_that_is_too_small(log_tail, log_level, classes.auroc_for_tie_weight(0.0))


def _largest_total_and_log_level_of_one_end(total: float, std: float, level: float) -> tuple[int, float]:
    """An upper bound on a noisy number of units, and the log of what is left of the level for one end."""
    if std == 0:
        return round(total), math.log(level / 2)
    return math.floor(total - float(ndtri(OF_TOTAL * level)) * std), math.log((1 - OF_TOTAL) * level / 2) - LATTICE


def _largest_value_that_is_too_small(log_tail: Callable[[float], float], log_level: float, observed: float) -> float:
    """The largest value, to `TOLERANCE`, at which what was observed has a tail of at most this level; 0 if none has.

    The tail grows with the value, and is trivial at the observed one.
    """
    if observed <= 2 * LEAST or log_tail(LEAST) > log_level:
        return 0.0
    low, high = int((1 - min(1.0, observed)) / TOLERANCE), round((1 - LEAST) / TOLERANCE)

    def excess(rest: int) -> float:
        share = 1 - rest * TOLERANCE  # so near the observed one no bound is below 1
        return math.exp((log_tail(share) if share <= min(1.0, observed) - 2 * LEAST else 0.0) - log_level)

    rest = first_within(excess, 1.0, low, high, low, stride=(high - low) / 50)
    return 0.0 if rest is None else 1 - rest * TOLERANCE


def _log_noisy_binomial_tail(units: int, share: float, deviation: float, std: float) -> float:
    """The log of P(X - units * share + N >= deviation) for a binomial X and normal noise N with this deviation."""
    mean = units * share
    if std == 0:
        least = math.ceil(mean + deviation - 1e-9)
        return math.log(max(_binomial_tail(units, share, least), 1e-300))
    reach = REACH * math.sqrt(mean * (1 - share)) + REACH
    first, last = max(0, math.floor(mean - reach)), min(units, math.ceil(mean + reach))
    values = np.arange(first, last + 1, dtype=float)
    logs = gammaln(units + 1.0) - gammaln(values + 1) - gammaln(units - values + 1)
    chances = np.exp(logs + xlogy(values, share) + xlog1py(units - values, -share))
    tail = float(chances @ ndtr((values - mean - deviation) / std)) + _binomial_tail(units, share, last + 1)
    return math.log(max(tail, 1e-300))


def _binomial_tail(units: int, share: float, least: int) -> float:
    """P(X >= least) for a binomial X."""
    if least <= 0:
        return 1.0
    return 0.0 if least > units else float(betainc(least, units - least + 1, share))


def _log_noisy_hoeffding_tail(units: int, share: float, deviation: float, std: float) -> float:
    """Hoeffding's bound on the same log for a sum X of independent units in [0, 1] with this mean share.

    It is the smallest of u log(1 - p + p e^t) - t (u p + d) + t^2 s^2 / 2 over t >= 0, which is convex in t.
    """
    least = units * share + deviation

    def slope(steepness: float) -> float:
        odds = share * math.exp(steepness)
        return units * odds / (1 - share + odds) - least + steepness * std**2

    low, high = 0.0, MOST_STEEP
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return units * math.log1p(share * math.expm1(low)) - low * least + (low * std) ** 2 / 2
