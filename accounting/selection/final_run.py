"""Any rule, followed by one more run of the winning point, which is paid for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.disjoint_parts import DisjointParts
from dpsweep.accounting.selection.interface import (
    Disclosure,
    Draw,
    FinalRunTerms,
    Search,
    SelectionRule,
    Use,
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

    def search_kind(self, search: Search) -> str:
        """The search's own; the final run follows it."""
        return self.rule.search_kind(search)

    @property
    def draws_in_secret(self) -> bool:
        """Whether the search's own are."""
        return self.rule.draws_in_secret

    def index_of_winning_run(self, scores: Mapping[int, float], points: Sequence[int], repeats: int = 1) -> int | None:
        """The search's own."""
        return self.rule.index_of_winning_run(scores, points, repeats)

    @property
    def final_run_terms(self) -> FinalRunTerms:
        """The winning point on the same records."""
        return FinalRunTerms(
            parts=dict.fromkeys(Use),
            carry=None,
            records="the same records",
            statement="The best point ran once more on the same {unit}s. Its price is part of the claim, and its score "
            "is not the best of several.",
        )

    @property
    def curator_assertion_sentence(self) -> str | None:
        """The search's own."""
        return self.rule.curator_assertion_sentence

    def refusal_of_scores_sentence(self, *, private: bool, metrics: Collection[str]) -> str:
        """The search's own."""
        return self.rule.refusal_of_scores_sentence(private=private, metrics=metrics)

    def charge_of_unequal_points_text(self, search: Search) -> str:
        """The search's own."""
        return self.rule.charge_of_unequal_points_text(search)

    @property
    def name_of_point_score(self) -> str:
        """The search's own."""
        return self.rule.name_of_point_score

    def score_of_point(self, scores: Sequence[float]) -> float:
        """The search's own."""
        return self.rule.score_of_point(scores)

    def draw_conditions_and_whether_met(self, draw: Draw, n_points: int) -> Mapping[str, bool]:
        """The search's own conditions."""
        return self.rule.draw_conditions_and_whether_met(draw, n_points)

    def check_search_is_covered(self, search: Search) -> None:
        """Applies the search's own conditions."""
        self.rule.check_search_is_covered(search)

    def expected_tries(self, n_points: int) -> float:
        """The search's own number; the final run tries nothing new."""
        return self.rule.expected_tries(n_points)

    def chance_of_trying_best_share(self, n_points: int, share: float) -> float:
        """The search's own chance."""
        return self.rule.chance_of_trying_best_share(n_points, share)

    def draw_tries(self, n_points: int, rng: Random) -> Draw:
        """The search's own draw."""
        return self.rule.draw_tries(n_points, rng)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search composed with one final run of the worst point, for each population."""
        search, final = self._search_and_worst_final_run(trials)
        return search if final is None else search.composed_with(final)

    def _search_and_worst_final_run(self, trials: Sequence[PlanEvent]) -> tuple[PlanEvent, PlanEvent | None]:
        """The event of the search alone, and that of the worst final run; None if no point has one."""
        search = self.rule.event([replace(trial, final=None) for trial in trials])
        return search, events.worst_plan_event_per_population(trials).final
