"""How the learning rate changes over a run: a public function of the step, free of charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainers.validation import fraction, positive


class LearningRate(Protocol):
    """A schedule, as a factor on the method's learning rate."""

    def factor(self, step: int, steps: int) -> float:
        """The factor at `step` (from 0) of a run of `steps`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same learning rate throughout."""

    def factor(self, step: int, steps: int) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class StepDecay:
    """The learning rate times `factors[i]` from the fraction `milestones[i]` of the run on.

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
