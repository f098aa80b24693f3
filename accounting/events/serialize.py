"""The exact, versioned JSON form of events: floats round-trip, and plan hashes are computed from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.bounded_counts import EachPoint, Stopping
from dpsweep.accounting.events.recent import Recent
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    ComposedDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    MixtureDpEvent,
    NoisyMaxDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    SelfComposedDpEvent,
    StatedGaussianDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
)
from dpsweep.accounting.json_files import require_version

JSON_VERSION = 1

NOISE = "noise_multiplier"

TABLE, FEW = "Table", 100
"""The type name of a composition that is written as a table, which is used above this number of kinds of step."""

_FIELDS: dict[type, tuple[str, ...]] = {
    NoOpDpEvent: (),
    NonPrivateDpEvent: (),
    GaussianDpEvent: ("noise_multiplier",),
    StatedGaussianDpEvent: ("noise_multiplier", "adjacency"),
    EpochDpEvent: ("steps", "noise_multiplier"),
    RandomAllocationDpEvent: ("steps", "noise_multiplier"),
    PoissonSampledDpEvent: ("sampling_probability", "event"),
    SampledWithoutReplacementDpEvent: ("source_dataset_size", "sample_size", "event"),
    TruncatedSubsampledGaussianDpEvent: (
        "dataset_size",
        "sampling_probability",
        "truncated_batch_size",
        "noise_multiplier",
    ),
    SelfComposedDpEvent: ("event", "count"),
    ComposedDpEvent: ("events",),
    BlackBoxDpEvent: ("epsilon", "delta", "adjacency"),
    NoisyMaxDpEvent: ("noise_scale",),
    WorstDpEvent: ("events",),
    MixtureDpEvent: ("events", "counts"),
    SelectionDpEvent: ("event", "tries", "limit"),
    RandomStoppingDpEvent: ("event", "tries", "delta2"),
    ThresholdDpEvent: ("event", "tries"),
    NegativeBinomial: ("eta", "gamma"),
    Poisson: ("mean",),
    Stopping: ("gamma", "limit"),
    EachPoint: ("count",),
}
_TYPES = {kind.__name__: kind for kind in _FIELDS}


_FORMS: Recent[Any] = Recent(most=64)


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form.

    >>> from_json(to_json(GaussianDpEvent(noise_multiplier=0.1))) == GaussianDpEvent(noise_multiplier=0.1)
    True
    """
    form = _FORMS.of(event)
    return {"version": JSON_VERSION, "event": _FORMS.keep(event, _encode(event)) if form is None else form}


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form, and nothing that says more or less than it.

    Raises `BadInput` for another version and for an unknown event, `ValueError` or `TypeError` for a field that is
    unknown or that no event has with this value, and `KeyError` for a missing one.
    """
    require_version("event version", form.get("version"), JSON_VERSION)
    _require_keys(form, ("version", "event"))
    event = _decode(form["event"])
    if not isinstance(event, DpEvent):
        raise TypeError(f"Expected event={event!r} to be an event.")
    return event


def canonical(event: DpEvent) -> str:
    """One text for equal events: the JSON form, or `repr` for an event without one."""
    if not isinstance(event, ComposedDpEvent):
        return _text(event) if hashable(event) else repr(event)
    known = _TEXTS.of(event)
    return _TEXTS.keep(event, _written(event) if hashable(event) else repr(event)) if known is None else known


def hashable(event: DpEvent) -> bool:
    """Whether an event can be a key; events of dp_accounting that hold lists cannot, nor can ours around them."""
    try:
        hash(event)
    except TypeError:
        return False
    return True


_TEXTS: Recent[str] = Recent(most=64)


@lru_cache(maxsize=2**15)
def _text(event: DpEvent) -> str:
    return _written(event)


def _written(event: DpEvent) -> str:
    try:
        return json.dumps(_encode(event), sort_keys=True)
    except BadInput:
        return repr(event)


def _encode(value: Any) -> Any:
    if type(value) is ComposedDpEvent and len(value.events) > FEW and (table := _table(value.events)):
        return table
    if type(value) in _FIELDS:
        return {"type": type(value).__name__} | {name: _encode(getattr(value, name)) for name in _FIELDS[type(value)]}
    if type(value).__name__.endswith("DpEvent"):  # also those of dp_accounting, which has more of them
        raise BadInput(f"Expected event={type(value).__name__} to be one of {sorted(_TYPES)}.")
    return [_encode(item) for item in value] if isinstance(value, (list, tuple)) else value


def _decode(form: Any) -> Any:
    if isinstance(form, list):
        return [_decode(item) for item in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == TABLE:
        return _decoded_table(form)
    if not isinstance(form.get("type"), str) or form["type"] not in _TYPES:
        raise BadInput(f"Expected event={form.get('type')!r} to be one of {sorted(_TYPES)}.")
    kind = _TYPES[form["type"]]
    _require_keys(form, ("type", *_FIELDS[kind]))
    fields = {name: _decode(form[name]) for name in _FIELDS[kind]}
    return kind(**fields)


def _decoded_table(form: Mapping[str, Any]) -> ComposedDpEvent:
    """The composition that a table describes."""
    _require_keys(form, ("type", "step", "noise_multipliers", "counts"))
    step, noises, counts = _decode(form["step"]), form["noise_multipliers"], form["counts"]
    if not isinstance(noises, list) or not isinstance(counts, list) or _noise(step) != 0:
        raise TypeError(
            "Expected the noise multipliers and counts of a table to be lists, beside a step without noise."
        )
    rows = zip(noises, counts, strict=True)
    return ComposedDpEvent([SelfComposedDpEvent(_at_noise(step, noise), count) for noise, count in rows])


def _require_keys(form: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises ValueError if the form says more than its kind has fields for."""
    if unknown := sorted(form.keys() - set(known)):
        raise ValueError(f"Expected {unknown[0]} to be left out: a stored event has only {', '.join(known)} here.")


def _table(events: Sequence[DpEvent]) -> dict[str, Any] | None:
    """A table for repeated steps that differ only in their noise, a tenth as long; None for other events."""
    repeated = [event for event in events if isinstance(event, SelfComposedDpEvent)]
    noises = [_noise(event.event) for event in repeated]
    if len(repeated) < len(events) or None in noises:
        return None
    sampling = _sampling(repeated[0].event)
    if any(_sampling(event.event) != sampling for event in repeated):
        return None
    return {
        "type": TABLE,
        "step": _encode(_at_noise(repeated[0].event, 0.0)),
        "noise_multipliers": noises,
        "counts": [event.count for event in repeated],
    }


def _noise(step: DpEvent) -> float | None:
    """The noise multiplier of a Gaussian step, sampled or not; None for other events."""
    if isinstance(step, (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent)):
        step = step.event
    return float(step.noise_multiplier) if type(step) is GaussianDpEvent else None


def _sampling(step: DpEvent) -> tuple[object, ...]:
    """All that determines a Gaussian step except its noise."""
    return (type(step), *(getattr(step, name) for name in _FIELDS[type(step)] if name not in ("event", NOISE)))


def _at_noise(step: DpEvent, noise: float) -> DpEvent:
    """The same Gaussian step with another noise multiplier."""
    gaussian = GaussianDpEvent(noise_multiplier=noise)
    if isinstance(step, (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent)):
        return replace(step, event=gaussian)
    return gaussian
