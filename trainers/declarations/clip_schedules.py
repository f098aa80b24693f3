"""How the bound on a gradient changes over a run: a public function of the step, which may change what steps cost.

A step costs what its noise is, relative to its bound. So there are two ways to lower the bound C_t of step t, between
which `noise` chooses:

* absolute: the noise keeps the standard deviation sigma * C that it has at first. Relative to C_t it grows, so that
  later steps are cheaper, each at its own noise multiplier sigma * C / C_t: the run is a heterogeneous composition.
* multiplier: the noise shrinks along, to sigma * C_t, and all steps cost the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from dpsweep.accounting.numbers import fraction, number, positive_int


class Noise(StrEnum):
    """What of the noise stays as it is while a bound changes."""

    ABSOLUTE = "absolute"
    MULTIPLIER = "multiplier"


class BoundSchedule(Hashable, Protocol):
    """A schedule, as a factor in (0, 1] on the bound that the method declares; it never looks at the data."""

    @property
    def noise(self) -> Noise:
        """What stays: the noise's standard deviation, or its multiple of the bound."""
        ...

    def factor(self, step: int, steps: int) -> float:
        """The factor at `step` (from 0) of a run of `steps`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same bound throughout."""

    @property
    def noise(self) -> Noise:
        """Both stay."""
        return Noise.MULTIPLIER

    def factor(self, step: int, steps: int) -> float:
        """Always 1."""
        return 1.0


CONSTANT = Constant()
"""Where nobody asks for another."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """C_t = C / min(1 / least, 1 + (1 / least - 1) t / T): the divisor rises in a straight line, the bound to `least`.

    `over` is the T after which the bound stays; None is the whole run. With a `least` of 1 the bound never changes.
    Source: Yu, Zhang, Chen 2019, Equation 6, whose least bound is half of the first.

    >>> [round(Linear(least=0.5).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.8, 0.667, 0.571]
    >>> [round(Linear(least=0.5, over=2).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.667, 0.5, 0.5]
    """

    least: float
    over: int | None = None
    noise: Noise = Noise.ABSOLUTE

    def __post_init__(self) -> None:
        _share(self.least)
        if self.over is not None:
            positive_int("over", self.over)
        object.__setattr__(self, "noise", _noise(self.noise))

    def factor(self, step: int, steps: int) -> float:
        """One over the divisor that is reached."""
        reached = min(1.0, step / (self.over or steps))
        return 1 / (1 + (1 / self.least - 1) * reached)


@dataclass(frozen=True, kw_only=True)
class Geometric:
    """C_t = C max(least, (1 - rate)^t): the bound loses the same share of itself at every step, down to `least` of it.

    Source: Yu, Zhang, Chen 2019, Appendix B, whose rate is 1/1000 and least bound half of the first.

    >>> [Geometric(rate=0.25, least=0.5).factor(step, 4) for step in range(4)]
    [1.0, 0.75, 0.5625, 0.5]
    """

    rate: float
    least: float
    noise: Noise = Noise.ABSOLUTE

    def __post_init__(self) -> None:
        fraction("rate", self.rate)
        _share(self.least)
        object.__setattr__(self, "noise", _noise(self.noise))

    def factor(self, step: int, steps: int) -> float:
        """What so many steps leave, or the least."""
        left = round((1 - self.rate) ** step, 12)  # powers differ in their last digit from machine to machine
        return max(float(self.least), left)


def noise_factor(bounds: BoundSchedule, step: int, steps: int) -> float:
    """The factor on the run's noise multiplier at a step: what the charge declares, and what the loop does."""
    return 1.0 if bounds.noise is Noise.MULTIPLIER else 1 / bounds.factor(step, steps)


@lru_cache(maxsize=256)
def noise_factors(bounds: BoundSchedule, steps: int) -> Mapping[float, int]:
    """How many steps of a run have each factor on its noise multiplier."""
    if bounds.noise is Noise.MULTIPLIER:
        return {1.0: steps}
    return Counter(noise_factor(bounds, step, steps) for step in range(steps))


def _share(least: float) -> None:
    if not 0 < number("least", least) <= 1:
        raise ValueError(f"Expected 0 < least={least} <= 1.")


def _noise(value: object) -> Noise:
    if value not in list(Noise):
        raise ValueError(f"Expected noise={value} to be one of {', '.join(Noise)}.")
    return Noise(str(value))
