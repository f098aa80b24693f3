"""The interface of every training method, and a method composed of any gradient transform and any update."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.codec import non_negative, positive
from dpsweep.trainers.declarations.lr_schedules import LearningRate
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update


class Trainer:
    """A method with its hyperparameters: a frozen value whose fields are the axes that a sweep may vary.

    It combines a gradient transform with an update rule; privacy depends only on the transform's bound. Every method
    inherits from it.
    """

    label: str
    """The method's name in messages."""
    lr: float
    """The learning rate before its schedule."""
    transform: GradientTransform
    """The transform that bounds each example's gradient."""
    update: Update[Any]
    """The rule that turns the noisy mean of bounded gradients into a step."""
    noiseless: bool = False
    """Whether it never adds noise: it is then only for records that are declared public."""
    radius: float = math.inf
    """The radius of the ball around 0 onto which all trainable weights, as one vector, are projected after a step."""
    weight_decay: float = 0.0
    """The share of each weight, times the step's learning rate, that is subtracted from it in a step."""

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError, in one sentence, for a run with this number of steps and schedule that makes no sense."""

    def check_settings(self, config: Mapping[str, Any]) -> None:
        """Raises ValueError, in one sentence, for a trial's configuration with a setting that means nothing to it."""


@dataclass(frozen=True, kw_only=True)
class Method(Trainer):
    """Bounds gradients by `transform` and steps by `lr` in the direction that `update` makes of their noisy mean.

    *Guarantee*: privacy depends only on the transform's bound; the update is post-processing. `noiseless` methods add
    no noise, whatever noise the configuration has, and are refused unless the records are declared public. Unbounded
    gradients require `noiseless`: no noise would be enough.

    `weight_decay` is decoupled from the update, as in AdamW; for plain steps it is the gradient of the regularizer
    weight_decay / 2 times the squared norm of the weights.
    Source: Loshchilov & Hutter 2019 (Decoupled Weight Decay Regularization).
    """

    lr: float
    transform: GradientTransform
    update: Update[Any]
    noiseless: bool = False
    label: str = "a method of your own"
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        non_negative("weight_decay", self.weight_decay)
        if not callable(getattr(self.transform, "factors", None)):
            raise TypeError(f"Expected transform={self.transform!r} to be a gradient transform, named by _target_.")
        if not isinstance(self.update, Update):
            raise TypeError(
                f"Expected update={self.update!r} to be an update, named by _target_: a class that inherits from "
                f"{Update.__module__}.Update."
            )
        if not isinstance(self.noiseless, bool):
            raise TypeError(f"Expected noiseless={self.noiseless!r} to be true or false.")
        if math.isinf(self.transform.norm_bound) and not self.noiseless:
            raise ValueError("Expected noiseless=False to be True with gradients that nothing bounds.")
        if self.weight_decay and self.update.moves_weights_alone:
            raise ValueError(
                f"Expected weight_decay={self.weight_decay} to be 0 with update={self.update!r}, which compares steps."
            )
        self.update.check_lr(self.lr)

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError if the update does not accept a run with this number of steps and schedule."""
        self.update.check(steps, schedule)
