"""Tuning on one part of the records, and a final run of the winning point on the other part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from dpsweep.accounting import numbers
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import Disclosure, Draw, Execution, Search


class Use(StrEnum):
    """The use of a part of the records."""

    SEARCH = "search"
    FINAL = "final"


@dataclass(frozen=True, kw_only=True)
class DisjointParts:
    """Every point once on a public, fixed part of the records, then the winning point once on all other records.

    `share` is the share of the records that the search reads. A unit's part depends on nothing but the unit and a
    public key (`trainers/data/parts.py`), so each unit is in one of four cells: the training or the held-out records of
    the search, or those of the final run.

    `carry` is the exponent by which the final run's learning rate grows with the ratio of the noise: the noise per
    example of the search over that of the final run. 0 keeps the learning rate, 1 is the linear scaling rule.

    *Guarantee*: the maximum over the cells, not their sum: the composition of all points for the search's cells, and
    one run of the worst point for those of the final run. The winner is post-processing of what the search releases.
    *Source*: adaptive parallel composition (McSherry 2009, Theorem 4).
    """

    share: float = 0.2
    carry: float = 0.75

    def __post_init__(self) -> None:
        numbers.fraction("share", self.share)
        numbers.non_negative("carry", self.carry)

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return "disjoint parts"

    def part(self, use: Use) -> dict[str, float | str]:
        """The part of the records that the runs of this use read, as their configurations state it."""
        return {"share": self.share, "use": use.value}

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """Everything: each run is paid for in full."""
        return frozenset(Disclosure)

    @property
    def execution(self) -> Execution:
        """Every point once, or the points that a sampler proposes; then the final run."""
        return Execution.EVERY_POINT

    def check(self, search: Search) -> None:
        """Accepts every search: proposals and the winner only read results that are paid for."""

    def expected_tries(self, n_points: int) -> float:
        """All points; the final run tries nothing new."""
        return Composition().expected_tries(n_points)

    def chance_of_best(self, n_points: int, share: float) -> float:
        """1: every point is tried."""
        return Composition().chance_of_best(n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """All points, in the order of the grid; no randomness is used."""
        return Composition().draw(n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The composition of all points on their part, and a final run of the worst point on the other part."""
        search = Composition().event(trials)
        return PlanEvent(training=search.training, validation=search.validation, final=events.costliest(trials).final)
