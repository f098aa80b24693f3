"""DP-Momentum: clipped gradients, steps along a velocity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Momentum


@dataclass(frozen=True, kw_only=True)
class DpMomentum:
    """Steps of `lr` along the velocity that noisy means of gradients clipped to `clip_norm` build up.

    A velocity's noise has up to 1 / (1 - momentum^2) times the variance of a gradient's: Yu et al. take a momentum of
    0.6. Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (DPMomentum); Yu, Zhang, Chen 2019, Equation 5.
    """

    label: ClassVar[str] = "DP-Momentum"
    lr: float
    clip_norm: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        Momentum(momentum=self.momentum)

    @property
    def transform(self) -> Clip:
        """Clipping to `clip_norm`."""
        return Clip(clip_norm=self.clip_norm)

    @property
    def update(self) -> Momentum:
        """Steps along the velocity."""
        return Momentum(momentum=self.momentum)
