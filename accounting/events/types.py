"""The classes of events, frozen values that describe mechanisms, and their JSON form.

Names, fields and meaning of the first eight are those of `dp_accounting.dp_event`, the field's common vocabulary; they
are defined here because that package takes half a second to import and nothing else of it is used.

An event that cannot exist cannot be built: a negative count, a noise that is no number, or a hard stop that comes
before its price allows would be priced too low. Each class says what its fields may be, and raises ValueError or
TypeError for anything else, whoever builds it: `accounting/events/build.py`, a stored form, or another library's event.

The JSON form is exact and versioned: floats round-trip, and plan hashes are computed from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

from dpsweep.accounting import codec, validation
from dpsweep.accounting.codec import OMITTED, TYPE, Count, PositiveInt, Stored, StoredForm, codec_with_class_tag
from dpsweep.accounting.durable_files import require_known_version
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.trial_counts import Capped, EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.validation import require_json_object

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values of at most `most` objects. An object that is kept is alive, so no other one has its identity.

    Long events are slow to hash and to compare, and a plan asks for the same values of the same event many times.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[int, tuple[object, Value]] = {}

    def find_kept_value(self, key: object) -> Value | None:
        """The value of this very object, None if none is kept."""
        kept = self._kept.get(id(key))
        return None if kept is None else kept[1]

    def keep_value(self, key: object, value: Value) -> Value:
        """Keeps the value of an object and returns it; forgets all others where there are too many."""
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[id(key)] = (key, value)
        return value


def _check_event(name: str, value: object) -> None:
    """An event, of ours or of another library's, which accountants refuse by its name."""
    if not type(value).__name__.endswith("DpEvent"):
        raise TypeError(f"Expected {name}={value!r} to be an event.")


def _check_adjacency(name: str, value: object) -> None:
    if value not in list(Adjacency):
        raise ValueError(f"Expected {name}={value!r} to be one of {', '.join(Adjacency)}.")


def _check_law_without_stopping(name: str, value: object) -> None:
    if not isinstance(value, (NegativeBinomial, Poisson, EachPoint)):
        raise TypeError(f"Expected {name}={value!r} to be the law of the tries of a search that does not stop.")


def _check_stopping_law(name: str, value: object) -> None:
    if not isinstance(value, Stopping):
        raise TypeError(f"Expected {name}={value!r} to be the law of a search that stops.")


@dataclass(frozen=True)
class DpEvent(Stored):
    """A mechanism that reads private data."""


Event = Annotated[
    DpEvent,
    _check_event,
    StoredForm(read=lambda name, form: _event_from_json_form(form), write=lambda event: _event_to_json_form(event)),
]
Noise = Annotated[float, validation.non_negative]
Rate = Annotated[float, validation.share]
SelectionLaw = NegativeBinomial | Poisson | EachPoint


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """No access to private data."""


@dataclass(frozen=True)
class NonPrivateDpEvent(DpEvent):
    """An access without any guarantee: epsilon is infinite."""


@dataclass(frozen=True)
class GaussianDpEvent(DpEvent):
    """A sum with Gaussian noise of `noise_multiplier` times the L2 bound of each record's contribution."""

    noise_multiplier: Noise


@dataclass(frozen=True)
class SelfComposedDpEvent(DpEvent):
    """A mechanism that runs `count` times, each run with knowledge of the earlier outputs."""

    event: Event
    count: Count


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several mechanisms, each run with knowledge of the earlier outputs; stored as a tuple."""

    events: Sequence[Event]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        super().__post_init__()


@dataclass(frozen=True)
class PoissonSampledDpEvent(DpEvent):
    """A mechanism on a sample that each record joins independently with `sampling_probability`."""

    sampling_probability: Rate
    event: Event


@dataclass(frozen=True)
class SampledWithoutReplacementDpEvent(DpEvent):
    """A mechanism on `sample_size` distinct records, drawn uniformly from `source_dataset_size`."""

    source_dataset_size: PositiveInt
    sample_size: PositiveInt
    event: Event

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_size > self.source_dataset_size:
            raise ValueError(
                f"Expected sample_size={self.sample_size} <= source_dataset_size={self.source_dataset_size}."
            )


@dataclass(frozen=True)
class TruncatedSubsampledGaussianDpEvent(DpEvent):
    """A Gaussian mechanism on a Poisson sample that is cut to `truncated_batch_size` records at random.

    `dataset_size` is the most records that there may be: with more, samples are cut more often, and it costs more.

    *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling).
    """

    dataset_size: PositiveInt
    sampling_probability: Rate
    truncated_batch_size: PositiveInt
    noise_multiplier: Noise


@dataclass(frozen=True)
class BlackBoxDpEvent(DpEvent):
    """A mechanism that is known only by its (epsilon, delta) claim, for one adjacency."""

    epsilon: Annotated[float, validation.bound]
    delta: Annotated[float, validation.failure_probability]
    adjacency: Annotated[Adjacency, _check_adjacency]


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):
    """A Gaussian mechanism with a sensitivity stated for `adjacency`, so that replacement does not double it.

    `noise_multiplier` is the noise over that sensitivity. `adjacency` is None if the sensitivity holds for both kinds
    of neighbours, as for a count.
    """

    noise_multiplier: Noise
    adjacency: Annotated[Adjacency | None, _check_adjacency] = None


@dataclass(frozen=True)
class EpochDpEvent(DpEvent):
    """An epoch: `steps` Gaussian steps with every record in exactly one of them; as private as one Gaussian step.

    With a `sampling_probability` below 1 it is a cycle: a record is in its step with this probability, decided by a
    secret coin, and otherwise in none; as private as one Poisson-sampled Gaussian step.
    """

    steps: PositiveInt
    noise_multiplier: Noise
    sampling_probability: Annotated[Rate, OMITTED] = 1.0


@dataclass(frozen=True)
class RoundedNumberDpEvent(DpEvent):
    """One number with Gaussian noise that a run releases, rounded to a lattice: beside the mechanism that has it."""


@dataclass(frozen=True)
class RandomAllocationDpEvent(DpEvent):
    """An epoch of `steps` Gaussian steps; each record is in one of them, drawn uniformly and kept secret."""

    steps: PositiveInt
    noise_multiplier: Noise


@dataclass(frozen=True)
class NoisyMaxDpEvent(DpEvent):
    """The index, but not the value, of the largest of several counts with Gumbel noise of this scale (in counts)."""

    noise_scale: Noise


@dataclass(frozen=True)
class WorstDpEvent(DpEvent):
    """One of several mechanisms, chosen independently of the data: as private as the worst of them at each order."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        super().__post_init__()
        if not self.events:
            raise ValueError("Expected events to be at least one.")


