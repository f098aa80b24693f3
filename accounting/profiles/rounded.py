"""The privacy profile of a mechanism whose noise is rounded, from that under exact noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsweep.accounting.profiles.privacy_profiles import Profile
from dpsweep.accounting.profiles.selection_envelope import Curve, curves_by_direction
from dpsweep.accounting.rounded_noise_price import (
    FAR,
    NEAR,
    TAIL,
    epsilon_with_rounding,
    log_ratio_of_numbers,
)


def rounded_profile(exact: Profile, numbers: int) -> Profile:
    """The profile with so many rounded numbers; itself without any."""
    return Rounded(inner=exact, numbers=numbers) if numbers else exact


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """A mechanism with so many rounded noisy numbers; `inner` is the profile under exact noise.

    *Guarantee*: an upper bound, for both directions; `accounting/rounded_noise_price.py` has the formula.
    """

    inner: Profile
    numbers: int

    @cached_property
    def directions(self) -> tuple[_RoundedDirection, ...]:
        """Both directions; one if the mechanism has one."""
        inner: Any = self.inner
        return tuple(_RoundedDirection(curve, self.numbers) for curve in curves_by_direction(inner))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The larger of both directions."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """That of exact noise at the delta that leaves room; infinity if none is left."""
        return epsilon_with_rounding(self.numbers, delta, self.inner.epsilon)


@dataclass(frozen=True, eq=False)
class _RoundedDirection:
    curve: Curve
    numbers: int

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The divergence at epsilons of any sign."""
        near, far, every = (log_ratio_of_numbers(self.numbers, reach, TAIL) for reach in (NEAR, FAR, np.inf))
        x: Any = near
        if len(epsilons) and epsilons.max() > NEAR:
            x = np.where(epsilons <= NEAR, near, np.where(epsilons <= FAR, far, every))
        return np.asarray(np.minimum(1.0, np.exp(x) * self.curve(epsilons - 2 * x) + 2 * TAIL))
