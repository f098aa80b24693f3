"""SGD: gradients as they are, plain steps, no noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Unbounded
from dpsweep.trainers.methods.updates import Sgd


@dataclass(frozen=True, kw_only=True)
class PlainSgd:
    """Steps of `lr` along the mean gradient of a batch.

    For records declared public alone: it protects nobody.
    Source: Robbins and Monro 1951.
    """

    label: ClassVar[str] = "SGD"
    noiseless: ClassVar[bool] = True
    lr: float

    def __post_init__(self) -> None:
        positive("lr", self.lr)

    @property
    def transform(self) -> Unbounded:
        """Gradients as they are."""
        return Unbounded()

    @property
    def update(self) -> Sgd:
        """Plain steps."""
        return Sgd()
