"""Linear regression: a convex problem, of records to one number."""

from __future__ import annotations

import math

from torch import nn


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear map from the flattened record to one number, whatever `classes`: d + 1 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1))
