"""The classes of events: frozen values that describe mechanisms.

Names, fields and meaning of the first eight are those of `dp_accounting.dp_event`, the field's common vocabulary; they
are defined here because that package takes half a second to import and nothing else of it is used.

An event that cannot exist cannot be built: a negative count, a noise that is no number, or a hard stop that comes
before its price allows would be priced too low. Each class says what its fields may be, and raises ValueError or
TypeError for anything else, whoever builds it: `accounting/events/build.py`, a stored form, or another library's event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting import numbers
from dpsweep.accounting.events.bounded_counts import Capped, EachPoint, Stopping
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency

Check = Callable[[str, object], object]
"""Raises ValueError or TypeError unless the field of this name may have this value."""


def _event(name: str, value: object) -> None:
    """An event, of ours or of another library's, which accountants refuse by its name."""
    if not type(value).__name__.endswith("DpEvent"):
        raise TypeError(f"Expected {name}={value!r} to be an event.")


def _events(name: str, value: object) -> None:
    """A tuple of events."""
    if not isinstance(value, tuple):
        raise TypeError(f"Expected {name}={value!r} to be a sequence of events.")
    for one in value:
        _event(name, one)


def _counts(name: str, value: object) -> None:
    """A tuple of counts, 1 or above."""
    if not isinstance(value, tuple):
        raise TypeError(f"Expected {name}={value!r} to be a sequence of integers.")
    for one in value:
        numbers.positive_int(name, one)


def _epsilon(name: str, value: object) -> None:
    if not numbers.real(name, value) >= 0:
        raise ValueError(f"Expected {name}={value} >= 0.")


def _delta(name: str, value: object) -> None:
    if not 0 <= numbers.real(name, value) < 1:
        raise ValueError(f"Expected {name}={value} in [0, 1).")


def _adjacency(name: str, value: object) -> None:
    if value is not None and value not in list(Adjacency):
        raise ValueError(f"Expected {name}={value!r} to be one of {', '.join(Adjacency)}.")


def _limit(name: str, value: object) -> None:
    if value is not None:
        numbers.positive_int(name, value)


def _law(name: str, value: object) -> None:
    if not isinstance(value, (NegativeBinomial, Poisson, EachPoint)):
        raise TypeError(f"Expected {name}={value!r} to be the law of the tries of a search that does not stop.")


def _stopping(name: str, value: object) -> None:
    if not isinstance(value, Stopping):
        raise TypeError(f"Expected {name}={value!r} to be the law of a search that stops.")


@dataclass(frozen=True)
class DpEvent:
    """A mechanism that reads private data."""

    checks: ClassVar[Mapping[str, Check]] = {}

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            check(name, getattr(self, name))


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """No access to private data."""


@dataclass(frozen=True)
class NonPrivateDpEvent(DpEvent):
    """An access without any guarantee: epsilon is infinite."""


@dataclass(frozen=True)
class GaussianDpEvent(DpEvent):
    """A sum with Gaussian noise of `noise_multiplier` times the L2 bound of each record's contribution."""

    checks: ClassVar[Mapping[str, Check]] = {"noise_multiplier": numbers.non_negative}

    noise_multiplier: float


