"""Privacy profiles of compositions: the losses of each mechanism on a grid, in both directions, and convolved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsweep.accounting.accountants.interface import GaussianSteps
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.types import TruncatedSubsampledGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.loss_grid import Losses
from dpsweep.accounting.profiles.privacy_loss import Direction, directions, loss_probabilities, truncated_directions
from dpsweep.accounting.profiles.privacy_profiles import SMALLEST_DELTA
from dpsweep.accounting.profiles.tilted_transform import ComposedLosses

CACHE_SIZE = 8
"""The number of cached distributions; each may take about 100 MB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EqualMechanisms:
    """Equal mechanisms: the losses of one of them in each direction, and their number."""

    ahead: Losses
    behind: Losses
    count: int

    @classmethod
    def of(cls, interval: float, ahead: Direction, behind: Direction, count: int) -> EqualMechanisms:
        """The losses from both hockey-stick curves on a grid."""
        forth = _on_grid(ahead, interval)
        if behind is ahead:
            both = _losses_from_curves(interval, forth, forth)
            return cls(ahead=both, behind=both, count=count)
        back = _on_grid(behind, interval)
        return cls(
            ahead=_losses_from_curves(interval, forth, back),
            behind=_losses_from_curves(interval, back, forth),
            count=count,
        )


@dataclass(frozen=True, eq=False)
class ComposedProfile:
    """The profile of a composition: the larger delta of both directions; a symmetric pair has only one."""

    directions: tuple[ComposedLosses, ...]

    @classmethod
    def of(cls, parts: Sequence[EqualMechanisms]) -> ComposedProfile:
        """The profile of all these mechanisms together."""
        ahead = ComposedLosses([(part.ahead, part.count) for part in parts])
        if all(part.ahead is part.behind for part in parts):
            return cls((ahead,))
        return cls((ahead, ComposedLosses([(part.behind, part.count) for part in parts])))

    @property
    def interval(self) -> float:
        """The grid step of the losses."""
        return self.directions[0].interval

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Delta [n] at each of these epsilons [n]."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """Epsilon at this delta; raises `UnsupportedEvent` for a delta that rounding could exceed."""
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"PLD is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        return max(direction.epsilon(delta) for direction in self.directions)

    def lower(self, delta: float) -> float:
        """An epsilon at which the discretised losses have at least this delta; 0 if rounding leaves it open."""
        return max(direction.lower(delta) for direction in self.directions)


@lru_cache(maxsize=CACHE_SIZE)
def steps_profile(steps: tuple[GaussianSteps, ...], interval: float, adjacency: Adjacency) -> ComposedProfile:
    """The profile of a composition of Gaussian steps; cached, because rules price the same run many times."""
    return ComposedProfile.of([steps_together(step, interval, adjacency) for step in steps])


@lru_cache(maxsize=CACHE_SIZE)
def steps_together(step: GaussianSteps, interval: float, adjacency: Adjacency) -> EqualMechanisms:
    """All these steps; unsampled Gaussian steps are exactly one step with less noise."""
    rate, noise = step.sample_rate, step.noise_multiplier
    if rate == 1:
        return EqualMechanisms.of(interval, *directions(1.0, noise / math.sqrt(step.count), adjacency), 1)
    return EqualMechanisms.of(interval, *directions(rate, noise, adjacency), step.count)


def _on_grid(direction: Direction, interval: float) -> np.ndarray:
    return direction.curve(interval * np.arange(max(1, math.ceil(direction.reach / interval)) + 1))


def _losses_from_curves(interval: float, curve: np.ndarray, other: np.ndarray) -> Losses:
    return Losses(
        lowest=1 - len(other),
        interval=interval,
        probabilities=loss_probabilities(curve, other, interval),
        infinite=float(curve[-1]),
    )


@lru_cache(maxsize=16)
def truncated_steps(
    leaf: TruncatedSubsampledGaussianDpEvent, count: int, interval: float, adjacency: Adjacency
) -> EqualMechanisms:
    """Poisson-sampled steps whose batches are cut to a largest size."""
    both = truncated_directions(
        leaf.sampling_probability,
        leaf.noise_multiplier,
        adjacency,
        records=leaf.dataset_size,
        largest_batch=leaf.truncated_batch_size,
    )
    return EqualMechanisms.of(interval, *both, count)


def forget_distributions() -> None:
    """Frees the distributions that are kept for further prices of the same steps."""
    for kept in (steps_profile, steps_together, truncated_steps):
        kept.cache_clear()
