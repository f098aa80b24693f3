"""A network with one hidden layer."""

from __future__ import annotations

import math

from torch import nn

from trainers.validation import positive_int


def one_hidden(shape: tuple[int, ...], classes: int, *, width: int = 100) -> nn.Module:
    """Flattened record, `width` rectified units, classes.

    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (TLNN).
    """
    positive_int("width", width)
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, classes))
