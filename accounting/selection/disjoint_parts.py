"""Tuning on one part of the records, and a final run of the winning point on the other part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpsweep.accounting.codec import Fraction, NonNegative
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import FinalRunTerms


@dataclass(frozen=True, kw_only=True)
class DisjointParts(Composition):
    """A composition on a public, fixed part of the records, then the winning point once on all other records.

    `share` is the share of the records that the search reads. A unit's part depends on nothing but the unit and a
    public key (`trainers/data/split.py`), so each unit is in one of four cells: the training or the held-out records of
    the search, or those of the final run.

    `carry` is the exponent by which the final run's learning rate grows with the ratio of the noise: the noise per
    example of the search over that of the final run. 0 keeps the learning rate, 1 is the linear scaling rule.

    *Guarantee*: the maximum over the cells, not their sum: the composition of all points for the search's cells, and
    one run of the worst point for those of the final run. The winner is post-processing of what the search releases.
    *Source*: adaptive parallel composition (McSherry 2009, Theorem 4).
    """

    works: ClassVar[tuple[str, ...]] = ("mcsherry2009privacy",)
    name: ClassVar[str] = "disjoint parts"

    share: Fraction = 0.2
    carry: NonNegative = 0.75

    @property
    def final_run_terms(self) -> FinalRunTerms:
        """The winning point on all records that the search does not read."""
        return FinalRunTerms(share=self.share, carry=self.carry)

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only plans with a final run are run."""
        return event.final is not None and super().is_event_charged_for_trials(event, trials)
