"""DP-AdamWOSM: clipped gradients, Adam's steps without second moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import AdamWithoutSecondMoments


@dataclass(frozen=True, kw_only=True)
class DpAdamWosm:
    """DP-Adam at its converged step size, lr / (noise_multiplier * clip_norm / batch_size + eps).

    It needs noise: the less there is, the longer the steps, and without any they are lr / eps.
    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022, Algorithm 2 and Theorem 7.1 (DPAdamWOSM).
    """

    label: ClassVar[str] = "DP-AdamWOSM"
    lr: float
    clip_norm: float
    beta1: float = 0.9
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        AdamWithoutSecondMoments(beta1=self.beta1, eps=self.eps)

    @property
    def transform(self) -> Clip:
        """Clipping to `clip_norm`."""
        return Clip(clip_norm=self.clip_norm)

    @property
    def update(self) -> AdamWithoutSecondMoments:
        """Adam's steps with the noise in the second moments' place."""
        return AdamWithoutSecondMoments(beta1=self.beta1, eps=self.eps)
