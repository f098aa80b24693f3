"""A network with one hidden layer."""

from __future__ import annotations

from torch import nn

from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.models.mlp import mlp


def one_hidden(shape: tuple[int, ...], classes: int, *, width: int = 100, activation: str = "relu") -> nn.Module:
    """Flattened record, `width` units, classes.

    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (TLNN).
    """
    positive_int("width", width)
    return mlp(shape, classes, widths=[width], activation=activation)