@dataclass(frozen=True)
class SelfComposedDpEvent(DpEvent):
    """A mechanism that runs `count` times, each run with knowledge of the earlier outputs."""

    checks: ClassVar[Mapping[str, Check]] = {"event": _event, "count": numbers.count}

    event: DpEvent
    count: int


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several mechanisms, each run with knowledge of the earlier outputs; stored as a tuple."""

    checks: ClassVar[Mapping[str, Check]] = {"events": _events}

    events: Sequence[DpEvent]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        super().__post_init__()


@dataclass(frozen=True)
class PoissonSampledDpEvent(DpEvent):
    """A mechanism on a sample that each record joins independently with `sampling_probability`."""

    checks: ClassVar[Mapping[str, Check]] = {"sampling_probability": numbers.share, "event": _event}

    sampling_probability: float
    event: DpEvent


@dataclass(frozen=True)
class SampledWithoutReplacementDpEvent(DpEvent):
    """A mechanism on `sample_size` distinct records, drawn uniformly from `source_dataset_size`."""

    checks: ClassVar[Mapping[str, Check]] = {
        "source_dataset_size": numbers.positive_int,
        "sample_size": numbers.positive_int,
        "event": _event,
    }

    source_dataset_size: int
    sample_size: int
    event: DpEvent

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

    checks: ClassVar[Mapping[str, Check]] = {
        "dataset_size": numbers.positive_int,
        "sampling_probability": numbers.share,
        "truncated_batch_size": numbers.positive_int,
        "noise_multiplier": numbers.non_negative,
    }

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float


@dataclass(frozen=True)
class BlackBoxDpEvent(DpEvent):
    """A mechanism that is known only by its (epsilon, delta) claim, for one adjacency."""

    checks: ClassVar[Mapping[str, Check]] = {"epsilon": _epsilon, "delta": _delta, "adjacency": _adjacency}

    epsilon: float
    delta: float
    adjacency: Adjacency


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):
    """A Gaussian mechanism with a sensitivity stated for `adjacency`, so that replacement does not double it.

    `noise_multiplier` is the noise over that sensitivity. `adjacency` is None if the sensitivity holds for both kinds
    of neighbours, as for a count.
    """

    checks: ClassVar[Mapping[str, Check]] = {"noise_multiplier": numbers.non_negative, "adjacency": _adjacency}

    noise_multiplier: float
    adjacency: Adjacency | None = None


@dataclass(frozen=True)
class EpochDpEvent(DpEvent):
    """An epoch: `steps` Gaussian steps with every record in exactly one of them; as private as one Gaussian step."""

    checks: ClassVar[Mapping[str, Check]] = {"steps": numbers.positive_int, "noise_multiplier": numbers.non_negative}

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class RandomAllocationDpEvent(DpEvent):
    """An epoch of `steps` Gaussian steps; each record is in one of them, drawn uniformly and kept secret."""

    checks: ClassVar[Mapping[str, Check]] = {"steps": numbers.positive_int, "noise_multiplier": numbers.non_negative}

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class NoisyMaxDpEvent(DpEvent):
    """The index, but not the value, of the largest of several counts with Gumbel noise of this scale (in counts)."""

    checks: ClassVar[Mapping[str, Check]] = {"noise_scale": numbers.non_negative}

    noise_scale: float


@dataclass(frozen=True)
class WorstDpEvent(DpEvent):
    """One of several mechanisms, chosen independently of the data: as private as the worst of them at each order."""

    checks: ClassVar[Mapping[str, Check]] = {"events": _events}

    events: tuple[DpEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        super().__post_init__()
        if not self.events:
            raise ValueError("Expected events to be at least one.")


@dataclass(frozen=True)
class MixtureDpEvent(DpEvent):
    """One of several mechanisms, drawn independently of the data in proportion to `counts`; the output names it."""

    checks: ClassVar[Mapping[str, Check]] = {"events": _events, "counts": _counts}

    events: tuple[DpEvent, ...]
    counts: tuple[int, ...]

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

    checks: ClassVar[Mapping[str, Check]] = {"event": _event, "tries": _law, "limit": _limit}

    event: DpEvent
    tries: NegativeBinomial | Poisson | EachPoint
    limit: int | None = None

    @property
    def made(self) -> NegativeBinomial | Poisson | EachPoint | Capped:
        """The law of the number of tries that are made, with the limit."""
        if self.limit is None or isinstance(self.tries, EachPoint):
            return self.tries
        return Capped(tries=self.tries, limit=self.limit)


@dataclass(frozen=True)
class RandomStoppingDpEvent(DpEvent):
    """Liu and Talwar's random stopping with a hard stop: only the best of the tries is released."""

    checks: ClassVar[Mapping[str, Check]] = {"event": _event, "tries": _stopping, "delta2": numbers.fraction}

    event: DpEvent
    tries: Stopping
    delta2: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tries.limit < math.log(1 / self.delta2) / self.tries.gamma:  # that part of delta pays for the hard stop
            raise ValueError(
                f"Expected tries={self.tries!r} to reach their limit with probability delta2={self.delta2} at most."
            )


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

    checks: ClassVar[Mapping[str, Check]] = {"event": _event, "tries": _stopping}

    event: DpEvent
    tries: Stopping


def word(event: DpEvent) -> str:
    """The name of a mechanism in a sentence; for an event of another library, also how to convert it.

    >>> word(GaussianDpEvent(noise_multiplier=1.0))
    'Gaussian'
    """
    if not isinstance(event, DpEvent):
        library = type(event).__module__.partition(".")[0]
        return f"{library}.{type(event).__name__}, which is no event of dpsweep: convert it with from_dp_accounting"
    return type(event).__name__.removesuffix("DpEvent")
