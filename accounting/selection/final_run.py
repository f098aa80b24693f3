"""Any rule, followed by one more run of the winning point, which is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.disjoint_parts import DisjointParts
from dpsweep.accounting.selection.interface import (
    Disclosure,
    FinalRunTerms,
    PlannedTries,
    Search,
    SelectionRule,
)
from dpsweep.accounting.selection.noisy_max import NoisyMax


@dataclass(frozen=True, kw_only=True)
class Final(SelectionRule):
    """A search by `rule`, then a final run of the winning point; its model is the one to hand over.

    *Guarantee*: the search composed with the pointwise worst final run, which is a point's `final`: the winner is not
    known beforehand. The final run has a score of its own, which is not biased by the choice of the best. Under a rule
    that hides losers, the winner is what the search releases, so the final run is post-processing of that and one more
    access to the records.
    """

    rule: SelectionRule

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(getattr(self.rule, "event", None)):
            raise TypeError(f"Expected rule={self.rule!r} to be a selection rule.")
        if isinstance(self.rule, DisjointParts | Final):
            raise BadInput(f"Expected final=true to be left out: {self.rule.name} has a final run already.")
        if isinstance(self.rule, NoisyMax):
            raise BadInput(f"Expected final=true to be left out: {self.rule.name} pays for no score that is shown.")

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return f"{self.rule.name} + final run"

    @property
    def works(self) -> tuple[str, ...]:
        """The works that the search leans on."""
        works: tuple[str, ...] = getattr(self.rule, "works", ())
        return works

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """The search's own disclosures; the final run is paid for in full."""
        return self.rule.discloses

    @property
    def draws_in_secret(self) -> bool:
        """Whether the search's own runs are tries of a secret draw."""
        return self.rule.draws_in_secret

    @property
    def final_run_terms(self) -> FinalRunTerms:
        """The winning point on the same records."""
        return FinalRunTerms()

    @property
    def name_of_point_score(self) -> str:
        """The search's own."""
        return self.rule.name_of_point_score

    def search_kind(self, search: Search) -> str:
        """The search's own; the final run follows it."""
        return self.rule.search_kind(search)

    def score_of_point(self, scores: Sequence[float]) -> float:
        """The search's own."""
        return self.rule.score_of_point(scores)

    def check_search_is_covered(self, search: Search) -> None:
        """Applies the search's own conditions."""
        self.rule.check_search_is_covered(search)

    def _tries_over_points(self, n_points: int) -> PlannedTries:
        """The search's own; the final run tries nothing new."""
        return self.rule.tries_over(n_points)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search's own."""
        return self.rule.event(trials)
