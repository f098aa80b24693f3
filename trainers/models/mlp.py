"""Multilayer perceptrons: fully connected hidden layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import nn

from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.models.activations import make_activation


def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    widths: Sequence[int] = (100,),
    activation: str = "relu",
    tempering: Mapping[str, float] | None = None,
) -> nn.Module:
    """Flattened record, one hidden layer for each entry of `widths`, classes.

    Source: Yu, Zhang, Chen 2018, appendix (covertype: two hidden layers of 100, tanh).
    """
    if not isinstance(widths, Sequence) or isinstance(widths, str) or not widths:
        raise TypeError(f"Expected widths={widths} to be a list of at least one integer.")
    for place, width in enumerate(widths):
        positive_int(f"widths[{place}]", width)
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise([math.prod(shape), *widths]):
        layers += [nn.Linear(before, after), make_activation(activation, tempering)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
