"""Adam: gradients as they are, Adam's steps, no noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Unbounded
from dpsweep.trainers.methods.updates import Adam


@dataclass(frozen=True, kw_only=True)
class PlainAdam:
    """Adam's steps of `lr` from the mean gradient of a batch.

    For records declared public alone: it protects nobody.
    Source: Kingma & Ba 2015, Algorithm 1.
    """

    label: ClassVar[str] = "Adam"
    noiseless: ClassVar[bool] = True
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)

    @property
    def transform(self) -> Unbounded:
        """Gradients as they are."""
        return Unbounded()

    @property
    def update(self) -> Adam:
        """Adam's steps."""
        return Adam(beta1=self.beta1, beta2=self.beta2, eps=self.eps)
