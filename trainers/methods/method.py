"""A training method composed of any gradient transform and any update."""

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
    """Bounds gradients by `transform` and steps by `lr` in the direction that `update` makes of their noisy mean.

    *Guarantee*: privacy depends only on the transform's bound; the update is post-processing. `noiseless` methods add
    no noise, whatever noise the configuration has, and are refused unless the records are declared public. Unbounded
    gradients require `noiseless`: no noise would be enough.
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
        """Raises ValueError if the update does not accept a run with this number of steps and schedule."""
        if isinstance(self.update, Particular):
            self.update.check(steps, schedule)
