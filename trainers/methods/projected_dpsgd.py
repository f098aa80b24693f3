"""Projected DP-SGD: clipped gradients, SGD steps, weights projected onto a ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.accounting.references import BASSILY_2014, Work
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.methods.updates import Sgd


@dataclass(frozen=True, kw_only=True)
class ProjectedDpSgd:
    """DP-SGD that projects the weights onto the ball of `radius` around 0 after every step.

    Source: Bassily, Smith, Thakurta 2014, Algorithm 1, which projects onto any convex set.
    """

    works: ClassVar[tuple[Work, ...]] = (BASSILY_2014,)

    label: ClassVar[str] = "projected DP-SGD"
    lr: float
    clip_norm: float
    radius: float

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("clip_norm", self.clip_norm)
        positive("radius", self.radius)

    @property
    def transform(self) -> Clip:
        """Clipping to `clip_norm`."""
        return Clip(clip_norm=self.clip_norm)

    @property
    def update(self) -> Sgd:
        """SGD; the training loop performs the projection."""
        return Sgd()
