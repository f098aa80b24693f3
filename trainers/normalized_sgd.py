"""Normalized SGD: DP-NSGD without its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainers.transforms import Normalize
from trainers.updates import Sgd
from trainers.validation import positive


@dataclass(frozen=True, kw_only=True)
class NormalizedSgd:
    """Steps of `lr` along the mean of gradients normalized by 1 / (regularizer + ||g||), one by one.

    For records declared public alone: it protects nobody.
    Source: Yang, Zhang, Chen, Liu 2022, Section 3.4.
    """

    label: ClassVar[str] = "normalized SGD"
    noiseless: ClassVar[bool] = True
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
