"""The classes of events: frozen values that describe mechanisms.

Names, fields and meaning of the first eight are those of `dp_accounting.dp_event`, the field's common vocabulary; they
are defined here because that package takes half a second to import and nothing else of it is used.
`accounting/events/build.py` builds and validates all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsweep.accounting.events.bounded_counts import Capped, EachPoint, Stopping
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency


@dataclass(frozen=True)
class DpEvent:
    """A mechanism that reads private data."""


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """No access to private data."""


@dataclass(frozen=True)
class NonPrivateDpEvent(DpEvent):
    """An access without any guarantee: epsilon is infinite."""


@dataclass(frozen=True)
class GaussianDpEvent(DpEvent):
    """A sum with Gaussian noise of `noise_multiplier` times the L2 bound of each record's contribution."""

    noise_multiplier: float


@dataclass(frozen=True)
class SelfComposedDpEvent(DpEvent):
    """A mechanism that runs `count` times, each run with knowledge of the earlier outputs."""

    event: DpEvent
    count: int


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several mechanisms, each run with knowledge of the earlier outputs; stored as a tuple."""

    events: Sequence[DpEvent]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True)
class PoissonSampledDpEvent(DpEvent):
    """A mechanism on a sample that each record joins independently with `sampling_probability`."""

    sampling_probability: float
    event: DpEvent


@dataclass(frozen=True)
class SampledWithoutReplacementDpEvent(DpEvent):
    """A mechanism on `sample_size` distinct records, drawn uniformly from `source_dataset_size`."""

    source_dataset_size: int
    sample_size: int
    event: DpEvent


@dataclass(frozen=True)
class TruncatedSubsampledGaussianDpEvent(DpEvent):
    """A Gaussian mechanism on a Poisson sample that is cut to `truncated_batch_size` records at random.

    `dataset_size` is the most records that there may be: with more, samples are cut more often, and it costs more.

    *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling).
    """

    dataset_size: int
    sampling_probability: float
    truncated_batch_size: int
    noise_multiplier: float


@dataclass(frozen=True)
class BlackBoxDpEvent(DpEvent):
    """A mechanism that is known only by its (epsilon, delta) claim, for one adjacency."""

    epsilon: float
    delta: float
    adjacency: Adjacency


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):
    """A Gaussian mechanism with a sensitivity stated for `adjacency`, so that replacement does not double it.

    `noise_multiplier` is the noise over that sensitivity. `adjacency` is None if the sensitivity holds for both kinds
    of neighbours, as for a count.
    """

    noise_multiplier: float
    adjacency: Adjacency | None = None


@dataclass(frozen=True)
class EpochDpEvent(DpEvent):
    """An epoch: `steps` Gaussian steps with every record in exactly one of them; as private as one Gaussian step."""

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class RandomAllocationDpEvent(DpEvent):
    """An epoch of `steps` Gaussian steps; each record is in one of them, drawn uniformly and kept secret."""

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class NoisyMaxDpEvent(DpEvent):
    """The index, but not the value, of the largest of several counts with Gumbel noise of this scale (in counts)."""

    noise_scale: float


@dataclass(frozen=True)
class WorstDpEvent(DpEvent):
    """One of several mechanisms, chosen independently of the data: as private as the worst of them at each order."""

    events: tuple[DpEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True)
class MixtureDpEvent(DpEvent):
    """One of several mechanisms, drawn independently of the data in proportion to `counts`; the output names it."""

    events: tuple[DpEvent, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        object.__setattr__(self, "counts", tuple(self.counts))
        if len(self.events) != len(self.counts) or min(self.counts, default=0) < 1:
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

    event: DpEvent
    tries: Stopping
    delta2: float


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

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
