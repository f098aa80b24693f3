"""The canary seen step by step: the attacker adds up what each value says, its log-likelihood ratio in whole units.

Sharper than the plain sum where noise is small, since a step that did not sample the canary then says little. Rounding
the ratios is the attacker's own loss. The laws of the sum come from direct convolutions of positive numbers, which keep
the digits of small tails; masses that are cut off are counted.
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
"""How many units the likely sums may spread over."""

UNITS = 4.0
"""Units per standard deviation of one step's ratio, where the sum does not spread too far."""

REACH = 12.0
NEGLIGIBLE = 1e-50
MOST_KINDS = 24
MOST_SCORES = 400
_GRID = 4001


def weigh(steps: Sequence[CanarySteps]) -> LatticePmf | None:
    """The sum of rounded log-likelihood ratios; None where there is nothing to see or too many kinds of step."""
    telling = [step for step in steps if step.noise_multiplier > 0]
    if not 0 < len(telling) <= MOST_KINDS:
        return None
    spread = math.sqrt(sum(step.count * _variance(step) for step in telling))
    finest = min(math.sqrt(_variance(step)) for step in telling) / UNITS
    unit = max(finest, 2 * REACH * spread / WIDTH)
    if not (math.isfinite(unit) and unit > 0):
        return None
    scored = [[law.times(step.count) for law in _scored(step, unit)] for step in telling]
    present, instead = (reduce(_Law.plus, laws) for laws in zip(*scored, strict=True))
    lowest = min(present.lowest, instead.lowest)
    highest = max(present.highest, instead.highest)
    return LatticePmf(
        present=present.over(lowest, highest),
        instead=instead.over(lowest, highest),
        lost=max(present.lost, instead.lost),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Law:
    """A law on whole numbers from `lowest` up, of which at most `lost` is left out."""

    lowest: int
    masses: np.ndarray
    lost: float

    @property
    def highest(self) -> int:
        return self.lowest + len(self.masses) - 1

    def plus(self, other: _Law) -> _Law:
        """The law of the sum."""
        return _law(self.lowest + other.lowest, np.convolve(self.masses, other.masses), self.lost + other.lost)

    def times(self, count: int) -> _Law:
        """The law of the sum of `count` such numbers, by repeated doubling."""
        if count == 1:
            return self
        half = self.times(count // 2)
        twice = half.plus(half)
        return twice.plus(self) if count % 2 else twice

    def over(self, lowest: int, highest: int) -> np.ndarray:
        """The masses from `lowest` to `highest`."""
        return np.pad(self.masses, (self.lowest - lowest, highest - self.highest))


def _law(lowest: int, masses: np.ndarray, lost: float) -> _Law:
    """The law without its negligible masses, which would only slow arithmetic down."""
    kept = masses > NEGLIGIBLE
    first, last = np.flatnonzero(kept)[[0, -1]].tolist()
    return _Law(
        lowest=lowest + first,
        masses=np.where(kept, masses, 0.0)[first : last + 1],
        lost=lost + float(masses[~kept].sum()),
    )


def _scored(step: CanarySteps, unit: float) -> list[_Law]:
    """The law of one value's rounded ratio, with the record and with its neighbour."""
    values = _values(step)
    ratios = _ratio(step, values) / unit
    lowest, highest = (int(np.clip(round(end), -MOST_SCORES, MOST_SCORES)) for end in (ratios[0], ratios[-1]))
    edges = np.interp(np.arange(lowest, highest) + 0.5, ratios, values)
    return [_law(lowest, _masses(step, moved, edges), 0.0) for moved in (step.present, step.instead)]


def _masses(step: CanarySteps, moved: int, edges: np.ndarray) -> np.ndarray:
    if len(edges) == 0:
        return np.ones(1)
    below, above = (
        (1 - step.rate) * special.ndtr(sign * edges / step.noise_multiplier)
        + step.rate * special.ndtr(sign * (edges - moved) / step.noise_multiplier)
        for sign in (1, -1)
    )
    return between(below, above)


def _values(step: CanarySteps) -> np.ndarray:
    reach = REACH * step.noise_multiplier
    return np.linspace(min(0, step.instead) - reach, step.present + reach, _GRID)


def _ratio(step: CanarySteps, values: np.ndarray) -> np.ndarray:
    """ln p(value) / q(value); it rises with the value."""
    return np.asarray(_log_density(step, step.present, values) - _log_density(step, step.instead, values))


def _log_density(step: CanarySteps, moved: int, values: np.ndarray) -> np.ndarray:
    """ln of the density over that of noise alone."""
    if moved == 0:
        return np.zeros(len(values))
    shifted = moved * (2 * values - moved) / (2 * step.noise_multiplier**2)
    if step.rate == 1:
        return np.asarray(shifted)
    return np.asarray(np.logaddexp(math.log1p(-step.rate), math.log(step.rate) + shifted))


def _variance(step: CanarySteps) -> float:
    """Of one value's ratio, with the record."""
    values = _values(step)
    ratios = _ratio(step, values)
    logs = _log_density(step, step.present, values) - (values / step.noise_multiplier) ** 2 / 2
    density = np.exp(logs - special.logsumexp(logs))
    return float(density @ (ratios - density @ ratios) ** 2)
