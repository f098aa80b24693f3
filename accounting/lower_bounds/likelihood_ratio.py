"""The aligned canary attack: one record with a constant gradient at the norm bound; all other gradients are zero.

Each step that sampled the canary shifts the released value along that direction. The attacker sums the log-likelihood
ratios of all values, rounded to whole units. Rounding only weakens the attack. The distributions of the sum come from
direct convolutions of positive numbers, which keep the digits of small tails; truncated mass is counted in `lost`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy import special

WIDTH = 8000
"""The number of units that the likely sums may cover; more where a unit would be .4 of a step's deviation."""

UNITS = 4.0
"""Units per standard deviation of one step's ratio, unless the sum then covers too many units."""

REACH = 12.0
NEGLIGIBLE = 1e-50
MOST_KINDS, RATIO = 24, 1.01
"""The most kinds of step; where there are more, noise and rates are rounded to powers of the ratio, or its square."""

MOST_SCORES = 400
"""The least number of units, on each side of 0, that a step's ratios may cover; few steps may cover more."""

_GRID = 4001


@dataclass(frozen=True, kw_only=True)
class CanarySteps:
    """`count` equal steps with sample rate `rate`.

    A sampled canary adds `present` to the released value; in the neighbouring data set it adds `instead`.
    """

    rate: float
    noise_multiplier: float
    count: int
    present: int = 1
    instead: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class LatticePmf:
    """The attacker's sum on cells in ascending order: their masses with the record and in the neighbouring data set.

    `lost` bounds the total variation between each distribution here and the true one, because the least likely sums
    are left out.
    """

    present: np.ndarray
    instead: np.ndarray
    lost: float


