"""The shared base of all rules that release only the winner of independent tries.

Each of these rules is one theorem: it makes one event of a search over a number of points, which names the law of
the number of tries. This module derives the draw, the disclosures, the kind of search and the price from that event:

* Drawn tries are uniform, independent and with replacement, as their theorems require. The event wraps the mixture of
  the points, for the training records and for the held-out ones: a try draws its point and outputs it with the model
  and the score.
* Where each point runs once, nothing is drawn, and the event wraps the dearest point.
* Points come from a list made beforehand, and no run depends on another one's score.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.events.build import PlanEvent, mixture, worst_of_events
from dpsweep.accounting.events.trial_counts import EachPoint, chance_to_draw_best_share
from dpsweep.accounting.events.types import RandomStoppingDpEvent, SelectionDpEvent, ThresholdDpEvent
from dpsweep.accounting.selection.composition import WholeGrid
from dpsweep.accounting.selection.interface import (
    THE_WINNER,
    Disclosure,
    Draw,
    PlannedTries,
    Search,
    SelectionRule,
    check_search_allows_hiding_losers,
)

SearchEvent = SelectionDpEvent | RandomStoppingDpEvent | ThresholdDpEvent


@dataclass(frozen=True, kw_only=True)
class DrawnTries:
    """Tries that are drawn from so many points; `event` is that of their search over runs that cost nothing.

    The winner is the best try, or the first try whose score reaches `threshold` if one is given.
    """

    points: int
    event: SearchEvent
    threshold: float | None = None

    @property
    def largest_number(self) -> int | None:
        """The largest number of tries that are made; None if all are."""
        limit: int | None = self.event.limit if isinstance(self.event, SelectionDpEvent) else self.event.tries.limit
        return limit

    @property
    def expected(self) -> float:
        """The mean of the law; `limit` lowers it only if the law itself includes the limit."""
        mean: float = self.event.tries.mean
        return mean

    def chance_of_best(self, share: float) -> float:
        """By the law of the number of tries, less the chance that `limit` ends the search.

        A threshold is assumed to be the score that the best `share` reach.
        """
        validation.share("share", share)
        best = max(1, math.ceil(share * self.points - 1e-9))
        beyond = 0.0 if self.largest_number is None else self.event.tries.probability_beyond(self.largest_number)
        return max(0.0, chance_to_draw_best_share(self.event.tries, best / self.points) - beyond)

    def draw(self, rng: Random) -> Draw:
        """Uniform tries, whose number follows the law, up to `limit`; there may be none."""
        count = self.event.tries.sample(rng)
        count = count if self.largest_number is None else min(count, self.largest_number)
        return Draw(tries=tuple(rng.randrange(self.points) for _ in range(count)), threshold=self.threshold)

    def conditions_on_draw(self, draw: Draw) -> Mapping[str, bool]:
        """Tries of points as they are, no more than the search pays for."""
        return {
            "compare scores as they are": not draw.handicaps,
            "have a threshold if its event has one": (draw.threshold is None) == (self.threshold is None),
            f"try points of {range(self.points)}": all(point in range(self.points) for point in draw.tries),
            f"make at most {self.largest_number} tries": len(draw.tries) <= (self.largest_number or len(draw.tries)),
        }


class HiddenSearchRule(SelectionRule):
    """A selection rule that is one hidden search; the answers of `SelectionRule` follow from that search."""

    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER
    """The winner and its score."""

    draws_in_secret: ClassVar[bool] = True

    @abstractmethod
    def search_event(self, n_points: int) -> SearchEvent:
        """The event of the search over so many points whose runs cost nothing; it names the law of their number."""

    def search_kind(self, search: Search) -> str:
        """The tries of a secret draw."""
        return "secret_draw"

    def check_search_is_covered(self, search: Search) -> None:
        """Refuses adaptive proposals, pruning and shared subsamples."""
        check_search_allows_hiding_losers(self.name, search)

    def _tries_over_points(self, n_points: int) -> PlannedTries:
        """Tries by the law of the event: drawn from the points, or each point once."""
        event = self.search_event(n_points)
        if isinstance(event.tries, EachPoint):
            return WholeGrid(points=n_points)
        return DrawnTries(points=n_points, event=event)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search over these points, for each part of the records."""
        validation.positive_int("n_points", len(trials))
        event = self.search_event(len(trials))
        one_of = worst_of_events if isinstance(event.tries, EachPoint) else mixture
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=replace(event, event=one_of([trial.training for trial in trials])),
            validation=replace(event, event=one_of(scored)) if scored else None,
        )

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only a rule is run that shows no more than its search covers: no number of tries if that is drawn."""
        is_drawn = isinstance(self.tries_over(len(trials)), DrawnTries)
        shown = THE_WINNER if is_drawn else THE_WINNER | {Disclosure.NUMBER_OF_TRIES}
        return self.discloses <= shown and super().is_event_charged_for_trials(event, trials)
