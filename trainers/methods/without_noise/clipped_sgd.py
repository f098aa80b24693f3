"""Clipped SGD: DP-SGD without its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsweep.trainers.methods.dpsgd import DpSgd


@dataclass(frozen=True, kw_only=True)
class ClippedSgd(DpSgd):
    """Steps of `lr` along the mean of gradients clipped to `clip_norm`, one by one.

    For records declared public alone: it protects nobody.
    Source: Yang, Zhang, Chen, Liu 2022, Section 3.4.
    """

    label: ClassVar[str] = "clipped SGD"
    noiseless: ClassVar[bool] = True
