"""DP-Adam: clipped gradients, Adam's steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Adam


@dataclass(frozen=True, kw_only=True)
class DpAdam:
    """Adam's steps of `lr` from the noisy mean of gradients clipped to `clip_norm`.

    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (DPAdam); Kingma & Ba 2015, Algorithm 1.
    """

    label: ClassVar[str] = "DP-Adam"
    lr: float
    clip_norm: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)

    @property
    def transform(self) -> Clip:
        """Clipping to `clip_norm`."""
        return Clip(clip_norm=self.clip_norm)

    @property
    def update(self) -> Adam:
        """Adam's steps."""
        return Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)
