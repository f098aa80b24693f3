"""Events of the package dp_accounting, which other libraries emit, as events of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from dpsweep.accounting import numbers
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


_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "noise_multiplier": numbers.non_negative,
    "sampling_probability": numbers.share,
    "count": numbers.count,
    "source_dataset_size": numbers.positive_int,
    "sample_size": numbers.positive_int,
    "dataset_size": numbers.positive_int,
    "truncated_batch_size": numbers.positive_int,
}
"""What the number in a field must be; that package's own classes accept any."""


def from_dp_accounting(event: Any) -> DpEvent:
    """Our event with the fields and the meaning of one of `dp_accounting.dp_event`, as JAX-Privacy emits them.

    Raises `UnsupportedEvent` for a class that has no counterpart here, and `ValueError` or `TypeError` for a number
    that no mechanism has, such as a negative noise, a rate above 1, or nan.
    """
    kind = _SHARED.get(type(event).__name__)
    if kind is None:
        raise UnsupportedEvent(f"Expected {type(event).__name__} to be one of {', '.join(sorted(_SHARED))}.")
    converted = kind(**{field.name: _converted(field.name, getattr(event, field.name)) for field in fields(kind)})
    if isinstance(converted, SampledWithoutReplacementDpEvent) and not (
        converted.sample_size <= converted.source_dataset_size
    ):
        raise ValueError(
            f"Expected sample_size={converted.sample_size} <= source_dataset_size={converted.source_dataset_size}."
        )
    return converted


def _converted(name: str, value: Any) -> Any:
    if name in _CHECKS:
        _CHECKS[name](name, value)
        return float(value) if name in ("noise_multiplier", "sampling_probability") else int(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(from_dp_accounting, value))
    return from_dp_accounting(value)
