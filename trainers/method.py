"""The interface of every training method."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from trainers.transforms import GradientTransform
from trainers.updates import Update


class Trainer(Protocol):
    """A method with its hyperparameters: a frozen value whose fields are the axes that a sweep may vary.

    It is a gradient transform crossed with an update rule; only the transform's bound matters for privacy.
    """

    label: ClassVar[str]

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


def is_noiseless(trainer: Trainer) -> bool:
    """Whether a method never adds noise, as its `noiseless` says: it is for records that were declared public."""
    return bool(getattr(trainer, "noiseless", False))
