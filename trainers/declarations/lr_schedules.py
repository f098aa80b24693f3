"""Learning rate schedules: public functions of the step, which cost no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dpsweep.accounting.codec import fraction, positive, positive_int


class LearningRate(Protocol):
    """A schedule: a factor on the method's learning rate."""

    def factor(self, step: int, steps: int) -> float:
        """The factor at `step` (from 0) of a run of `steps`."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same learning rate at every step."""

    def factor(self, step: int, steps: int) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """The learning rate times `factors[i]` after the fraction `milestones[i]` of the run.

    >>> schedule = StepDecay(milestones=(0.5, 0.75), factors=(0.1, 0.01))
    >>> [schedule.factor(step, 4) for step in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    """

    milestones: Sequence[float]
    factors: Sequence[float]

    def __post_init__(self) -> None:
        for name, check in (("milestones", fraction), ("factors", positive)):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(f"Expected {name}={values!r} to be a list of numbers.")
            for position, value in enumerate(values):
                check(f"{name}[{position}]", value)
            object.__setattr__(self, name, tuple(float(value) for value in values))
        if len(self.milestones) != len(self.factors):
            raise ValueError(f"Expected factors={list(self.factors)} to be one for each of milestones.")
        if any(late <= early for early, late in zip(self.milestones, self.milestones[1:], strict=False)):
            raise ValueError(f"Expected milestones={list(self.milestones)} to increase.")

    def factor(self, step: int, steps: int) -> float:
        """The factor of the last milestone reached."""
        current = 1.0
        for milestone, factor in zip(self.milestones, self.factors, strict=True):
            if step >= round(milestone * steps):
                current = factor
        return current


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """The factor falls along half a cosine from 1 to `final`.

    Source: Loshchilov & Hutter 2017, Equation 5, without restarts.

    >>> [round(Cosine(final=0.2).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.883, 0.6, 0.317]
    """

    final: float

    def __post_init__(self) -> None:
        fraction("final", self.final)

    def factor(self, step: int, steps: int) -> float:
        """The factor on the cosine; the step after the last would have the factor `final`."""
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * step / steps)) / 2


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """The factor rises linearly from `lowest` to `highest` and falls back, `cycles` times.

    Source: Smith 2017, the triangular policy.

    >>> [Cyclic(lowest=0.5, highest=1.0, cycles=2).factor(step, 8) for step in range(8)]
    [0.5, 0.75, 1.0, 0.75, 0.5, 0.75, 1.0, 0.75]
    """

    lowest: float
    highest: float
    cycles: int

    def __post_init__(self) -> None:
        positive("lowest", self.lowest)
        positive("highest", self.highest)
        positive_int("cycles", self.cycles)
        if not self.lowest < self.highest:
            raise ValueError(f"Expected lowest={self.lowest} < highest={self.highest}.")

    def factor(self, step: int, steps: int) -> float:
        """The factor on the triangle wave at this step."""
        place = self.cycles * step % steps / steps
        return self.lowest + (self.highest - self.lowest) * (1 - abs(2 * place - 1))


@dataclass(frozen=True, kw_only=True)
class PowerDecay:
    """The factor at step t, counted from 1, is t to the power of minus `exponent`.

    Optimization theory has 1/2 for convex losses, with trainer.lr = R / G for a ball of radius R and gradients of norm
    up to G, and 1 for strongly convex ones, with trainer.lr = 1 / s for a strong convexity of s.
    Source: Shamir & Zhang 2013 (Stochastic Gradient Descent for Non-smooth Optimization).

    >>> [round(PowerDecay(exponent=0.5).factor(step, 4), 3) for step in range(4)]
    [1.0, 0.707, 0.577, 0.5]
    """

    exponent: float

    def __post_init__(self) -> None:
        positive("exponent", self.exponent)

    def factor(self, step: int, steps: int) -> float:
        """The power of the step's number."""
        return float((step + 1) ** -self.exponent)


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The factor rises linearly over the fraction `share` of the run and then follows the schedule `then`.

    Source: Goyal et al. 2017, Section 2.2 (gradual warm-up).

    >>> [WarmUp(share=0.5, then=Constant()).factor(step, 6) for step in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """

    share: float
    then: LearningRate

    def __post_init__(self) -> None:
        fraction("share", self.share)
        if not callable(getattr(self.then, "factor", None)):
            raise TypeError(f"Expected then={self.then!r} to be a schedule.")

    def factor(self, step: int, steps: int) -> float:
        """A growing part of the other schedule's first factor, then that schedule over the remaining steps."""
        warm_up = min(round(self.share * steps), steps - 1)
        if step < warm_up:
            return (step + 1) / (warm_up + 1) * self.then.factor(0, steps - warm_up)
        return self.then.factor(step - warm_up, steps - warm_up)
