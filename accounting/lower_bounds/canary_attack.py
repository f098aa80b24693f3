"""The aligned canary attack: one record with a constant gradient at the norm bound; all other gradients are zero.

The attacker sums all released values along that direction. Without the canary the sum is Gaussian; with it, every step
that sampled the canary shifts the sum once, and the number of these steps is binomial. Both distributions are mixtures
of Gaussians, so the mass of any interval is known exactly: there is no simulation, and small tails keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy import special

LEVELS = 8
"""Less informative steps get a smaller weight, rounded to eighths of the largest weight, so shifts are on a lattice."""

FINENESS = 32
"""Cells per standard deviation of the noise, unless this gives too many."""

REACH = 12.0
"""The outermost cells begin this many standard deviations beyond all likely shifts."""

MOST_CELLS = 20_000
MOST_WORK = 20_000_000


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

    `lost` bounds the total variation between each distribution here and the true one, because the least likely shifts
    are left out.
    """

    present: np.ndarray
    instead: np.ndarray
    lost: float


def distribution_of_weighted_sum(steps: Sequence[CanarySteps]) -> LatticePmf | None:
    """The sum over all these steps, each weighted by its information; None without noisy steps."""
    weights = {step: _weight_of_step(step) for step in steps if step.noise_multiplier > 0}
    if not weights:
        return None
    top = max(weights.values())
    levels = {step: round(LEVELS * weight / top) for step, weight in weights.items()}
    common = math.gcd(*levels.values())
    levels = {step: level // common for step, level in levels.items() if level > 0}
    std = math.sqrt(sum(step.count * (level * step.noise_multiplier) ** 2 for step, level in levels.items()))
    counts: dict[tuple[float, int, int, int], int] = {}
    for step, level in levels.items():
        key = (step.rate, level * step.present, level * step.instead, level)
        counts[key] = counts.get(key, 0) + step.count
    present = _distribution_of_sum(
        [_binomial_shift_distribution(count, rate, by) for (rate, by, _, _), count in counts.items()]
    )
    instead = _distribution_of_sum(
        [_binomial_shift_distribution(count, rate, by) for (rate, _, by, _), count in counts.items()]
    )
    cuts = _cuts_covering_shifts(present, instead, std)
    return LatticePmf(
        present=cuts.cell_masses(present, std),
        instead=cuts.cell_masses(instead, std),
        lost=max(present.lost, instead.lost),
    )


def _weight_of_step(step: CanarySteps) -> float:
    return step.rate * (step.present - step.instead) / step.noise_multiplier**2


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShiftDistribution:
    """A distribution on whole numbers from `lowest`; mass below `lost` is left out."""

    lowest: int
    masses: np.ndarray
    lost: float

    @property
    def highest_shift(self) -> int:
        return self.lowest + len(self.masses) - 1


def _binomial_shift_distribution(count: int, rate: float, by: int) -> _ShiftDistribution:
    """The distribution of `by` times a binomial variable."""
    if rate == 1 or by == 0:
        return _ShiftDistribution(lowest=count * by, masses=np.ones(1), lost=0.0)
    reach = 14 * math.sqrt(count * rate * (1 - rate)) + 60
    low, high = max(0, math.floor(count * rate - reach)), min(count, math.ceil(count * rate + reach))
    k = np.arange(low + 1, high + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((count - k + 1) / k) + math.log(rate) - math.log1p(-rate))])
    masses = np.exp(logs - special.logsumexp(logs))
    lost = (float(special.bdtr(low - 1, count, rate)) if low > 0 else 0.0) + float(special.bdtrc(high, count, rate))
    spread = np.zeros((len(masses) - 1) * abs(by) + 1)
    spread[:: abs(by)] = masses if by > 0 else masses[::-1]
    return _ShiftDistribution(lowest=min(by * low, by * high), masses=spread, lost=lost)


def _distribution_of_sum(parts: Sequence[_ShiftDistribution]) -> _ShiftDistribution:
    return _ShiftDistribution(
        lowest=sum(part.lowest for part in parts),
        masses=reduce(np.convolve, [part.masses for part in parts]),
        lost=sum(part.lost for part in parts),
    )


@dataclass(frozen=True, kw_only=True)
class _EquidistantCuts:
    """Equidistant cuts between cells, from `lowest`, at a distance of `stride` / `parts`."""

    lowest: int
    parts: int
    stride: int
    count: int

    def cell_masses(self, shift: _ShiftDistribution, std: float) -> np.ndarray:
        """The mass of each cell for a Gaussian plus this shift; tails are a convolution at every `stride`-th place."""
        fine = np.zeros((len(shift.masses) - 1) * self.parts + 1)
        fine[:: self.parts] = shift.masses[::-1]
        z = (
            np.arange((self.count - 1) * self.stride + len(fine)) / self.parts + self.lowest - shift.highest_shift
        ) / std
        below, above = (
            np.lib.stride_tricks.sliding_window_view(tail, len(fine))[:: self.stride] @ fine
            for tail in (special.ndtr(z), special.ndtr(-z))
        )
        return masses_between_cuts(below, above)


def _cuts_covering_shifts(one: _ShiftDistribution, other: _ShiftDistribution, std: float) -> _EquidistantCuts:
    low = math.floor(min(one.lowest, other.lowest) - REACH * std)
    high = math.ceil(max(one.highest_shift, other.highest_shift) + REACH * std)
    parts = max(1, math.ceil(FINENESS / std))
    length = max(len(one.masses), len(other.masses)) * parts
    most = max(50, min(MOST_CELLS, MOST_WORK // length))
    stride = max(1, math.floor(parts * std / FINENESS), math.ceil((high - low) * parts / most))
    return _EquidistantCuts(lowest=low, parts=parts, stride=stride, count=math.ceil((high - low) * parts / stride) + 1)


def masses_between_cuts(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The masses of the n + 1 cells between n cuts, as differences of the smaller tail, which keep their digits."""
    inner = np.where(below[1:] < above[:-1], np.diff(below), -np.diff(above))
    return np.concatenate([below[:1], inner, above[-1:]])
