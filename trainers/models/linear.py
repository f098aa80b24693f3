"""Linear regression from records to one number: a convex problem."""

from __future__ import annotations

import math

from torch import nn


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear map from the flattened record to one number: d + 1 parameters.

    Errors: ValueError for several classes, which one number cannot predict.
    """
    if classes > 1:
        raise ValueError(f"Expected classes={classes} <= 1 for model=linear; model=logistic tells classes apart.")
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1))
