"""Tuning on a secret random part of the records, then one training run with the winning hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from dpsweep.accounting import numbers
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.selection.interface import (
    Disclosure,
    Draw,
    Search,
    SelectionRule,
    require_points,
)


class TrainOn(StrEnum):
    """The records of the winner's final training run."""

    ALL = "all"
    REST = "rest"


@dataclass(frozen=True, kw_only=True)
class Subsampled:
    """A rule on a part that each record joins with probability `rate`, then the winner's run on all or the rest.

    *Guarantee*: the composition of the sampled search and one full run. A point's event describes its run on all
    records; with the same noise, steps and sample rate on the part's records it is the event of that run too. Held-out
    records join the part by the same coins, and the final score reads all of them. The part is secret; the final model
    and the results that `rule` releases, of the runs on the part, may be released.

    The rest costs no more than all. Let r_A be the likelihood ratio of the search with the record in the part, r_B that
    of the final run given the search's outcome. On the rest the ratio is X = (1 - q) r_B + q r_A, on all it is
    Y = (1 - q + q r_A) r_B. Given the outcome both have mean m = 1 - q + q r_A, and X - m = (1 - q) (r_B - 1) while
    Y - m = m (r_B - 1) with m >= 1 - q: Y is larger in convex order, and so is its every hockey-stick, both ways.
    *Source*: Koskela and Kulkarni 2023 (Practical Differentially Private Hyperparameter Tuning with Subsampling).
    """

    rate: float
    rule: SelectionRule
    train_on: TrainOn = TrainOn.REST

    def __post_init__(self) -> None:
        numbers.share("rate", self.rate)
        object.__setattr__(self, "train_on", TrainOn(self.train_on))
        if not callable(getattr(self.rule, "event", None)):
            raise TypeError(f"Expected rule={self.rule!r} to be a selection rule.")

    @property
    def name(self) -> str:
        """The rule's name in commands and reports."""
        return f"subsampled {self.rule.name}"

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """The disclosures of the rule on the part."""
        return self.rule.discloses

    @property
    def execution(self) -> None:
        """None: the search on a part is priced only."""
        return None

    def check(self, search: Search) -> None:
        """Refuses every search that the rule on the part refuses."""
        self.rule.check(search)

    def expected_tries(self, n_points: int) -> float:
        """The tries on the part; the final run is not counted."""
        return self.rule.expected_tries(n_points)

    def chance_of_best(self, n_points: int, share: float) -> float:
        """The chance of the rule on the part; best means best on the part."""
        return self.rule.chance_of_best(n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """The tries on the part."""
        return self.rule.draw(n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The sampled search composed with one run of the worst point on all records."""
        require_points(len(trials))
        search = self.rule.event(trials)
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=self._then(search.training, [trial.training for trial in trials]),
            validation=self._then(search.validation, scored) if search.validation is not None else None,
        )

    def _then(self, search: DpEvent, runs: Sequence[DpEvent]) -> DpEvent:
        return events.compose([events.sampled_part(search, sample_rate=self.rate), events.worst(runs)])
