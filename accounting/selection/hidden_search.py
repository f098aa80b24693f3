"""The shared base of all rules that release only the winner of independent tries.

Each of these rules is one theorem: it makes one `HiddenSearch` over a number of points, whose event names the law of
the number of tries. This module derives the draw, the disclosures, the kind of search and the price from that event:

* Drawn tries are uniform, independent and with replacement, as their theorems require. The event wraps the mixture of
  the points, for the training records and for the held-out ones: a try draws its point and outputs it with the model
  and the score.
* Where each point runs once, nothing is drawn, and the event wraps the dearest point.
* Points come from a list made beforehand, and no run depends on another one's score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from dpsweep.accounting import validation
from dpsweep.accounting.events.build import DpEvent, PlanEvent, mixture, worst_of_events
from dpsweep.accounting.events.trial_counts import (
    EachPoint,
    NegativeBinomial,
    Poisson,
    Stopping,
    chance_to_draw_best_share,
)
from dpsweep.accounting.events.types import RandomStoppingDpEvent, SelectionDpEvent, ThresholdDpEvent
from dpsweep.accounting.selection.interface import (
    THE_WINNER,
    Disclosure,
    Draw,
    Search,
    SelectionRule,
    check_search_allows_hiding_losers,
    number_of_best_points,
    require_at_least_one_point,
)

SearchEvent = SelectionDpEvent | RandomStoppingDpEvent | ThresholdDpEvent


@dataclass(frozen=True, kw_only=True)
class HiddenSearch:
    """A search that releases only its winner: `event` is its event over runs that cost nothing.

    The winner is the best try, or the first try whose score reaches `threshold` if one is given.
    """

    event: SearchEvent
    threshold: float | None = None

    @property
    def law_of_number_of_tries(self) -> NegativeBinomial | Poisson | Stopping | EachPoint:
        """The law of the number of tries."""
        law: NegativeBinomial | Poisson | Stopping | EachPoint = self.event.tries
        return law

    @property
    def is_each_try_drawn_at_random(self) -> bool:
        """Whether the tries are drawn from the points, and not each point once."""
        return not isinstance(self.law_of_number_of_tries, EachPoint)

    @property
    def largest_number_of_tries(self) -> int | None:
        """The largest number of drawn tries that are made; None if all are."""
        limit: int | None = self.event.limit if isinstance(self.event, SelectionDpEvent) else self.event.tries.limit
        return limit

    def chance_of_trying_best_share(self, n_points: int, share: float) -> float:
        """By the law of the number of tries, less the chance that `limit` ends the search; 1 for all points."""
        if not self.is_each_try_drawn_at_random:
            validation.share("share", share)
            return 1.0
        chance = chance_to_draw_best_share(
            self.law_of_number_of_tries, number_of_best_points(n_points, share) / n_points
        )
        return (
            chance
            if self.largest_number_of_tries is None
            else max(0.0, chance - self.law_of_number_of_tries.probability_beyond(self.largest_number_of_tries))
        )

    def draw_tries(self, n_points: int, rng: Random) -> Draw:
        """Uniform tries, whose number follows the law, up to `limit`; or all points, in the order of the grid."""
        if not self.is_each_try_drawn_at_random:
            return Draw(tries=tuple(range(n_points)))
        count = self.law_of_number_of_tries.sample(rng)
        count = count if self.largest_number_of_tries is None else min(count, self.largest_number_of_tries)
        return Draw(tries=tuple(rng.randrange(n_points) for _ in range(count)), threshold=self.threshold)

    def over(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search over these points, for each part of the records."""
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=self._event_over_runs([trial.training for trial in trials]),
            validation=self._event_over_runs(scored) if scored else None,
        )

    def _event_over_runs(self, runs: Sequence[DpEvent]) -> DpEvent:
        return replace(self.event, event=mixture(runs) if self.is_each_try_drawn_at_random else worst_of_events(runs))


class HiddenSearchRule(SelectionRule):
    """A selection rule that is one hidden search; the answers of `SelectionRule` follow from that search."""

    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER
    """The winner and its score."""

    draws_in_secret: ClassVar[bool] = True

    @abstractmethod
    def hidden_search_over_points(self, n_points: int) -> HiddenSearch:
        """The search over `n_points` points, at least one."""

    def search_kind(self, search: Search) -> str:
        """The tries of a secret draw."""
        return "secret_draw"

    def check_search_is_covered(self, search: Search) -> None:
        """Refuses adaptive proposals, pruning and shared subsamples."""
        check_search_allows_hiding_losers(self.name, search)

    def expected_tries(self, n_points: int) -> float:
        """The mean of the law; `limit` lowers it only if the law itself includes the limit."""
        return self._hidden_search_with_checked_count(n_points).law_of_number_of_tries.mean

    def chance_of_trying_best_share(self, n_points: int, share: float) -> float:
        """The search's own chance; a threshold is assumed to be the score that the best `share` reach."""
        return self._hidden_search_with_checked_count(n_points).chance_of_trying_best_share(n_points, share)

    def draw_tries(self, n_points: int, rng: Random) -> Draw:
        """The search's own draw; it may be empty."""
        return self._hidden_search_with_checked_count(n_points).draw_tries(n_points, rng)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search over these points."""
        return self._hidden_search_with_checked_count(len(trials)).over(trials)

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only a rule is run that shows no more than its search covers: no number of tries if that is drawn."""
        is_drawn = self._hidden_search_with_checked_count(len(trials)).is_each_try_drawn_at_random
        shown = THE_WINNER if is_drawn else THE_WINNER | {Disclosure.NUMBER_OF_TRIES}
        return self.discloses <= shown and super().is_event_charged_for_trials(event, trials)

    def charge_of_unequal_points_text(self, search: Search) -> str:
        """At the mean of their prices where every try draws its point, at the worst where each runs once."""
        if Disclosure.NUMBER_OF_TRIES in self.discloses:
            return super().charge_of_unequal_points_text(search)
        return (
            "charges the mean of their deltas at each epsilon, since every try draws its point at random and names it"
        )

    def draw_conditions_and_whether_met(self, draw: Draw, n_points: int) -> Mapping[str, bool]:
        """Tries of points as they are, no more than the search pays for."""
        search = self._hidden_search_with_checked_count(n_points)
        first_good = isinstance(search.event, ThresholdDpEvent)
        return {
            "compare scores as they are": not draw.handicaps,
            "have a threshold if its event has one": (draw.threshold is not None) == first_good,
            f"try points of {range(n_points)}": all(point in range(n_points) for point in draw.tries),
            f"make at most {search.largest_number_of_tries} tries": search.largest_number_of_tries is None
            or len(draw.tries) <= search.largest_number_of_tries,
            "try each point once": search.is_each_try_drawn_at_random or sorted(draw.tries) == list(range(n_points)),
        }

    def _hidden_search_with_checked_count(self, n_points: int) -> HiddenSearch:
        require_at_least_one_point(n_points)
        return self.hidden_search_over_points(n_points)
