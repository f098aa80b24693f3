"""What touched the data, as frozen values of the field's vocabulary (`dp_accounting.dp_event`).

An event is declared before anything runs; accountants price it; the run is compared with it afterwards. This is the
only module that constructs the library's classes, so that one place decides what noise multipliers mean:

* `noise_multiplier` is the standard deviation of the noise on the *sum*, divided by the per-record norm bound (the
  clip norm, or 1 for normalisation), whatever the adjacency. Replacing a record moves the sum by up to twice the
  bound; accountants, not events, know that.
* Composition is flattened here, once: `flatten` turns nested repetition into (leaf, count) pairs with equal leaves
  merged, so that n-fold repetition never depends on an accountant remembering it.
* The JSON form is exact (floats round-trip) and versioned; plan hashes are taken over it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from accounting.errors import BadInput

__all__ = [
    "DpEvent",
    "PlanEvent",
    "as_gaussian_step",
    "compose",
    "flatten",
    "from_json",
    "gaussian",
    "non_private",
    "nothing",
    "poisson_gaussian",
    "repeat",
    "same",
    "to_json",
]

JSON_VERSION = 1

_FIELDS: dict[type[DpEvent], tuple[str, ...]] = {
    NoOpDpEvent: (),
    NonPrivateDpEvent: (),
    GaussianDpEvent: ("noise_multiplier",),
    PoissonSampledDpEvent: ("sampling_probability", "event"),
    SelfComposedDpEvent: ("event", "count"),
    ComposedDpEvent: ("events",),
}
_TYPES = {kind.__name__: kind for kind in _FIELDS}


@dataclass(frozen=True, kw_only=True)
class PlanEvent:
    """A plan's two disjoint populations: the training records, and the held-out records that scores are read from.

    *Guarantee*: while one publicly fixed split holds, every record lies in one part, so the whole costs the
    pointwise maximum of the two parts, not their sum (parallel composition). `validation` is None where no private
    record is scored.
    """

    training: DpEvent
    validation: DpEvent | None = None

    @property
    def parts(self) -> dict[str, DpEvent]:
        """The populations by name."""
        parts = {"training": self.training}
        return parts if self.validation is None else {**parts, "validation": self.validation}


def nothing() -> DpEvent:
    """No access at all."""
    return NoOpDpEvent()


def non_private() -> DpEvent:
    """An access that protects nobody: every accountant answers infinity."""
    return NonPrivateDpEvent()


def gaussian(*, noise_multiplier: float) -> DpEvent:
    """A Gaussian mechanism on a sum to which each record adds a vector of norm at most 1."""
    _require(
        math.isfinite(noise_multiplier) and noise_multiplier >= 0,
        "noise_multiplier",
        noise_multiplier,
        ">= 0",
    )
    return GaussianDpEvent(noise_multiplier=float(noise_multiplier))


def poisson_gaussian(*, sample_rate: float, noise_multiplier: float) -> DpEvent:
    """One step of DP-SGD: every record takes part independently with probability `sample_rate`."""
    _require(0 < sample_rate <= 1, "sample_rate", sample_rate, "in (0, 1]")
    return PoissonSampledDpEvent(
        sampling_probability=float(sample_rate), event=gaussian(noise_multiplier=noise_multiplier)
    )


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"Expected count={count!r} to be an integer.")
    _require(count >= 0, "count", count, ">= 0")
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records, equal leaves merged and in an order that does not depend on theirs.

    >>> step = poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0)
    >>> same(compose([repeat(step, 2), step]), repeat(step, 3))
    True
    """
    return ComposedDpEvent(events=[repeat(leaf, count) for leaf, count in flatten(ComposedDpEvent(list(events)))])


def flatten(event: DpEvent) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves of a composition with their multiplicities: the one place that unrolls repetition.

    Leaves are everything but composition; a sampled event is one leaf. Leaves that occur zero times vanish, and no-ops.
    """
    counts: dict[object, int] = {}
    leaves: dict[object, DpEvent] = {}

    def visit(node: DpEvent, times: int) -> None:
        if isinstance(node, SelfComposedDpEvent):
            visit(node.event, times * node.count)
        elif isinstance(node, ComposedDpEvent):
            for inner in node.events:
                visit(inner, times)
        elif times > 0 and not isinstance(node, NoOpDpEvent):
            key = _key(node)
            leaves[key] = node
            counts[key] = counts.get(key, 0) + times

    visit(event, 1)
    return tuple((leaves[key], counts[key]) for key in sorted(leaves, key=lambda key: _canonical(leaves[key])))


def same(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms the same number of times, however nested or ordered."""
    return flatten(left) == flatten(right)


def as_gaussian_step(event: DpEvent) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or, at rate 1, not; else None.

    An access that protects nobody is one without noise, (1.0, 0.0): every accountant answers infinity to that.
    """
    if type(event) is NonPrivateDpEvent:
        return 1.0, 0.0
    if type(event) is GaussianDpEvent:
        return 1.0, float(event.noise_multiplier)
    if type(event) is PoissonSampledDpEvent and type(event.event) is GaussianDpEvent:
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form.

    >>> from_json(to_json(gaussian(noise_multiplier=0.1))) == gaussian(noise_multiplier=0.1)
    True
    """
    return {"version": JSON_VERSION, "event": _encode(event)}


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form; another version or an unknown event is refused."""
    if form.get("version") != JSON_VERSION:
        raise BadInput(f"Expected event version={form.get('version')!r} to be {JSON_VERSION}.")
    return _decode(form["event"])


def _encode(value: Any) -> Any:
    if isinstance(value, DpEvent):
        if type(value) not in _FIELDS:
            raise BadInput(f"Expected event={type(value).__name__} to be one of {sorted(_TYPES)}.")
        return {"type": type(value).__name__} | {name: _encode(getattr(value, name)) for name in _FIELDS[type(value)]}
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


def _key(event: DpEvent) -> object:
    """Equal for equal leaves; the library's events that hold lists are not hashable."""
    try:
        hash(event)
    except TypeError:
        return repr(event)
    return event


def _canonical(event: DpEvent) -> str:
    try:
        return json.dumps(_encode(event), sort_keys=True)
    except BadInput:
        return repr(event)


def _require(holds: bool, name: str, value: object, condition: str) -> None:
    if not holds:
        raise ValueError(f"Expected {name}={value} {condition}.")
