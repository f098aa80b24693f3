"""Selection rules: one object decides the points to run, the price of the search, and the results to release.

Planner, runner and reporter ask the rule; none of them knows a rule by name. Invariants of every rule:

* `event` prices the whole search, for every possible result of `draw`; it never depends on the actual draw. A point
  that reads records which the rule does not price is refused, never dropped.
* A plan runs only if its event is the rule's over its points.
* `discloses` lists all results that the curator may release. The price covers no other result.
* A secret draw is stored before the first run, and never repeated, extended or cut short: a failed try stays in it with
  the worst score.
* A rule that hides losers wraps, for training and for held-out records alike, the mixture of the points: the score is
  part of the mechanism, and the point of each try is random.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Annotated, Any, ClassVar

from dpsweep.accounting.codec import OMITTED, Checked, Count, Fraction, NonNegative, Stored, positive_int
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.trial_counts import EachPoint, draw_number
from dpsweep.accounting.events.types import DpEvent, PlanEvent


class Disclosure(StrEnum):
    """A kind of result of a finished sweep that may be released."""

    WINNER = "winner"
    WINNER_SCORE = "winner_score"
    ALL_SCORES = "all_scores"
    NUMBER_OF_TRIES = "number_of_tries"


THE_WINNER = frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE})  # of a rule that hides losers


class Proposals(StrEnum):
    """The source of candidates: a list made beforehand, or suggestions from earlier scores."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a rule has to cover: `pruning` ends a run because of others' scores, `shared` subsamples serve all points.

    Each point runs `repeats` times. `spares` attempts are charged beforehand for what is killed. A run shows its score
    after each `curves_every` steps, None if at its end alone; with `scripts`, scripts of the user's train some points.
    """

    proposals: Proposals = Proposals.FIXED
    pruning: bool = False
    shared: bool = False
    repeats: int = 1
    spares: int = 0
    curves_every: object = None
    scripts: bool = False


@dataclass(frozen=True, kw_only=True)
class Draw(Stored):
    """The points to run, as indices into the plan's points, in the order of the tries; as secret as the noise.

    With a `threshold`, the winner is the first try whose score reaches it, if any does; otherwise the best try. With
    `handicaps`, one for each try, scores are numbers of correct predictions, to which these are added.
    """

    tries: tuple[Count, ...]
    threshold: Annotated[float | None, OMITTED] = None
    handicaps: Annotated[tuple[float, ...], OMITTED] = ()

    def index_of_winning_try(self, scores: Mapping[int, float | None]) -> int | None:
        """The first of the best among the ended tries, whose scores these are by index; a missing score is the worst.

        >>> Draw(tries=(4, 2, 4), threshold=0.9).index_of_winning_try({0: 0.3, 1: None, 2: 0.7}) is None
        True
        >>> Draw(tries=(0, 1), handicaps=(2.5, -1.0)).index_of_winning_try({0: 70, 1: 72})
        0
        """
        added = self.handicaps or (0.0,) * len(self.tries)
        known = {place: score + added[place] for place, score in sorted(scores.items()) if score is not None}
        if self.threshold is None:
            return max(known, key=known.__getitem__, default=None)
        return next((place for place, score in known.items() if score >= self.threshold), None)

    def over(self, scores: Mapping[int, float | None]) -> bool:
        """Whether the remaining tries cannot change the winner."""
        winner = None if self.threshold is None else self.index_of_winning_try(scores)
        return all(place in scores for place in range(len(self.tries) if winner is None else winner))


@dataclass(frozen=True, kw_only=True)
class FinalRun(Checked):
    """The run of the winning point after a search, which is paid for, and the records that both read.

    The search reads a `share` of the records, by `is_secret` coins or by a public key; None stands for all of them. The
    final run reads the others, or, with `reads_all`, all of them. Its learning rate grows with the ratio of the noise
    per example, that of the search over its own, to the power `carry`: 0 keeps the rate, 1 is the linear scaling rule.

    *Guarantee*: the search composed with the worst point's `final`, as the winner is not known beforehand. A rule that
    hides losers releases the winner, so the final run is post-processing of that and one more access. On other records
    by a public key, the maximum and not the sum (McSherry 2009, Theorem 4). On a secret part, the search is sampled,
    held-out records included, and the rest of the part costs no more than all. *Proof*: let r_A be the likelihood ratio
    of the search with the record in the part, r_B that of the final run given the search's outcome. On the rest the
    ratio is X = (1 - q) r_B + q r_A, on all it is Y = (1 - q + q r_A) r_B. Given the outcome both have mean
    m = 1 - q + q r_A, and X - m = (1 - q) (r_B - 1) while Y - m = m (r_B - 1) with m >= 1 - q: Y is larger in convex
    order, and so is its every hockey-stick, both ways.
    *Source*: Koskela and Kulkarni 2023 (Practical Differentially Private Hyperparameter Tuning with Subsampling).
    """

    share: Fraction | None = None
    is_secret: bool = False
    reads_all: bool = False
    carry: NonNegative | None = None

    def event_after(self, search: PlanEvent, points: Sequence[PlanEvent]) -> PlanEvent:
        """The search, on its part of the records, and the final run: after a secret part by default a point's event."""
        worst = events.worst_plan_event_per_population(points)
        if self.share is not None and not self.is_secret:
            return replace(search, final=worst.final)
        if self.share is None:
            return search if worst.final is None else search.composed_with(worst.final)
        parts = search.events_by_population.items()
        sampled = {name: events.poisson_sampled(part, sample_rate=self.share) for name, part in parts}
        return PlanEvent.from_events_by_population(sampled).composed_with(worst.final or worst)


