"""Events: frozen values that say which mechanisms read private records; their composition, and their JSON form.

Names, fields and meaning of the first eight classes are those of `dp_accounting.dp_event`. An event is declared before
anything runs, accountants price it, and the run is compared with it.

* An event that cannot exist, and would be priced too low, cannot be built: each class raises ValueError or TypeError.
* `noise_multiplier` is the standard deviation of the noise on the *sum*, divided by the per-record norm bound (the clip
  norm, or 1 for normalisation), for every adjacency. Replacing a record moves the sum by up to twice the bound;
  accountants, not events, take this into account.
* A composition is a sorted multiset of leaves: `DpEvent.leaves` alone unrolls repetition, and merges equal leaves.
* The JSON form is exact: floats round-trip, and plan hashes are computed from it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from dpsweep.accounting import codec
from dpsweep.accounting.codec import OMITTED, Count, PositiveInt, Stored, Tagged
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import Capped, EachPoint, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.guarantee import Adjacency

Leaves = tuple[tuple["DpEvent", int], ...]  # with their multiplicities, in the order of their texts


@dataclass(frozen=True)
class DpEvent(Tagged):
    """A mechanism that reads private data."""

    @property
    def leaves(self) -> Leaves:
        """The mechanisms that it is composed of; a sampled event is one leaf, and no access is none."""
        return () if isinstance(self, NoOpDpEvent) else ((self, 1),)


def _require_event(name: str, value: object) -> None:
    if not isinstance(value, DpEvent):
        raise UnsupportedEvent(f"Expected {name} to be an event, got {event_name(value)}.")


def _require_one_of(kinds: tuple[type, ...], name: str, value: object) -> None:
    if not isinstance(value, kinds):
        raise TypeError(f"Expected {name}={value!r} to be {' or '.join(kind.__name__ for kind in kinds)}.")


Event = Annotated[DpEvent, _require_event]
Law = NegativeBinomial | Poisson | EachPoint
Noise = Annotated[float, codec.non_negative]
Rate = Annotated[float, codec.share]
OneAdjacency = Annotated[Adjacency, partial(_require_one_of, (Adjacency,))]


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

    @property
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
        return _merged((leaf, n * times) for event, n in _distinct(self.events) for leaf, times in event.leaves)


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
            raise ValueError(f"Expected sample_size={self.sample_size} <= {self.source_dataset_size} records.")


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

    epsilon: Annotated[float, codec.bound]
    delta: Annotated[float, codec.below_one]
    adjacency: OneAdjacency


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):
    """A Gaussian mechanism, its noise over a sensitivity that was proved for `adjacency`, or for both kinds if None."""

    noise_multiplier: Noise
    adjacency: OneAdjacency | None = None


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
class RandomAllocationDpEvent(DpEvent):
    """An epoch of `steps` Gaussian steps; each record is in one of them, drawn uniformly and kept secret."""

    steps: PositiveInt
    noise_multiplier: Noise


@dataclass(frozen=True)
class RoundedNumberDpEvent(DpEvent):
    """One number with Gaussian noise that a run releases, rounded to a lattice: beside the mechanism that has it."""


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
    """The best of independent runs of a mechanism, `limit` at most; only it is released.

    Their number is secret, or each point has one.
    """

    event: Event
    tries: Annotated[Law, partial(_require_one_of, get_args(Law))]
    limit: PositiveInt | None = None

    @property
    def law_of_tries_with_limit(self) -> Law | Capped:
        """The law of the number of tries that are made, with the limit."""
        if self.limit is None or isinstance(self.tries, EachPoint):
            return self.tries
        return Capped(tries=self.tries, limit=self.limit)


@dataclass(frozen=True)
class RandomStoppingDpEvent(DpEvent):
    """Liu and Talwar's random stopping: the best is released; the part `delta2` of delta pays for the hard stop."""

    event: Event
    tries: Annotated[Stopping, partial(_require_one_of, (Stopping,))]
    delta2: Annotated[float, codec.fraction]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tries.limit < math.log(1 / self.delta2) / self.tries.gamma:
            raise ValueError(f"Expected {self.tries} to reach its limit with probability delta2={self.delta2} at most.")


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

    event: Event
    tries: Annotated[Stopping, partial(_require_one_of, (Stopping,))]


SearchEvent = SelectionDpEvent | RandomStoppingDpEvent | ThresholdDpEvent


def event_name(event: object) -> str:
    """The name of a mechanism in a sentence; for an event of another library, also how to convert it."""
    if isinstance(event, DpEvent):
        return type(event).__name__.removesuffix("DpEvent")
    library = type(event).__module__.partition(".")[0]
    return f"{library}.{type(event).__name__}, which is no event of dpsweep: convert it with from_dp_accounting"


@dataclass(frozen=True, kw_only=True)
class _Versioned(Stored):
    version: Literal[1] = 1
    event: Event


def to_json(event: DpEvent) -> dict[str, Any]:
    """The exact, versioned JSON form."""
    return _Versioned(event=event).to_json()


