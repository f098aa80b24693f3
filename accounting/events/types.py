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
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from dpsweep.accounting import validation
from dpsweep.accounting.codec import OMITTED, Count, PositiveInt, Stored, Tagged
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import Capped, EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.guarantee import Adjacency


def _check_event(name: str, value: object) -> None:
    if not isinstance(value, DpEvent):
        raise UnsupportedEvent(f"Expected {name} to be an event, got {event_name_for_sentence(value)}.")


def _check_adjacency(name: str, value: object) -> None:
    if value not in list(Adjacency):
        raise ValueError(f"Expected {name}={value!r} to be one of {', '.join(Adjacency)}.")


def _check_selection_law(name: str, value: object) -> None:
    if not isinstance(value, SelectionLaw):
        raise TypeError(f"Expected {name}={value!r} to be the law of the tries of a search that does not stop.")


def _check_stopping_law(name: str, value: object) -> None:
    if not isinstance(value, Stopping):
        raise TypeError(f"Expected {name}={value!r} to be the law of a search that stops.")


Leaves = tuple[tuple["DpEvent", int], ...]
"""The leaves of an event with their multiplicities, in canonical order."""


@dataclass(frozen=True)
class DpEvent(Tagged):
    """A mechanism that reads private data."""

    @property
    def leaves(self) -> Leaves:
        """The mechanisms that it is composed of, with their multiplicities: the one place that unrolls repetition.

        Leaves are all events except compositions; a sampled event is one leaf. Equal leaves are merged and in the order
        of their texts. Leaves with count zero and no-ops vanish.
        """
        return ((self, 1),)


Event = Annotated[DpEvent, _check_event]
Noise = Annotated[float, validation.non_negative]
Rate = Annotated[float, validation.share]
SelectionLaw = NegativeBinomial | Poisson | EachPoint


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """No access to private data."""

    @property
    def leaves(self) -> Leaves:
        """None."""
        return ()


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

    @cached_property
    def leaves(self) -> Leaves:
        """Those of `event`, each `count` times as often."""
        return tuple((leaf, times * self.count) for leaf, times in self.event.leaves if self.count)


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several mechanisms, each run with knowledge of the earlier outputs."""

    events: tuple[Event, ...]

    @cached_property
    def leaves(self) -> Leaves:
        """Those of all `events`."""
        every = count_equal_objects(self.events)
        return merge_equal_events((leaf, times * count) for event, times in every for leaf, count in event.leaves)


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
        super().__post_init__()
        if not self.events:
            raise ValueError("Expected events to be at least one.")


@dataclass(frozen=True)
class MixtureDpEvent(DpEvent):
    """One of several mechanisms, drawn independently of the data in proportion to `counts`; the output names it."""

    events: tuple[Event, ...]
    counts: tuple[PositiveInt, ...]

    def __post_init__(self) -> None:
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
    tries: Annotated[SelectionLaw, _check_selection_law]
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
    tries: Annotated[Stopping, _check_stopping_law]
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
    tries: Annotated[Stopping, _check_stopping_law]


def event_name_for_sentence(event: object) -> str:
    """The name of a mechanism in a sentence; for an event of another library, also how to convert it.

    >>> event_name_for_sentence(GaussianDpEvent(noise_multiplier=1.0))
    'Gaussian'
    """
    if not isinstance(event, DpEvent):
        library = type(event).__module__.partition(".")[0]
        return f"{library}.{type(event).__name__}, which is no event of dpsweep: convert it with from_dp_accounting"
    return type(event).__name__.removesuffix("DpEvent")


@dataclass(frozen=True, kw_only=True)
class _Versioned(Stored):
    version: Literal[1] = 1
    event: Event


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form.

    >>> from_json(to_json(GaussianDpEvent(noise_multiplier=0.1))) == GaussianDpEvent(noise_multiplier=0.1)
    True
    """
    return _Versioned(event=event).to_json()


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form, and nothing that says more or less than it.

    Raises ValueError or TypeError for another version, for an unknown event, and for a field that is missing, or
    unknown, or that no event has with this value.
    """
    return _Versioned.from_json(form).event


@lru_cache(maxsize=2**15)
def canonical_text(event: DpEvent) -> str:
    """One text for equal events: the JSON form."""
    return json.dumps(event.to_json(), sort_keys=True)


def merge_equal_events(pairs: Iterable[tuple[DpEvent, int]]) -> Leaves:
    """The events with the sums of their counts, in the order of their texts."""
    counts: dict[DpEvent, int] = {}
    for event, count in pairs:
        counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda pair: canonical_text(pair[0])))


def count_equal_objects(events: Sequence[DpEvent]) -> list[tuple[DpEvent, int]]:
    """Each object once with its number: a million proposed runs are few objects, and events are slow to hash."""
    every = {id(event): event for event in events}
    return [(every[place], count) for place, count in Counter(map(id, events)).items()]
