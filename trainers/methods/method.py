"""The method that any gradient transform and any update make together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.declarations.lr_schedules import LearningRate
from dpsweep.trainers.methods.interface import Particular
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.methods.updates import Update


@dataclass(frozen=True, kw_only=True)
class Method:
    """Steps of `lr` that `update` makes of the noisy mean of gradients that `transform` bounds.

    *Guarantee*: privacy rests on the transform's bound alone; what the update does is post-processing. `noiseless`
    methods add no noise, whatever is asked for, and are refused unless the records are declared public. Gradients that
    nothing bounds need `noiseless`: no noise would be enough.
    """

    lr: float
    transform: GradientTransform
    update: Update[Any]
    noiseless: bool = False
    label: str = "a method of your own"

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        if not callable(getattr(self.transform, "factors", None)):
            raise TypeError(f"Expected transform={self.transform!r} to be a gradient transform, named by _target_.")
        if not callable(getattr(self.update, "direction", None)):
            raise TypeError(f"Expected update={self.update!r} to be an update, named by _target_.")
        if not isinstance(self.noiseless, bool):
            raise TypeError(f"Expected noiseless={self.noiseless!r} to be true or false.")
        if math.isinf(self.transform.bound) and not self.noiseless:
            raise ValueError("Expected noiseless=False to be True with gradients that nothing bounds.")
        if (update_lr := getattr(self.update, "lr", self.lr)) != self.lr:
            raise ValueError(f"Expected update.lr={update_lr} to be lr={self.lr}.")

    def check(self, steps: int, schedule: LearningRate) -> None:
        """Raises ValueError where the update does not suit a run of so many steps on this schedule."""
        if isinstance(self.update, Particular):
            self.update.check(steps, schedule)