def from_json(form: dict[str, Any]) -> DpEvent:
    """Reads `to_json`'s form, and nothing that says more or less than it: else raises ValueError or TypeError."""
    return _Versioned.from_json(form).event


@lru_cache(maxsize=2**15)
def canonical_text(event: DpEvent) -> str:
    """One text for equal events: the JSON form."""
    return json.dumps(event.to_json(), sort_keys=True)


def _merged(pairs: Iterable[tuple[DpEvent, int]]) -> Leaves:
    counts: dict[DpEvent, int] = {}
    for event, count in pairs:
        counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda pair: canonical_text(pair[0])))


def _distinct(events: Sequence[DpEvent]) -> list[tuple[DpEvent, int]]:
    every = {id(event): event for event in events}  # a million proposed runs are few objects, and slow to hash
    return [(every[place], count) for place, count in Counter(map(id, events)).items()]


def repeat(event: DpEvent, count: int) -> DpEvent:
    """The same mechanism `count` times, each with fresh randomness."""
    return SelfComposedDpEvent(event=event, count=count)


def compose(events: Iterable[DpEvent]) -> DpEvent:
    """All of these mechanisms on the same records; equal leaves are merged, and leaves are in a canonical order."""
    return ComposedDpEvent(tuple(repeat(leaf, count) for leaf, count in ComposedDpEvent(tuple(events)).leaves))


def canonical_event(event: DpEvent) -> DpEvent:
    """The canonical form of one mechanism: a single leaf as itself, anything else as a sorted composition."""
    leaves = leaves_with_counts(event)
    return leaves[0][0] if [count for _, count in leaves] == [1] else compose([event])


def leaves_with_counts(event: DpEvent) -> Leaves:
    """`DpEvent.leaves`; raises `UnsupportedEvent` for an event of another library, so every accountant refuses it."""
    _require_event("event", event)
    return event.leaves


def mechanisms_with_counts(event: DpEvent) -> Leaves:
    """The leaves with their multiplicities, without rounded numbers."""
    return tuple(pair for pair in leaves_with_counts(event) if not isinstance(pair[0], RoundedNumberDpEvent))


def number_of_rounded_numbers(event: DpEvent) -> int:
    """The rounded numbers beside the mechanisms of a composition, without those inside of its searches."""
    return sum(count for leaf, count in leaves_with_counts(event) if isinstance(leaf, RoundedNumberDpEvent))


def are_same_events(left: DpEvent, right: DpEvent) -> bool:
    """Whether two events are the same mechanisms with the same counts, for every nesting and order."""
    return leaves_with_counts(left) == leaves_with_counts(right)


def poisson_sampled(event: DpEvent, *, sample_rate: float) -> DpEvent:
    """Any mechanism on a secret Poisson sample that contains each record with probability `sample_rate`."""
    return PoissonSampledDpEvent(sampling_probability=float(sample_rate), event=canonical_event(event))


def _canonical_with_counts(events: Iterable[DpEvent]) -> Leaves:
    return _merged((canonical_event(event), count) for event, count in _distinct(list(events)))


def worst_of_events(events: Iterable[DpEvent]) -> DpEvent:
    """One of these, chosen independently of the data: the event itself if all are equal, else their pointwise worst."""
    kinds = tuple(event for event, _ in _canonical_with_counts(events))
    return WorstDpEvent(events=kinds) if len(kinds) > 1 else (*kinds, NoOpDpEvent())[0]