@dataclass(frozen=True, kw_only=True)
class SelectionRule(Checked, ABC):
    """A rule by which a search spends its budget; the price pays for `final_run` too, if there is one.

    `draws_in_secret` says whether the runs are tries of a draw that nobody may see.
    """

    name: ClassVar[str]
    discloses: ClassVar[frozenset[Disclosure]]
    draws_in_secret: ClassVar[bool] = False
    name_of_point_score: ClassVar[str] = "mean"
    final_run: FinalRun | None = field(default=None, init=False, repr=False)

    @property
    def hides_losers(self) -> bool:
        """Whether the price leaves out the scores of the losers, so that nobody may see them."""
        return Disclosure.ALL_SCORES not in self.discloses

    @property
    def is_search_on_part_of_records(self) -> bool:
        """Whether the search reads a part of the records only; then a final run follows it."""
        return self.final_run is not None and self.final_run.share is not None

    def search_kind(self, search: Search) -> str:
        """The kind of search that runs: the name of its modules in `accounting/searches` and `sweeper/searches`."""
        if self.draws_in_secret:
            return "secret_draw"
        return "every_point" if search.proposals is Proposals.FIXED else "proposed_points"

    def check_search(self, search: Search) -> None:
        """Raises `BadInput` unless the theorem covers the search, and its price all that the search shows and repeats.

        A rule that hides losers has no curves, no scripts, whose time and output cannot be hidden, and no spare
        attempts: another try would depend on how the first went. A search on a part has none either: they would not
        pay for a final run.
        """
        secret, hides = self.draws_in_secret, self.hides_losers
        lacks_spares = hides or self.is_search_on_part_of_records
        independent, hidden = "its tries are independent draws from a list", "it pays for no more than it shows"
        for refused, expected, reason in (
            (secret and search.proposals != Proposals.FIXED, f"proposals={search.proposals} to be fixed", independent),
            (secret and search.pruning, f"pruning={search.pruning} to be False", independent),
            (secret and search.shared, "subsample=shared to be independent", independent),
            (search.spares and lacks_spares, f"plan.spare_attempts={search.spares} to be 0", hidden),
            (hides and search.curves_every is not None, f"score.every={search.curves_every} to be null", hidden),
            (hides and search.scripts, "trainer=script, which may write anywhere, to be another trainer", hidden),
        ):
            if refused:
                raise BadInput(f"Expected {expected} under {self.name}: {reason}. Choose tuning=composition.")

    def search_event(self, n_points: int) -> events.SearchEvent | None:
        """The event of a hidden search over so many points whose runs cost nothing; None where each run is paid for."""
        return None

    def draw(self, n_points: int, rng: Random) -> Draw:
        """Draws the tries over `n_points` points: each one in order, or uniform ones by the law of their number."""
        positive_int("n_points", n_points)
        event = self.search_event(n_points)
        if event is None or isinstance(event.tries, EachPoint):
            return Draw(tries=tuple(range(n_points)))
        count = draw_number(event.tries, getattr(event, "limit", None), rng)
        return Draw(tries=tuple(rng.randrange(n_points) for _ in range(count)))

    def check_draw(self, draw: Draw, n_points: int) -> None:
        """Raises `BadInput` unless the price covers the draw."""
        honest, event = self.draw(n_points, Random(0)), self.search_event(n_points)
        fits = draw.tries == honest.tries
        if event is not None and not isinstance(event.tries, EachPoint):
            most = getattr(event, "limit", None) or getattr(event.tries, "limit", None) or len(draw.tries)
            fits = len(draw.tries) <= most and set(draw.tries) <= set(range(n_points))
        finite = len(draw.handicaps) == len(honest.handicaps) and all(map(math.isfinite, draw.handicaps))
        if not (fits and finite and draw.threshold == honest.threshold):
            raise BadInput(f"Expected a draw over {n_points} points that {self.name} pays for, got another one.")

    def require_priced_populations(self, points: Iterable[PlanEvent]) -> None:
        """Raises `UnsupportedEvent` if a point, or its final run, reads other records than those of a search."""
        known = {"training", "validation"}
        known |= set() if self.final_run is None else {f"{events.FINAL} {name}" for name in known}
        for point in points:
            if unknown := point.events_by_population.keys() - known:
                reads = ", ".join(sorted(unknown))
                raise UnsupportedEvent(f"Expected {self.name} to read no {reads} records, which it does not price.")

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The event of the whole search over these points; raises `UnsupportedEvent` for other populations."""
        self.require_priced_populations(trials)
        if self.final_run is None:
            return self._event_of_points(trials)
        search = self._event_of_points([replace(trial, final=None) for trial in trials])
        return self.final_run.event_after(search, trials)

    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        if self.draws_in_secret:
            positive_int("n_points", len(trials))
        event = self.search_event(len(trials))

        def whole(parts: Sequence[DpEvent]) -> DpEvent:
            if event is None:
                return events.compose(parts)
            one_try = events.worst_of_events if isinstance(event.tries, EachPoint) else events.mixture
            return replace(event, event=one_try(parts))

        scored = [trial.validation for trial in trials if trial.validation is not None]
        training = whole([trial.training for trial in trials])
        return PlanEvent(training=training, validation=whole(scored) if scored else None)

    def search(self, run: DpEvent | PlanEvent, points: int) -> PlanEvent:
        """The event of a search over so many points like `run`, and of a final run like them, if any.

        A `DpEvent` is a run whose scores read no private record.
        """
        positive_int("n_points", points)
        one = run if isinstance(run, PlanEvent) else PlanEvent(training=run)
        return self.event([one if self.final_run is None else replace(one, final=one.final or one)] * points)

    def prices(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Whether `event` is that of a search over these points, but for last digits that other machines compute."""
        own, rounded = self.event(trials), _round_computed_numbers
        return event.is_same_as(own) or rounded(event.to_json()) == rounded(own.to_json())

    def runs(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Whether a sweep over these points runs for this event: it is the rule's, and covers all that is shown.

        A final run on other records is declared, a score that is never shown is private, and a drawn number secret.
        """
        law = self.search_event(len(trials))
        each_point = law is None or isinstance(law.tries, EachPoint)
        covered = THE_WINNER | ({Disclosure.NUMBER_OF_TRIES} if each_point else set())
        apart = self.final_run is not None and self.final_run.share is not None and not self.final_run.is_secret
        return (
            (event.final is not None or not apart)
            and (event.validation is not None or Disclosure.WINNER_SCORE in self.discloses)
            and (self.discloses <= covered or not self.draws_in_secret)
            and self.prices(event, trials)
        )


def _round_computed_numbers(form: Any, key: str = "") -> Any:
    """The stored form of an event, with the numbers that logarithms or iteration find to twelve digits."""
    if isinstance(form, Mapping):
        return {name: _round_computed_numbers(one, name) for name, one in form.items()}
    if isinstance(form, list):
        return [_round_computed_numbers(one) for one in form]
    return float(f"{form:.12g}") if key in {"eta", "gamma", "mean", "delta2"} and isinstance(form, float) else form
