"""The likelihood-ratio attack: the attacker sums the log-likelihood ratios of all values, rounded to whole units.

It is stronger than the plain sum at small noise, where a step that did not sample the canary carries little
information. Rounding only weakens the attack. The distributions of the sum come from direct convolutions of positive
numbers, which keep the digits of small tails; truncated mass is counted in `lost`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy import special

from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps, LatticePmf, between

WIDTH = 8000
"""The number of units that the likely sums may cover."""

UNITS = 4.0
"""Units per standard deviation of one step's ratio, unless the sum then covers too many units."""

REACH = 12.0
NEGLIGIBLE = 1e-50
MOST_KINDS = 24
MOST_SCORES = 400
_GRID = 4001


def likelihood_ratio_sum(steps: Sequence[CanarySteps]) -> LatticePmf | None:
    """The sum of rounded log-likelihood ratios; None without noisy steps or with too many kinds of step."""
    noisy = [step for step in steps if step.noise_multiplier > 0]
    if not 0 < len(noisy) <= MOST_KINDS:
        return None
    spread = math.sqrt(sum(step.count * _variance(step) for step in noisy))
    finest = min(math.sqrt(_variance(step)) for step in noisy) / UNITS
    unit = max(finest, 2 * REACH * spread / WIDTH)
    if not (math.isfinite(unit) and unit > 0):
        return None
    pairs = [[law.times(step.count) for law in _ratio_laws(step, unit)] for step in noisy]
    present, instead = (reduce(_Law.plus, laws) for laws in zip(*pairs, strict=True))
    lowest = min(present.lowest, instead.lowest)
    highest = max(present.highest, instead.highest)
    return LatticePmf(
        present=present.over(lowest, highest),
        instead=instead.over(lowest, highest),
        lost=max(present.lost, instead.lost),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Law:
    """A distribution on whole numbers from `lowest`; mass of at most `lost` is left out."""

    lowest: int
    masses: np.ndarray
    lost: float

    @property
    def highest(self) -> int:
        return self.lowest + len(self.masses) - 1

    def plus(self, other: _Law) -> _Law:
        """The distribution of the sum."""
        return _law(self.lowest + other.lowest, np.convolve(self.masses, other.masses), self.lost + other.lost)

    def times(self, count: int) -> _Law:
        """The distribution of the sum of `count` independent copies, by repeated doubling."""
        if count == 1:
            return self
        half = self.times(count // 2)
        twice = half.plus(half)
        return twice.plus(self) if count % 2 else twice

    def over(self, lowest: int, highest: int) -> np.ndarray:
        """The masses from `lowest` to `highest`."""
        return np.pad(self.masses, (self.lowest - lowest, highest - self.highest))


def _law(lowest: int, masses: np.ndarray, lost: float) -> _Law:
    """The distribution without its negligible masses, which would only slow the computation down."""
    significant = masses > NEGLIGIBLE
    first, last = np.flatnonzero(significant)[[0, -1]].tolist()
    return _Law(
        lowest=lowest + first,
        masses=np.where(significant, masses, 0.0)[first : last + 1],
        lost=lost + float(masses[~significant].sum()),
    )


def _ratio_laws(step: CanarySteps, unit: float) -> list[_Law]:
    """The distributions of one value's rounded ratio, with the record and in the neighbouring data set."""
    values = _values(step)
    ratios = _ratio(step, values) / unit
    lowest, highest = (int(np.clip(round(end), -MOST_SCORES, MOST_SCORES)) for end in (ratios[0], ratios[-1]))
    edges = np.interp(np.arange(lowest, highest) + 0.5, ratios, values)
    return [_law(lowest, _masses(step, shift, edges), 0.0) for shift in (step.present, step.instead)]


def _masses(step: CanarySteps, shift: int, edges: np.ndarray) -> np.ndarray:
    """The mass of one value between each two edges, if a sampled canary adds `shift`."""
    if len(edges) == 0:
        return np.ones(1)
    below, above = (
        (1 - step.rate) * special.ndtr(sign * edges / step.noise_multiplier)
        + step.rate * special.ndtr(sign * (edges - shift) / step.noise_multiplier)
        for sign in (1, -1)
    )
    return between(below, above)


def _values(step: CanarySteps) -> np.ndarray:
    reach = REACH * step.noise_multiplier
    return np.linspace(min(0, step.instead) - reach, step.present + reach, _GRID)


def _ratio(step: CanarySteps, values: np.ndarray) -> np.ndarray:
    """ln p(value) / q(value), which increases with the value."""
    return np.asarray(_log_density(step, step.present, values) - _log_density(step, step.instead, values))


def _log_density(step: CanarySteps, shift: int, values: np.ndarray) -> np.ndarray:
    """ln of the density of a value over the density of noise alone."""
    if shift == 0:
        return np.zeros(len(values))
    shifted = shift * (2 * values - shift) / (2 * step.noise_multiplier**2)
    if step.rate == 1:
        return np.asarray(shifted)
    return np.asarray(np.logaddexp(math.log1p(-step.rate), math.log(step.rate) + shifted))


def _variance(step: CanarySteps) -> float:
    """The variance of one value's ratio, with the record."""
    values = _values(step)
    ratios = _ratio(step, values)
    logs = _log_density(step, step.present, values) - (values / step.noise_multiplier) ** 2 / 2
    density = np.exp(logs - special.logsumexp(logs))
    return float(density @ (ratios - density @ ratios) ** 2)
