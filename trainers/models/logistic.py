"""Logistic (softmax) regression: a convex problem."""

from __future__ import annotations

import math

from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear map from the flattened record to the classes: (d + 1) * classes parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
