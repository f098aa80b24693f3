"""DP-SGD: clipped gradients, plain steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Sgd


@dataclass(frozen=True, kw_only=True)
class DpSgd:
    """Steps of `lr` along the noisy mean of gradients clipped to `clip_norm`.

    Source: Abadi et al. 2016, Algorithm 1.
    """

    label: ClassVar[str] = "DP-SGD"
    lr: float
    clip_norm: float

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)

    @property
    def transform(self) -> Clip:
        """Clipping to `clip_norm`."""
        return Clip(clip_norm=self.clip_norm)

    @property
    def update(self) -> Sgd:
        """Plain steps."""
        return Sgd()