def mixture(events: Iterable[DpEvent]) -> DpEvent:
    """One of these, drawn uniformly and independently of the data, with the draw in the output."""
    distinct = _canonical_with_counts(events)
    if len(distinct) <= 1:
        return worst_of_events(event for event, _ in distinct)
    kinds, counts = zip(*distinct, strict=True)
    return MixtureDpEvent(events=kinds, counts=tuple(count // math.gcd(*counts) for count in counts))


def as_gaussian_step(event: DpEvent, adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE) -> tuple[float, float] | None:
    """(sample_rate, noise_multiplier) of a Gaussian mechanism, Poisson-sampled or with rate 1; else None.

    A stated noise counts twice under replacement: there the sum changes by one norm bound, and not by two.
    """
    if isinstance(event, NonPrivateDpEvent):
        return 1.0, 0.0
    if isinstance(event, GaussianDpEvent | EpochDpEvent):
        return getattr(event, "sampling_probability", 1.0), float(event.noise_multiplier)
    if isinstance(event, StatedGaussianDpEvent) and event.adjacency in (None, adjacency):
        return 1.0, event.noise_multiplier * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return float(event.sampling_probability), float(event.event.noise_multiplier)
    return None


def as_fixed_batch_step(event: DpEvent) -> tuple[int, int, float] | None:
    """(batch_size, records, noise_multiplier) of a Gaussian step on a batch without replacement; else None."""
    if isinstance(event, SampledWithoutReplacementDpEvent) and isinstance(event.event, GaussianDpEvent):
        return int(event.sample_size), int(event.source_dataset_size), float(event.event.noise_multiplier)
    return None


def step_on_shared_subsample(*, sample_rate: float, noise_multipliers: Sequence[float]) -> DpEvent:
    """One step of several trials on the *same* Poisson subsample, each with its own noise.

    The concatenated sums, each scaled by its noise, are one Gaussian mechanism: noise 1 / sqrt(sum 1 / noise^2).
    """
    for noise in noise_multipliers:
        codec.non_negative("noise_multiplier", noise)
    if not noise_multipliers:
        return NoOpDpEvent()
    precision = sum(math.inf if noise == 0 else noise**-2 for noise in noise_multipliers)
    return PoissonSampledDpEvent(sampling_probability=float(sample_rate), event=GaussianDpEvent(precision**-0.5))


def runs_on_shared_batches(runs: Iterable[DpEvent]) -> DpEvent:
    """Runs of Poisson-sampled Gaussian steps on the *same* batches: those that have not ended share each step.

    Raises ValueError for runs of other steps.
    """
    shared: list[tuple[int, float, float]] = []
    parts: list[DpEvent] = []
    for run in runs:
        steps = mechanisms_with_counts(run)
        step = as_gaussian_step(steps[0][0]) if [type(leaf) for leaf, _ in steps] == [PoissonSampledDpEvent] else None
        if step is None:
            raise ValueError(f"Expected run={run} to repeat one Poisson-sampled Gaussian step.")
        shared.append((steps[0][1], *step))
        parts.append(repeat(RoundedNumberDpEvent(), number_of_rounded_numbers(run)))
    if len(rates := {rate for _, rate, _ in shared}) > 1:
        raise ValueError(f"Expected sample_rate={sorted(rates)} of runs that share their batches to be one.")
    for before, length in pairwise(sorted({0, *(steps for steps, _, _ in shared)})):
        noises = [noise for steps, _, noise in shared if steps >= length]
        together = step_on_shared_subsample(sample_rate=min(rates), noise_multipliers=noises)
        parts.append(repeat(together, length - before))
    return compose(parts)


FINAL, SEALED = "final", "sealed"  # the first word of what only a final run reads; what only a card reads


@dataclass(frozen=True, kw_only=True)
class PlanEvent:
    """A plan's events on disjoint populations: the training records, and the held-out records for scores, if any.

    `final` is a final run on records that the search does not read, split in the same way. `sealed` is the one query on
    a sealed part about the model that is handed over: no rule wraps or amplifies it.
    *Guarantee*: with one public, fixed split, every record is in one part, so the whole costs the pointwise maximum of
    the parts, not their sum (parallel composition).
    """

    training: DpEvent
    validation: DpEvent | None = None
    final: PlanEvent | None = None
    sealed: DpEvent | None = None

    @property
    def events_by_population(self) -> dict[str, DpEvent]:
        """The populations by name."""
        final = {} if self.final is None else self.final.events_by_population
        parts = {"training": self.training, "validation": self.validation}
        parts |= {f"{FINAL} {name}": part for name, part in final.items()} | {SEALED: self.sealed}
        return {name: part for name, part in parts.items() if part is not None}

    @classmethod
    def from_events_by_population(cls, parts: Mapping[str, DpEvent]) -> PlanEvent:
        """The plan event with these populations; raises TypeError for an unknown name or without training records."""
        own = {name: part for name, part in parts.items() if not name.startswith(f"{FINAL} ")}
        final = {name.removeprefix(f"{FINAL} "): part for name, part in parts.items() if name not in own}
        return cls(**own, final=cls.from_events_by_population(final) if final else None)

    def composed_with(self, other: PlanEvent) -> PlanEvent:
        """Both on the same records: what reads the same population adds."""
        parts, others = self.events_by_population, other.events_by_population
        both = {name: compose([part, others[name]]) for name, part in parts.items() if name in others}
        return PlanEvent.from_events_by_population(parts | others | both)

    def is_same_as(self, other: PlanEvent) -> bool:
        """Whether the other plan event is the same mechanisms on the same populations."""
        ours, theirs = (event.events_by_population.items() for event in (self, other))
        return {name: part.leaves for name, part in ours} == {name: part.leaves for name, part in theirs}

    def to_json(self) -> dict[str, Any]:
        """The forms of the events, by population."""
        return {name: to_json(part) for name, part in self.events_by_population.items()}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> PlanEvent:
        """Reads `to_json`'s form."""
        return cls.from_events_by_population({name: from_json(part) for name, part in form.items()})


def worst_plan_event_per_population(points: Sequence[PlanEvent]) -> PlanEvent:
    """An event that costs at least as much as each of these, for every population that one of them has."""
    every = [point.events_by_population for point in points]
    names = dict.fromkeys(name for parts in every for name in parts)
    worst = {name: worst_of_events(parts[name] for parts in every if name in parts) for name in names}
    return PlanEvent.from_events_by_population(worst)