@dataclass(frozen=True)
class MixtureDpEvent(DpEvent):
    """One of several mechanisms, drawn independently of the data in proportion to `counts`; the output names it."""

    events: tuple[Event, ...]
    counts: tuple[PositiveInt, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        object.__setattr__(self, "counts", tuple(self.counts))
        super().__post_init__()
        if len(self.events) != len(self.counts) or not self.counts:
            raise ValueError(f"Expected counts={self.counts} to be a count >= 1 for each of {len(self.events)} events.")

    @property
    def weights(self) -> tuple[float, ...]:
        """The probability of each mechanism."""
        return tuple(count / sum(self.counts) for count in self.counts)


@dataclass(frozen=True)
class SelectionDpEvent(DpEvent):
    """The best of several independent runs of one mechanism; only this best run is released.

    Their number is secret and random, or that of the points, of which each has a run. `limit` ends the search after
    this number of tries; None sets no limit.
    """

    event: Event
    tries: Annotated[SelectionLaw, _check_law_without_stopping]
    limit: PositiveInt | None = None

    @property
    def law_of_tries_with_limit(self) -> SelectionLaw | Capped:
        """The law of the number of tries that are made, with the limit."""
        if self.limit is None or isinstance(self.tries, EachPoint):
            return self.tries
        return Capped(tries=self.tries, limit=self.limit)


@dataclass(frozen=True)
class RandomStoppingDpEvent(DpEvent):
    """Liu and Talwar's random stopping with a hard stop: only the best of the tries is released."""

    event: Event
    tries: Annotated[Stopping, _check_stopping_law, codec_with_class_tag(Stopping)]
    delta2: Annotated[float, validation.fraction]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tries.limit < math.log(1 / self.delta2) / self.tries.gamma:  # that part of delta pays for the hard stop
            raise ValueError(
                f"Expected tries={self.tries!r} to reach their limit with probability delta2={self.delta2} at most."
            )


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

    event: Event
    tries: Annotated[Stopping, _check_stopping_law, codec_with_class_tag(Stopping)]


def event_name_for_sentence(event: DpEvent) -> str:
    """The name of a mechanism in a sentence; for an event of another library, also how to convert it.

    >>> event_name_for_sentence(GaussianDpEvent(noise_multiplier=1.0))
    'Gaussian'
    """
    if not isinstance(event, DpEvent):
        library = type(event).__module__.partition(".")[0]
        return f"{library}.{type(event).__name__}, which is no event of dpsweep: convert it with from_dp_accounting"
    return type(event).__name__.removesuffix("DpEvent")


JSON_VERSION = 1

NOISE = "noise_multiplier"

TABLE, FEW = "Table", 100
"""The type name of a composition that is written as a table, which is used above this number of kinds of step."""

_TYPES: dict[str, type[DpEvent]] = {kind.__name__: kind for kind in DpEvent.__subclasses__()}
_FORMS: Recent[Any] = Recent(most=64)


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form.

    >>> from_json(to_json(GaussianDpEvent(noise_multiplier=0.1))) == GaussianDpEvent(noise_multiplier=0.1)
    True
    """
    form = _FORMS.find_kept_value(event)
    return {
        "version": JSON_VERSION,
        "event": _FORMS.keep_value(event, _event_to_json_form(event)) if form is None else form,
    }


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form, and nothing that says more or less than it.

    Raises `BadInput` for another version and for an unknown event, `ValueError` or `TypeError` for a field that is
    missing, or unknown, or that no event has with this value.
    """
    require_known_version("event version", form.get("version"), JSON_VERSION)
    return codec.from_json(_Versioned, form).event


def canonical_text(event: DpEvent) -> str:
    """One text for equal events: the JSON form, or `repr` for an event without one."""
    if not isinstance(event, ComposedDpEvent):
        return _cached_canonical_text(event) if is_hashable(event) else repr(event)
    known = _TEXTS.find_kept_value(event)
    return (
        _TEXTS.keep_value(event, _compute_canonical_text(event) if is_hashable(event) else repr(event))
        if known is None
        else known
    )


def is_hashable(event: DpEvent) -> bool:
    """Whether an event can be a key; events of dp_accounting that hold lists cannot, nor can ours around them."""
    try:
        hash(event)
    except TypeError:
        return False
    return True


_TEXTS: Recent[str] = Recent(most=64)


@lru_cache(maxsize=2**15)
def _cached_canonical_text(event: DpEvent) -> str:
    return _compute_canonical_text(event)


def _compute_canonical_text(event: DpEvent) -> str:
    try:
        return json.dumps(_event_to_json_form(event), sort_keys=True)
    except BadInput:
        return repr(event)


def _event_to_json_form(event: Any) -> dict[str, Any]:
    if (
        type(event) is ComposedDpEvent
        and len(event.events) > FEW
        and (table := _table_form_of_repeated_steps(event.events))
    ):
        return table
    if _TYPES.get(kind := type(event).__name__) is not type(event):  # dp_accounting has more kinds, of the same names
        raise BadInput(f"Expected event={kind} to be one of {sorted(_TYPES)}.")
    return {TYPE: kind} | codec.to_json(event)


def _event_from_json_form(form: Any) -> DpEvent:
    fields = dict(require_json_object("event", form))
    kind = fields.pop(TYPE, None)
    if kind == TABLE:
        return codec.from_json(_Table, fields).expand_to_composition()
    if not isinstance(kind, str) or kind not in _TYPES:
        raise BadInput(f"Expected event={kind!r} to be one of {sorted(_TYPES)}.")
    return codec.from_json(_TYPES[kind], fields)


@dataclass(frozen=True, kw_only=True)
class _Versioned:
    version: int
    event: Event


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Repeated Gaussian steps that differ only in their noise, beside a step without noise: a tenth as long.

    `others` are the events that follow them in the composition.
    """

    step: Event
    noise_multipliers: tuple[Noise, ...]
    counts: tuple[Count, ...]
    others: Annotated[tuple[Event, ...], OMITTED] = ()

    def expand_to_composition(self) -> ComposedDpEvent:
        """The composition that the table describes."""
        if _noise_multiplier_of_step(self.step) != 0:
            raise TypeError("Expected a table to have a step without noise.")
        rows = zip(self.noise_multipliers, self.counts, strict=True)
        steps = (SelfComposedDpEvent(_step_with_noise(self.step, noise), count) for noise, count in rows)
        return ComposedDpEvent([*steps, *self.others])


def _table_form_of_repeated_steps(events: Sequence[DpEvent]) -> dict[str, Any] | None:
    """A table for repeated steps that differ only in their noise, a tenth as long; None for other events."""
    repeated = [
        event
        for event in events
        if isinstance(event, SelfComposedDpEvent) and _noise_multiplier_of_step(event.event) is not None
    ]
    others = events[len(repeated) :]
    if not repeated or [*repeated, *others] != list(events):
        return None
    sampling = _step_fields_without_noise(repeated[0].event)
    if any(_step_fields_without_noise(event.event) != sampling for event in repeated):
        return None
    return {
        TYPE: TABLE,
        "step": _event_to_json_form(_step_with_noise(repeated[0].event, 0.0)),
        "noise_multipliers": [_noise_multiplier_of_step(event.event) for event in repeated],
        "counts": [event.count for event in repeated],
    } | ({"others": [_event_to_json_form(event) for event in others]} if others else {})


def _noise_multiplier_of_step(step: DpEvent) -> float | None:
    """The noise multiplier of a Gaussian step, sampled or not; None for other events."""
    if isinstance(step, (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent)):
        step = step.event
    return float(step.noise_multiplier) if type(step) is GaussianDpEvent else None


def _step_fields_without_noise(step: DpEvent) -> tuple[object, ...]:
    """All that determines a Gaussian step except its noise."""
    own = (field.name for field in fields(step) if field.name not in ("event", NOISE))
    return (type(step), *(getattr(step, name) for name in own))


def _step_with_noise(step: DpEvent, noise: float) -> DpEvent:
    """The same Gaussian step with another noise multiplier."""
    gaussian = GaussianDpEvent(noise_multiplier=noise)
    if isinstance(step, (PoissonSampledDpEvent, SampledWithoutReplacementDpEvent)):
        return replace(step, event=gaussian)
    return gaussian
