"""Events of the package dp_accounting, which other libraries emit, as events of ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dpsweep.accounting.codec import require_integer, require_real
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.types import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
)

_SHARED = {
    kind.__name__: kind
    for kind in (
        ComposedDpEvent,
        GaussianDpEvent,
        NoOpDpEvent,
        NonPrivateDpEvent,
        PoissonSampledDpEvent,
        SampledWithoutReplacementDpEvent,
        SelfComposedDpEvent,
        TruncatedSubsampledGaussianDpEvent,
    )
}


_FLOATS = frozenset({"noise_multiplier", "sampling_probability"})
_COUNTS = frozenset({"count", "source_dataset_size", "sample_size", "dataset_size", "truncated_batch_size"})


def from_dp_accounting(event: Any) -> DpEvent:
    """Our event with the fields and the meaning of one of `dp_accounting.dp_event`, as JAX-Privacy emits them.

    Raises `UnsupportedEvent` for a class that has no counterpart here, and `ValueError` or `TypeError` for a number
    that no mechanism has, such as a negative noise, a rate above 1, or nan.
    """
    kind = _SHARED.get(type(event).__name__)
    if kind is None:
        raise UnsupportedEvent(f"Expected {type(event).__name__} to be one of {', '.join(sorted(_SHARED))}.")
    return kind(**{field.name: _convert_field(field.name, getattr(event, field.name)) for field in fields(kind)})


def _convert_field(name: str, value: Any) -> Any:
    if name in _FLOATS:
        return require_real(name, value)
    if name in _COUNTS:
        require_integer(name, value)
        return int(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(from_dp_accounting, value))
    return from_dp_accounting(value)
