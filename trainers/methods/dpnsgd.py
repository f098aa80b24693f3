"""DP-NSGD: normalized gradients, plain steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.numbers import positive
from dpsweep.trainers.methods.transforms import Normalize
from dpsweep.trainers.methods.updates import Sgd


@dataclass(frozen=True, kw_only=True)
class DpNsgd:
    """Steps of `lr` along the noisy mean of gradients normalized by 1 / (regularizer + ||g||).

    Automatic clipping, AUTO-S, is the same method with a regularizer of 0.01, which it calls gamma and leaves untuned.
    Source: Yang, Zhang, Chen, Liu 2022, Algorithm 1; Bu, Wang, Zha, Karypis 2023 (AUTO-S).
    """

    label: ClassVar[str] = "DP-NSGD"
    lr: float
    regularizer: float

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("regularizer", self.regularizer)

    @property
    def transform(self) -> Normalize:
        """Normalization with `regularizer`."""
        return Normalize(regularizer=self.regularizer)

    @property
    def update(self) -> Sgd:
        """Plain steps."""
        return Sgd()
