"""The interface of every training method."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from dpsweep.trainers.declarations.lr_schedules import LearningRate
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update


class Trainer(Protocol):
    """A method with its hyperparameters: a frozen value whose fields are the axes that a sweep may vary.

    It is a gradient transform crossed with an update rule; only the transform's bound matters for privacy.
    """

    @property
    def label(self) -> str:
        """How messages call it."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate before its schedule."""
        ...

    @property
    def transform(self) -> GradientTransform:
        """How each example's gradient is bounded."""
        ...

    @property
    def update(self) -> Update[Any]:
        """How the noisy mean of bounded gradients becomes a step."""
        ...


@runtime_checkable
class Particular(Protocol):
    """What a method, or an update, that does not take any run is besides."""

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError, in one sentence, where a run of so many steps on this schedule makes no sense."""
        ...


def check_run(trainer: Trainer, steps: int, schedule: LearningRate) -> None:
    """Raises ValueError where the method is particular about its runs and this one does not suit it."""
    if isinstance(trainer, Particular):
        trainer.check(steps, schedule)


def is_noiseless(trainer: Trainer) -> bool:
    """Whether a method never adds noise, as its `noiseless` says: it is for records that were declared public."""
    return bool(getattr(trainer, "noiseless", False))
