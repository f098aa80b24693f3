"""Schedules of the gradient bound over a run: public functions of the step, which may change the cost of steps.

The cost of a step depends on the ratio of its noise to its bound. There are two ways to lower the bound C_t of step t,
and `noise` chooses between them:

* absolute: the noise keeps its first standard deviation sigma * C. It grows relative to C_t, so later steps are
  cheaper, each with its own noise multiplier sigma * C / C_t: the run is a heterogeneous composition.
* multiplier: the noise shrinks with the bound, to sigma * C_t, and all steps cost the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from dpsweep.accounting.codec import fraction, positive_int, require_finite_number


class Noise(StrEnum):
    """The property of the noise that stays constant while the bound changes."""

    ABSOLUTE = "absolute"
    MULTIPLIER = "multiplier"


class BoundSchedule(Hashable, Protocol):
    """A schedule: a factor in (0, 1] on the bound that the method declares, independent of the data."""

    @property
    def noise(self) -> Noise:
        """The constant property: the noise's standard deviation, or its ratio to the bound."""

    def factor(self, step: int, steps: int) -> float:
        """The factor at `step` (from 0) of a run of `steps`."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same bound at every step."""

    @property
    def noise(self) -> Noise:
        """The multiplier; the standard deviation is constant too."""
        return Noise.MULTIPLIER

    def factor(self, step: int, steps: int) -> float:
        """Always 1."""
        return 1.0


CONSTANT = Constant()
"""The default schedule."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """C_t = C / min(1 / least, 1 + (1 / least - 1) t / T): the divisor rises linearly until C_t = `least` * C.

    `over` is T, after which the bound is constant; None means the whole run. With `least` 1 the bound never changes.
    Source: Yu, Zhang, Chen 2019, Equation 6, where the last bound is half of the first.

    >>> [round(Linear(least=0.5).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.8, 0.667, 0.571]
    >>> [round(Linear(least=0.5, over=2).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.667, 0.5, 0.5]
    """

    least: float
    over: int | None = None
    noise: Noise = Noise.ABSOLUTE

    def __post_init__(self) -> None:
        _check_least_factor_range(self.least)
        if self.over is not None:
            positive_int("over", self.over)
        object.__setattr__(self, "noise", _noise_enum_from_setting(self.noise))

    def factor(self, step: int, steps: int) -> float:
        """The inverse of the divisor at this step."""
        progress = min(1.0, step / (self.over or steps))
        return 1 / (1 + (1 / self.least - 1) * progress)


@dataclass(frozen=True, kw_only=True)
class Geometric:
    """C_t = C max(least, (1 - rate)^t): every step multiplies the bound by 1 - `rate`, down to `least` * C.

    Source: Yu, Zhang, Chen 2019, Appendix B, where the rate is 1/1000 and the last bound is half of the first.

    >>> [Geometric(rate=0.25, least=0.5).factor(step, 4) for step in range(4)]
    [1.0, 0.75, 0.5625, 0.5]
    """

    rate: float
    least: float
    noise: Noise = Noise.ABSOLUTE

    def __post_init__(self) -> None:
        fraction("rate", self.rate)
        _check_least_factor_range(self.least)
        object.__setattr__(self, "noise", _noise_enum_from_setting(self.noise))

    def factor(self, step: int, steps: int) -> float:
        """The power (1 - rate)^step, at least `least`."""
        power = round((1 - self.rate) ** step, 12)  # the last digit of a power depends on the machine
        return max(float(self.least), power)


def noise_multiplier_factor_at_step(bounds: BoundSchedule, step: int, steps: int) -> float:
    """The factor on the run's noise multiplier at a step; the charge and the training loop both use it."""
    return 1.0 if bounds.noise is Noise.MULTIPLIER else 1 / bounds.factor(step, steps)


@lru_cache(maxsize=256)
def step_counts_by_noise_factor(bounds: BoundSchedule, steps: int) -> Mapping[float, int]:
    """The number of steps of a run at each factor on the noise multiplier."""
    if bounds.noise is Noise.MULTIPLIER:
        return {1.0: steps}
    return Counter(noise_multiplier_factor_at_step(bounds, step, steps) for step in range(steps))


def _check_least_factor_range(least: float) -> None:
    if not 1e-6 <= require_finite_number("least", least) <= 1:
        raise ValueError(f"Expected 1e-06 <= least={least} <= 1.")


def _noise_enum_from_setting(value: object) -> Noise:
    if value not in list(Noise):
        raise ValueError(f"Expected noise={value} to be one of {', '.join(Noise)}.")
    return Noise(str(value))
