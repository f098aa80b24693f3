"""Tuning on one part of the records, and a final run of the winning point on the other part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dpsweep.accounting.codec import Fraction, NonNegative
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.composition import Composition
from dpsweep.accounting.selection.interface import FinalRunTerms, Use


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
        return FinalRunTerms(
            parts={use: {"share": self.share, "use": use.value} for use in Use},
            carry=self.carry,
            records=f"the {1 - self.share:.0%} of the records that the search does not read",
            statement="The search read one part of the {unit}s, about "
            f"{self.share:.0%}; the best point then ran once more on all others. "
            "The part of a {unit} depends on {key} and a public key alone.",
            evidence=(
                "The final run's score comes from units that the search has not read; unlike the best score of the "
                "map, it is not the best of several.",
                "The learning rate of the final run is the best one times (the ratio of noise per {unit}) to the power "
                f"{self.carry:g}, as the plan declares.",
            ),
        )

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only plans with a final run are run."""
        return event.final is not None and super().is_event_charged_for_trials(event, trials)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The composition of all points on their part, and a final run of the worst point on the other part."""
        return replace(super()._event_of_points(trials), final=events.worst_plan_event_per_population(trials).final)