def distribution_of_likelihood_ratio_sum(steps: Sequence[CanarySteps]) -> LatticePmf | None:
    """The sum of rounded log-likelihood ratios; None without noisy steps."""
    noisy = _with_few_kinds([step for step in steps if step.noise_multiplier > 0])
    if not noisy:
        return None
    stds = [math.sqrt(_ratio_variance(step)) for step in noisy]
    spread = math.sqrt(sum(step.count * std**2 for step, std in zip(noisy, stds, strict=True)))
    count = sum(step.count for step in noisy)
    scores = max(MOST_SCORES, WIDTH // count)
    farthest = max(float(np.abs(_log_likelihood_ratios(step, _value_grid(step))[[0, -1]]).max()) for step in noisy)
    coarsest = spread * min(2 * REACH / WIDTH, 0.4 / math.sqrt(count))
    unit = max(min(min(stds) / UNITS, farthest / scores), coarsest)
    if not (math.isfinite(unit) and unit > 0):
        return None
    pairs = [[law.sum_of_copies(step.count) for law in _ratio_distributions(step, unit, scores)] for step in noisy]
    present, instead = (reduce(_Distribution.sum_with, laws) for laws in zip(*pairs, strict=True))
    lowest = min(present.lowest, instead.lowest)
    highest = max(present.highest_value, instead.highest_value)
    return LatticePmf(
        present=present.over(lowest, highest),
        instead=instead.over(lowest, highest),
        lost=max(present.lost, instead.lost),
    )


def _with_few_kinds(steps: Sequence[CanarySteps]) -> Sequence[CanarySteps]:
    """The steps with more noise and smaller rates, so that few kinds are left.

    Whoever adds noise to a value, or draws it anew now and then, knows less: what is forced is only underestimated.
    """
    ratio = RATIO
    while len(steps) > MOST_KINDS:
        counts: Counter[CanarySteps] = Counter()
        for step in steps:
            noise = ratio ** math.ceil(math.log(step.noise_multiplier) / math.log(ratio))
            rate = ratio ** math.floor(math.log(step.rate) / math.log(ratio))
            counts[replace(step, rate=rate, noise_multiplier=noise, count=0)] += step.count
        steps = [replace(kind, count=count) for kind, count in counts.items()]
        ratio **= 2
    return steps


@dataclass(frozen=True, kw_only=True, eq=False)
class _Distribution:
    """A distribution on whole numbers from `lowest`; mass of at most `lost` is left out."""

    lowest: int
    masses: np.ndarray
    lost: float

    @property
    def highest_value(self) -> int:
        return self.lowest + len(self.masses) - 1

    def sum_with(self, other: _Distribution) -> _Distribution:
        """The distribution of the sum."""
        return _trimmed_distribution(
            self.lowest + other.lowest, np.convolve(self.masses, other.masses), self.lost + other.lost
        )

    def sum_of_copies(self, count: int) -> _Distribution:
        """The distribution of the sum of `count` independent copies, by repeated doubling."""
        if count == 1:
            return self
        half = self.sum_of_copies(count // 2)
        twice = half.sum_with(half)
        return twice.sum_with(self) if count % 2 else twice

    def over(self, lowest: int, highest: int) -> np.ndarray:
        """The masses from `lowest` to `highest`."""
        return np.pad(self.masses, (self.lowest - lowest, highest - self.highest_value))


def _trimmed_distribution(lowest: int, masses: np.ndarray, lost: float) -> _Distribution:
    """The distribution without its negligible masses, which would only slow the computation down."""
    significant = masses > NEGLIGIBLE
    first, last = np.flatnonzero(significant)[[0, -1]].tolist()
    return _Distribution(
        lowest=lowest + first,
        masses=np.where(significant, masses, 0.0)[first : last + 1],
        lost=lost + float(masses[~significant].sum()),
    )


def _ratio_distributions(step: CanarySteps, unit: float, scores: int) -> list[_Distribution]:
    """The distributions of one value's rounded ratio, with the record and in the neighbouring data set."""
    values = _value_grid(step)
    ratios = _log_likelihood_ratios(step, values) / unit
    lowest, highest = (int(np.clip(round(end), -scores, scores)) for end in (ratios[0], ratios[-1]))
    edges = np.interp(np.arange(lowest, highest) + 0.5, ratios, values)
    return [
        _trimmed_distribution(lowest, _masses_between_edges(step, shift, edges), 0.0)
        for shift in (step.present, step.instead)
    ]


def _masses_between_edges(step: CanarySteps, shift: int, edges: np.ndarray) -> np.ndarray:
    """The mass of one value between each two edges, if a sampled canary adds `shift`."""
    if len(edges) == 0:
        return np.ones(1)
    below, above = (
        (1 - step.rate) * special.ndtr(sign * edges / step.noise_multiplier)
        + step.rate * special.ndtr(sign * (edges - shift) / step.noise_multiplier)
        for sign in (1, -1)
    )
    return masses_between_cuts(below, above)


def _value_grid(step: CanarySteps) -> np.ndarray:
    reach = REACH * step.noise_multiplier
    return np.linspace(min(0, step.instead) - reach, step.present + reach, _GRID)


def _log_likelihood_ratios(step: CanarySteps, values: np.ndarray) -> np.ndarray:
    """ln p(value) / q(value), which increases with the value."""
    return np.asarray(
        _log_density_over_noise(step, step.present, values) - _log_density_over_noise(step, step.instead, values)
    )


def _log_density_over_noise(step: CanarySteps, shift: int, values: np.ndarray) -> np.ndarray:
    """ln of the density of a value over the density of noise alone."""
    if shift == 0:
        return np.zeros(len(values))
    shifted = shift * (2 * values - shift) / (2 * step.noise_multiplier**2)
    if step.rate == 1:
        return np.asarray(shifted)
    return np.asarray(np.logaddexp(math.log1p(-step.rate), math.log(step.rate) + shifted))


def _ratio_variance(step: CanarySteps) -> float:
    """The variance of one value's ratio, with the record."""
    values = _value_grid(step)
    ratios = _log_likelihood_ratios(step, values)
    logs = _log_density_over_noise(step, step.present, values) - (values / step.noise_multiplier) ** 2 / 2
    density = np.exp(logs - special.logsumexp(logs))
    return float(density @ (ratios - density @ ratios) ** 2)


def masses_between_cuts(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The masses of the n + 1 cells between n cuts, as differences of the smaller tail, which keep their digits."""
    inner = np.where(below[1:] < above[:-1], np.diff(below), -np.diff(above))
    return np.concatenate([below[:1], inner, above[-1:]])
