"""Fully connected models, and the activation layers of all models by name.

Linear regression from records to one number, logistic (softmax) regression, and multilayer perceptrons; the first two
are convex problems. Tempered sigmoids are bounded activations, which keep gradients smaller so that clipping removes
less of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import torch
from torch import Tensor, nn

from dpsweep.accounting.codec import positive, positive_int, require_finite_number


class TemperedSigmoid(nn.Module):
    """scale * sigmoid(temperature * x) - offset, elementwise; the defaults give tanh.

    Source: Papernot, Thakurta, Song, Chien, Erlingsson 2021, Tempered Sigmoid Activations for Deep Learning with
    Differential Privacy, Section 3.
    """

    def __init__(self, scale: float = 2.0, temperature: float = 2.0, offset: float = 1.0) -> None:
        super().__init__()
        positive("scale", scale)
        positive("temperature", temperature)
        require_finite_number("offset", offset)
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, values: Tensor) -> Tensor:
        """Numbers of the same shape, between -offset and scale - offset."""
        return self.scale * torch.sigmoid(self.temperature * values) - self.offset


_KINDS: Mapping[str, type[nn.Module]] = MappingProxyType(
    {"relu": nn.ReLU, "tanh": nn.Tanh, "tempered_sigmoid": TemperedSigmoid}
)
_UNTEMPERED = MappingProxyType({"scale": 2.0, "temperature": 2.0, "offset": 1.0})


def make_activation(name: str, tempering: Mapping[str, float] | None = None) -> nn.Module:
    """A new layer of this name; `tempering` holds the scale, temperature and offset of a tempered sigmoid.

    Errors: ValueError for other names, and for a tempering that the activation ignores: grid points that differ only
    in it would train the same model.
    """
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"Expected activation={name} to be one of {', '.join(_KINDS)}.")
    if _KINDS[name] is TemperedSigmoid:
        return TemperedSigmoid(**(tempering or {}))
    if tempering is not None and {**_UNTEMPERED, **tempering} != _UNTEMPERED:
        raise ValueError(f"Expected activation={name} to be tempered_sigmoid, since tempering={dict(tempering)}.")
    return _KINDS[name]()


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear map from the flattened record to one number: d + 1 parameters.

    Errors: ValueError for several classes, which one number cannot predict.
    """
    if classes > 1:
        raise ValueError(f"Expected classes={classes} <= 1 for model=linear; model=logistic tells classes apart.")
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1))


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear map from the flattened record to the classes: (d + 1) * classes parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


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


def one_hidden(shape: tuple[int, ...], classes: int, *, width: int = 100, activation: str = "relu") -> nn.Module:
    """Flattened record, `width` units, classes.

    Source: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (TLNN).
    """
    positive_int("width", width)
    return mlp(shape, classes, widths=[width], activation=activation)
