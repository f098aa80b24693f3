"""The exact, versioned JSON form of events: floats round-trip, and plan hashes are taken over it."""

from __future__ import annotations

import json
from typing import Any

from accounting.errors import BadInput
from accounting.tries import NegativeBinomial, Poisson, Stopping
from accounting.vocabulary import (
    BlackBoxDpEvent,
    ComposedDpEvent,
    DpEvent,
    EpochDpEvent,
    GaussianDpEvent,
    NoisyMaxDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    SelfComposedDpEvent,
    StatedGaussianDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
)

JSON_VERSION = 1

_FIELDS: dict[type, tuple[str, ...]] = {
    NoOpDpEvent: (),
    NonPrivateDpEvent: (),
    GaussianDpEvent: ("noise_multiplier",),
    StatedGaussianDpEvent: ("noise_multiplier", "adjacency"),
    EpochDpEvent: ("steps", "noise_multiplier"),
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
    SelectionDpEvent: ("event", "tries", "limit"),
    RandomStoppingDpEvent: ("event", "tries", "delta2"),
    ThresholdDpEvent: ("event", "tries"),
    NegativeBinomial: ("eta", "gamma"),
    Poisson: ("mean",),
    Stopping: ("gamma", "limit"),
}
_TYPES = {kind.__name__: kind for kind in _FIELDS}


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form.

    >>> from_json(to_json(GaussianDpEvent(noise_multiplier=0.1))) == GaussianDpEvent(noise_multiplier=0.1)
    True
    """
    return {"version": JSON_VERSION, "event": _encode(event)}


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form; another version or an unknown event is refused."""
    if form.get("version") != JSON_VERSION:
        raise BadInput(f"Expected event version={form.get('version')!r} to be {JSON_VERSION}.")
    event: DpEvent = _decode(form["event"])
    return event


def canonical(event: DpEvent) -> str:
    """One text for equal events: the JSON form, or, for an event that has none, its representation."""
    try:
        return json.dumps(_encode(event), sort_keys=True)
    except BadInput:
        return repr(event)


def _encode(value: Any) -> Any:
    if type(value) in _FIELDS:
        return {"type": type(value).__name__} | {name: _encode(getattr(value, name)) for name in _FIELDS[type(value)]}
    if isinstance(value, DpEvent):
        raise BadInput(f"Expected event={type(value).__name__} to be one of {sorted(_TYPES)}.")
    return [_encode(item) for item in value] if isinstance(value, (list, tuple)) else value


def _decode(form: Any) -> Any:
    if isinstance(form, list):
        return [_decode(item) for item in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") not in _TYPES:
        raise BadInput(f"Expected event={form.get('type')!r} to be one of {sorted(_TYPES)}.")
    kind = _TYPES[form["type"]]
    return kind(**{name: _decode(form[name]) for name in _FIELDS[kind]})
