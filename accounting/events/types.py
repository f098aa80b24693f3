"""The classes of events: the library's, and ours for claims, counts, epochs and private selection.

Our classes are frozen values like the library's own. `accounting/events/build.py` builds and validates all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting.dp_event import (
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

from dpsweep.accounting.events.bounded_counts import Stopping
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency

__all__ = [
    "BlackBoxDpEvent",
    "ComposedDpEvent",
    "DpEvent",
    "EpochDpEvent",
    "GaussianDpEvent",
    "NoOpDpEvent",
    "NoisyMaxDpEvent",
    "NonPrivateDpEvent",
    "PoissonSampledDpEvent",
    "RandomStoppingDpEvent",
    "SampledWithoutReplacementDpEvent",
    "SelectionDpEvent",
    "SelfComposedDpEvent",
    "StatedGaussianDpEvent",
    "ThresholdDpEvent",
    "TruncatedSubsampledGaussianDpEvent",
    "WorstDpEvent",
    "word",
]


@dataclass(frozen=True)
class BlackBoxDpEvent(DpEvent):  # type: ignore[misc]
    """A mechanism that is known only by its (epsilon, delta) claim, for one adjacency."""

    epsilon: float
    delta: float
    adjacency: Adjacency


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """A Gaussian mechanism with a sensitivity stated for `adjacency`, so that replacement does not double it.

    `noise_multiplier` is the noise over that sensitivity. `adjacency` is None if the sensitivity holds for both kinds
    of neighbours, as for a count.
    """

    noise_multiplier: float
    adjacency: Adjacency | None = None


@dataclass(frozen=True)
class EpochDpEvent(DpEvent):  # type: ignore[misc]
    """An epoch: `steps` Gaussian steps with every record in exactly one of them; as private as one Gaussian step."""

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class NoisyMaxDpEvent(DpEvent):  # type: ignore[misc]
    """The index, but not the value, of the largest of several counts with Gumbel noise of this scale (in counts)."""

    noise_scale: float


@dataclass(frozen=True)
class WorstDpEvent(DpEvent):  # type: ignore[misc]
    """One of several mechanisms, chosen independently of the data: as private as the worst of them at each order."""

    events: tuple[DpEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True)
class SelectionDpEvent(DpEvent):  # type: ignore[misc]
    """The best of a secret random number of independent runs of one mechanism; only this best run is released.

    `limit` ends the search after this number of tries; None sets no limit.
    """

    event: DpEvent
    tries: NegativeBinomial | Poisson
    limit: int | None = None


@dataclass(frozen=True)
class RandomStoppingDpEvent(DpEvent):  # type: ignore[misc]
    """Liu and Talwar's random stopping with a hard stop: only the best of the tries is released."""

    event: DpEvent
    tries: Stopping
    delta2: float


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):  # type: ignore[misc]
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

    event: DpEvent
    tries: Stopping


def word(event: DpEvent) -> str:
    """The name of a mechanism in a sentence.

    >>> word(GaussianDpEvent(noise_multiplier=1.0))
    'Gaussian'
    """
    return type(event).__name__.removesuffix("DpEvent")
