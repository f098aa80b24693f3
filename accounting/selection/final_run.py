"""Any rule, followed by one more full training run of the winner, which is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.selection.interface import Disclosure, Draw, Search, SelectionRule


@dataclass(frozen=True, kw_only=True)
class Final:
    """A search by `rule`, then one further run of the winning point.

    *Guarantee*: the search composed with the pointwise worst single run: the winner is not known beforehand.
    """

    rule: SelectionRule

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return f"{self.rule.name} + final run"

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """The search's own disclosures; the further run is paid for in full."""
        return self.rule.discloses

    @property
    def execution(self) -> None:
        """None: the further run is priced only."""
        return None

    def check(self, search: Search) -> None:
        """Applies the search's own conditions."""
        self.rule.check(search)

    def expected_tries(self, n_points: int) -> float:
        """The search's own number; the further run tries nothing new."""
        return self.rule.expected_tries(n_points)

    def chance_of_best(self, n_points: int, share: float) -> float:
        """The search's own chance."""
        return self.rule.chance_of_best(n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """The search's own draw."""
        return self.rule.draw(n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search composed with one run of the worst point."""
        search = self.rule.event(trials)
        run = events.worst(trial.training for trial in trials)
        return PlanEvent(training=events.compose([search.training, run]), validation=search.validation)
