"""The words that events are made of: the library's, and ours for claims, counts and searches that keep only the best.

Ours are frozen values like the library's own. `accounting/events/build.py` builds and validates all of them.
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

from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Stopping
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
    """A mechanism of which only its (epsilon, delta) claim is known, for neighbours of one kind."""

    epsilon: float
    delta: float
    adjacency: Adjacency


@dataclass(frozen=True)
class StatedGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """A Gaussian mechanism whose sensitivity is stated for the neighbours at hand and not doubled by replacement.

    `noise_multiplier` is the noise over that sensitivity. `adjacency` names the neighbours that it was stated for, None
    where it holds for both kinds, as for a count.
    """

    noise_multiplier: float
    adjacency: Adjacency | None = None


@dataclass(frozen=True)
class EpochDpEvent(DpEvent):  # type: ignore[misc]
    """So many steps, each a Gaussian mechanism on a sum, of which every record is in exactly one: as private as one."""

    steps: int
    noise_multiplier: float


@dataclass(frozen=True)
class NoisyMaxDpEvent(DpEvent):  # type: ignore[misc]
    """The index alone of the largest of any number of counts, each with Gumbel noise of this scale (in counts)."""

    noise_scale: float


@dataclass(frozen=True)
class WorstDpEvent(DpEvent):  # type: ignore[misc]
    """One of several mechanisms, chosen without looking at the data: as private as the worst at each order."""

    events: tuple[DpEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True)
class SelectionDpEvent(DpEvent):  # type: ignore[misc]
    """The best of a secret random number of independent runs of one mechanism; only that one is seen.

    `limit` ends the search after so many tries; None lets the law decide alone.
    """

    event: DpEvent
    tries: NegativeBinomial | Poisson
    limit: int | None = None


@dataclass(frozen=True)
class RandomStoppingDpEvent(DpEvent):  # type: ignore[misc]
    """Liu and Talwar's random stopping with a hard stop: the best of the tries made; only that one is seen."""

    event: DpEvent
    tries: Stopping
    delta2: float


@dataclass(frozen=True)
class ThresholdDpEvent(DpEvent):  # type: ignore[misc]
    """Liu and Talwar's known threshold: the first try whose score reaches a public threshold, or none."""

    event: DpEvent
    tries: Stopping


def word(event: DpEvent) -> str:
    """What a mechanism is called in a sentence.

    >>> word(GaussianDpEvent(noise_multiplier=1.0))
    'Gaussian'
    """
    return type(event).__name__.removesuffix("DpEvent")
