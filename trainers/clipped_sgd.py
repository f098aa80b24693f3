"""Clipped SGD: DP-SGD without its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainers.transforms import Clip
from trainers.updates import Sgd
from trainers.validation import positive


@dataclass(frozen=True, kw_only=True)
class ClippedSgd:
    """Steps of `lr` along the mean of gradients clipped to `clip_norm`, one by one.

    For records declared public alone: it protects nobody.
    Source: Yang, Zhang, Chen, Liu 2022, Section 3.4.
    """

    label: ClassVar[str] = "clipped SGD"
    noiseless: ClassVar[bool] = True
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
