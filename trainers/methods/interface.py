"""The interface of every training method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dpsweep.trainers.declarations.lr_schedules import LearningRate
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update


class Trainer(Protocol):
    """A method with its hyperparameters: a frozen value whose fields are the axes that a sweep may vary.

    It combines a gradient transform with an update rule; privacy depends only on the transform's bound.
    """

    @property
    def label(self) -> str:
        """The method's name in messages."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate before its schedule."""
        ...

    @property
    def transform(self) -> GradientTransform:
        """The transform that bounds each example's gradient."""
        ...

    @property
    def update(self) -> Update[Any]:
        """The rule that turns the noisy mean of bounded gradients into a step."""
        ...


@runtime_checkable
class Particular(Protocol):
    """The additional interface of a method or an update that does not accept every run."""

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError, in one sentence, for a run with this number of steps and schedule that makes no sense."""
        ...


@runtime_checkable
class Restrictive(Protocol):
    """The additional interface of a method to which some other settings of a trial mean nothing."""

    def check_settings(self, config: Mapping[str, Any]) -> None:
        """Raises ValueError, in one sentence, for a trial's configuration with such a setting."""
        ...


def check_settings(trainer: Trainer, config: Mapping[str, Any]) -> None:
    """Raises ValueError if the method restricts the other settings and does not accept these."""
    if isinstance(trainer, Restrictive):
        trainer.check_settings(config)


def check_run(trainer: Trainer, steps: int, schedule: LearningRate) -> None:
    """Raises ValueError if the method restricts its runs and does not accept this one."""
    if isinstance(trainer, Particular):
        trainer.check(steps, schedule)


def is_noiseless(trainer: Trainer) -> bool:
    """Whether a method never adds noise (its `noiseless`): it is only for records that are declared public."""
    return bool(getattr(trainer, "noiseless", False))
