"""Events of the package dp_accounting, which other libraries emit, as events of ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

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


def from_dp_accounting(event: Any) -> DpEvent:
    """Our event with the fields and the meaning of one of `dp_accounting.dp_event`, as JAX-Privacy emits them.

    Raises `UnsupportedEvent` for a class that has no counterpart here.
    """
    kind = _SHARED.get(type(event).__name__)
    if kind is None:
        raise UnsupportedEvent(f"Expected {type(event).__name__} to be one of {', '.join(sorted(_SHARED))}.")
    return kind(**{field.name: _converted(getattr(event, field.name)) for field in fields(kind)})


def _converted(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_converted, value))
    return value if isinstance(value, (int, float)) else from_dp_accounting(value)
