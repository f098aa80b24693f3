"""Normalized SGD: DP-NSGD without its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.trainers.methods.dpnsgd import DpNsgd


@dataclass(frozen=True, kw_only=True)
class NormalizedSgd(DpNsgd):
    """Steps of `lr` along the mean of gradients normalized by 1 / (regularizer + ||g||), one by one.

    For records declared public alone: it protects nobody.
    Source: Yang, Zhang, Chen, Liu 2022, Section 3.4.
    """

    label: ClassVar[str] = "normalized SGD"
    noiseless: ClassVar[bool] = True
