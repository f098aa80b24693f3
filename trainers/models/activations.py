"""Activation layers by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import nn

from dpsweep.trainers.models.tempered_sigmoid import TemperedSigmoid

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
