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
from dpsweep.accounting.events.build import DpEvent, PlanEvent, mixture, worst
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Stopping, chance_of_best
from dpsweep.accounting.events.types import RandomStoppingDpEvent, SelectionDpEvent, ThresholdDpEvent
from dpsweep.accounting.selection.interface import (
    THE_WINNER,
    Disclosure,
    Draw,
    Search,
    SelectionRule,
    best_points,
    check_hidden_search,
    require_points,
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
    def law(self) -> NegativeBinomial | Poisson | Stopping | EachPoint:
        """The law of the number of tries."""
        law: NegativeBinomial | Poisson | Stopping | EachPoint = self.event.tries
        return law

    @property
    def drawn(self) -> bool:
        """Whether the tries are drawn from the points, and not each point once."""
        return not isinstance(self.law, EachPoint)

    @property
    def limit(self) -> int | None:
        """The largest number of drawn tries that are made; None if all are."""
        limit: int | None = self.event.limit if isinstance(self.event, SelectionDpEvent) else self.event.tries.limit
        return limit

    def chance_of_best(self, n_points: int, share: float) -> float:
        """By the law of the number of tries, less the chance that `limit` ends the search; 1 for all points."""
        if not self.drawn:
            validation.share("share", share)
            return 1.0
        chance = chance_of_best(self.law, best_points(n_points, share) / n_points)
        return chance if self.limit is None else max(0.0, chance - self.law.beyond(self.limit))

    def draw(self, n_points: int, rng: Random) -> Draw:
        """Uniform tries, whose number follows the law, up to `limit`; or all points, in the order of the grid."""
        if not self.drawn:
            return Draw(tries=tuple(range(n_points)))
        count = self.law.sample(rng)
        count = count if self.limit is None else min(count, self.limit)
        return Draw(tries=tuple(rng.randrange(n_points) for _ in range(count)), threshold=self.threshold)

    def over(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search over these points, for each part of the records."""
        scored = [trial.validation for trial in trials if trial.validation is not None]
        return PlanEvent(
            training=self._over([trial.training for trial in trials]),
            validation=self._over(scored) if scored else None,
        )

    def _over(self, runs: Sequence[DpEvent]) -> DpEvent:
        return replace(self.event, event=mixture(runs) if self.drawn else worst(runs))


class HiddenSearchRule(SelectionRule):
    """A selection rule that is one hidden search; the answers of `SelectionRule` follow from that search."""

    discloses: ClassVar[frozenset[Disclosure]] = THE_WINNER
    """The winner and its score."""

    draws_in_secret: ClassVar[bool] = True

    @abstractmethod
    def search(self, n_points: int) -> HiddenSearch:
        """The search over `n_points` points, at least one."""

    def kind(self, search: Search) -> str:
        """The tries of a secret draw."""
        return "secret_draw"

    def check(self, search: Search) -> None:
        """Refuses adaptive proposals, pruning and shared subsamples."""
        check_hidden_search(self.name, search)

    def expected_tries(self, n_points: int) -> float:
        """The mean of the law; `limit` lowers it only if the law itself includes the limit."""
        return self._search(n_points).law.mean

    def chance_of_best(self, n_points: int, share: float) -> float:
        """The search's own chance; a threshold is assumed to be the score that the best `share` reach."""
        return self._search(n_points).chance_of_best(n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """The search's own draw; it may be empty."""
        return self._search(n_points).draw(n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search over these points."""
        return self._search(len(trials)).over(trials)

    def pays(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Only a rule is run that shows no more than its search covers: no number of tries if that is drawn."""
        shown = THE_WINNER if self._search(len(trials)).drawn else THE_WINNER | {Disclosure.NUMBER_OF_TRIES}
        return self.discloses <= shown and super().pays(event, trials)

    @property
    def unlike_points(self) -> str:
        """At the mean of their prices where every try draws its point, at the worst where each runs once."""
        if Disclosure.NUMBER_OF_TRIES in self.discloses:
            return super().unlike_points
        return (
            "charges the mean of their deltas at each epsilon, since every try draws its point at random and names it"
        )

    def draw_conditions(self, draw: Draw, n_points: int) -> Mapping[str, bool]:
        """Tries of points as they are, no more than the search pays for."""
        search = self._search(n_points)
        first_good = isinstance(search.event, ThresholdDpEvent)
        return {
            "compare scores as they are": not draw.handicaps,
            "have a threshold if its event has one": (draw.threshold is not None) == first_good,
            f"try points of {range(n_points)}": all(point in range(n_points) for point in draw.tries),
            f"make at most {search.limit} tries": search.limit is None or len(draw.tries) <= search.limit,
            "try each point once": search.drawn or sorted(draw.tries) == list(range(n_points)),
        }

    def _search(self, n_points: int) -> HiddenSearch:
        require_points(n_points)
        return self.search(n_points)
