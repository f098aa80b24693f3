"""Selection rules: one object decides the points to run, the price of the search, and the results to release.

The honesty of a sweep depends on keeping these three answers together. Planner, runner and reporter ask the rule; none
of them knows a rule by name. Invariants of every rule:

* `event` prices the whole search, for every possible result of `draw`; it never depends on the actual draw.
* `populations` names the records whose accesses the rule prices. A point that reads others is refused, never dropped.
* `kind` names the kind of search that runs; a plan runs only if its event is the rule's over its points.
* `discloses` lists all results that the curator may release. The price covers no other result.
* `draw` takes its randomness from the given generator; a secret one is stored before the first run, and never repeated,
  extended or cut short: a failed try stays in the draw with the worst score.
* A rule that hides losers treats both populations alike: the score is part of the mechanism, so for the training
  records and for the held-out ones it wraps the mixture of the points, since the point of each try is random.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from statistics import fmean
from typing import Annotated, Any, Protocol

from dpsweep.accounting import validation
from dpsweep.accounting.codec import OMITTED, Checked, Count, Stored
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import (
    FINAL,
    DpEvent,
    PlanEvent,
    poisson_sampled,
    worst_plan_event_per_population,
)
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form, class_name_as_written


class Disclosure(StrEnum):
    """A kind of result of a finished sweep that may be released."""

    WINNER = "winner"
    WINNER_SCORE = "winner_score"
    ALL_SCORES = "all_scores"
    NUMBER_OF_TRIES = "number_of_tries"


THE_WINNER = frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE})
"""The results that a rule that hides losers may release."""


SEARCHED = frozenset({"training", "validation"})
"""The populations that the runs of every search may read: the training and the held-out records."""


class Proposals(StrEnum):
    """The source of candidates: a list made beforehand, or suggestions from earlier scores."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class Search:
    """The properties of a search that a rule has to cover.

    `pruning` ends a run early because of other runs' scores; `shared` trains all points on the same subsamples; each
    point runs `repeats` times. `spares` attempts are charged beforehand for what is killed. `curves_every` so many
    steps a run shows its score, None if at its end alone; with `scripts`, scripts of the user's train some points.
    """

    proposals: Proposals = Proposals.FIXED
    pruning: bool = False
    shared: bool = False
    repeats: int = 1
    spares: int = 0
    curves_every: object = None
    scripts: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "proposals", Proposals(self.proposals))


@dataclass(frozen=True, kw_only=True)
class Draw(Stored):
    """The points to run, as indices into the plan's points, in the order of the tries.

    With a `threshold`, the winner is the first try whose score reaches it; if no try does, there is no winner.
    Otherwise it is the try with the most correct predictions, after `handicaps`, one for each try, are added if there
    are any. An empty draw has no winner. The whole draw is as secret as the noise.
    """

    tries: tuple[Count, ...]
    threshold: Annotated[float | None, OMITTED] = None
    handicaps: Annotated[tuple[float, ...], OMITTED] = ()

    def index_of_winning_try(self, scores: Mapping[int, float | None]) -> int | None:
        """The index in `tries` of the winning try, the first among equals; a missing score is worse than any score.

        `scores` maps the indices of ended tries to their scores, or to their numbers of correct predictions if the draw
        has handicaps, which are added to these.

        >>> Draw(tries=(4, 2, 4)).index_of_winning_try({0: 0.3, 1: None, 2: 0.7})
        2
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


class PlannedTries(Protocol):
    """The runs of a search over a number of points, before any of them is drawn."""

    @property
    def expected(self) -> float:
        """The mean number of runs."""

    def chance_of_best(self, share: float) -> float:
        """The probability that some try is among the best `share` of the points, which are at least one point."""

    def draw(self, rng: Random) -> Draw:
        """Draws the tries; a draw of a rule that hides losers is secret."""

    def conditions_on_draw(self, draw: Draw) -> Mapping[str, bool]:
        """What a stored draw has to do, and whether it does it."""


ACCURACY = "accuracy"
"""The metric of a score that is a number of right predictions."""


class Use(StrEnum):
    """The use of a part of the records."""

    SEARCH = "search"
    FINAL = "final"


Part = Mapping[str, float | str | bool]
"""A part of the records, as the configuration of a run on it states it."""


@dataclass(frozen=True, kw_only=True)
class FinalRunTerms:
    """The run of the winning point after a search, and the records that both read.

    The search reads a `share` of the records, by `is_secret` coins or by a public key; None stands for all of them. The
    final run reads the others, or, with `reads_all`, all of them. Its learning rate grows with the ratio of the noise
    per example, that of the search over its own, to the power `carry`; None keeps it.
    """

    share: float | None = None
    is_secret: bool = False
    reads_all: bool = False
    carry: float | None = None

    @property
    def parts(self) -> Mapping[Use, Part | None]:
        """The part of the records of each use, None for all records."""
        if self.share is None:
            return dict.fromkeys(Use)
        secret = {"secret": True} if self.is_secret else {}
        parts = {use: {"share": self.share, "use": use.value, **secret} for use in Use}
        return {**parts, Use.FINAL: None} if self.reads_all else parts

    @property
    def is_final_run_priced_apart(self) -> bool:
        """Whether a public part decides which records the final run reads, so that no other run reads any of them."""
        return self.share is not None and not self.is_secret

    def event_with_final_run(self, search: PlanEvent, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search, on its part of the records, and the pointwise worst final run: the winner is not known before.

        Without declared final runs, a point's own event is that of its final run on a secret part's other records.
        """
        final = worst_plan_event_per_population(trials).final
        if self.is_final_run_priced_apart:
            return replace(search, final=final)
        if self.share is not None:
            parts = search.events_by_population.items()
            search = PlanEvent.from_events_by_population(
                {name: poisson_sampled(part, sample_rate=self.share) for name, part in parts}
            )
            final = final or worst_plan_event_per_population(trials)
        return search if final is None else search.composed_with(final)


class SelectionRule(Checked, ABC):
    """A rule by which a search spends its budget."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The rule's name in commands and reports."""

    @property
    @abstractmethod
    def discloses(self) -> frozenset[Disclosure]:
        """All results whose release the price covers."""

    @abstractmethod
    def search_kind(self, search: Search) -> str:
        """The kind of search that runs under this rule: the name of its modules in `accounting/searches` and
        `sweeper/searches`.
        """

    @property
    def hides_losers(self) -> bool:
        """Whether the price leaves out the scores of the losers, so that nobody may see them."""
        return Disclosure.ALL_SCORES not in self.discloses

    @property
    def draws_in_secret(self) -> bool:
        """Whether the runs are tries of a draw that nobody may see."""
        return False

    @abstractmethod
    def check_search_is_covered(self, search: Search) -> None:
        """Raises `BadInput` with the reason if the rule's theorem does not cover the search."""

    def check_search_is_allowed(self, search: Search) -> None:
        """Raises `BadInput` unless the theorem covers the search, and its price all that the search shows and repeats.

        A rule that hides losers, by whatever theorem, has no curves, no scripts and no spare attempts.
        """
        self.check_search_is_covered(search)
        if search.spares and self.is_search_on_part_of_records:
            raise BadInput(
                f"Expected plan.spare_attempts={search.spares} to be 0 under {self.name}: an attempt that is paid for "
                "on the search's records would not pay for a final run on the others."
            )
        if not self.hides_losers:
            return
        if search.curves_every is not None:
            raise BadInput(
                f"Expected score.every={search.curves_every} to be null under {self.name}: it hides what curves would "
                "show."
            )
        if search.scripts:
            raise BadInput(
                f"Expected tuning={self.name} to show every run with trainer=script: a script may open a connection "
                "or write anywhere, so its time and its output cannot be hidden. Take tuning=composition."
            )
        if search.spares:
            raise BadInput(
                f"Expected plan.spare_attempts={search.spares} to be 0 under {self.name}: a try that died is never "
                "replaced, since another one would depend on how the first went. Choose tuning=composition."
            )

    def tries_over(self, n_points: int) -> PlannedTries:
        """The tries over `n_points` points, of which there is at least one."""
        validation.positive_int("n_points", n_points)
        return self._tries_over_points(n_points)

    def draw_tries(self, n_points: int, rng: Random) -> Draw:
        """Draws the tries over `n_points` points."""
        return self.tries_over(n_points).draw(rng)

    @abstractmethod
    def _tries_over_points(self, n_points: int) -> PlannedTries:
        """The tries, for a number of points that was checked."""

    @property
    def populations(self) -> frozenset[str]:
        """The populations of a point's event that the rule prices; a final run reads those of a point."""
        if self.final_run_terms is None:
            return SEARCHED
        return SEARCHED | {f"{FINAL} {name}" for name in SEARCHED}

    def require_priced_populations(self, trials: Iterable[PlanEvent]) -> None:
        """Raises `UnsupportedEvent` if a point has a population that the rule does not price."""
        known = self.populations
        for trial in trials:
            if unknown := trial.events_by_population.keys() - known:
                raise UnsupportedEvent(
                    f"Expected a point under {self.name} to read {', '.join(sorted(known))} records alone, got "
                    f"{', '.join(sorted(unknown))} ones, which it does not price."
                )

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The privacy event of the whole search over points with these events.

        Raises `UnsupportedEvent` if a point has a population that the rule does not price.
        """
        self.require_priced_populations(trials)
        run = self.final_run_terms
        if run is None:
            return self._event_of_points(trials)
        search = self._event_of_points([replace(trial, final=None) for trial in trials])
        return run.event_with_final_run(search, trials)

    @abstractmethod
    def _event_of_points(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The event of the search alone, over points whose populations the rule prices, without their final runs."""

    def search(self, run: DpEvent | PlanEvent, points: int) -> PlanEvent:
        """The privacy event of a search over so many points with the event `run`, and of a final run like them, if any.

        A `DpEvent` is a run whose scores read no private record. Points that differ are priced by `event`.
        """
        validation.positive_int("n_points", points)
        one = run if isinstance(run, PlanEvent) else PlanEvent(training=run)
        return self.event([one if self.final_run_terms is None else replace(one, final=one.final or one)] * points)

    def is_event_charged_for_trials(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Whether `event` is the price of a plan under this rule over these points."""
        return self.prices(event, trials)

    def prices(self, event: PlanEvent, trials: Sequence[PlanEvent]) -> bool:
        """Whether `event` is that of a search over these points.

        The parameters of a law of tries may differ in their last digits: other machines compute some differently.
        """
        own = self.event(trials)
        return event.is_same_as(own) or _round_computed_numbers(event.to_json()) == _round_computed_numbers(
            own.to_json()
        )

    def index_of_winning_run(self, scores: Mapping[int, float], points: Sequence[int], repeats: int = 1) -> int | None:
        """The run that is handed over, by its place, given the scores of all finished runs; None if none has finished.

        `points` names the point of each run, `repeats` says how many runs each point was to have. The winner is a
        point, the first among equals, and its first finished run stands for it. A run that diverged, failed or was
        killed has no score: of points with fewer scores than `repeats`, those with the most win only if no point has
        all. For rules without a draw; with one, `Draw.index_of_winning_try` also knows what the draw has decided
        beforehand.

        >>> rule = rule_from_config({"kind": "composition"})
        >>> rule.index_of_winning_run({0: 0.9, 1: 0.5, 2: 0.8, 3: 0.7}, points=(0, 0, 1, 1))
        2
        """
        finished: dict[int, list[int]] = {}
        for place, point in enumerate(points):
            if place in scores:
                finished.setdefault(point, []).append(place)
        enough = min(repeats, max(map(len, finished.values()), default=0))
        able = [places for places in finished.values() if len(places) >= enough]
        best = max(able, key=lambda places: self.score_of_point([scores[place] for place in places]), default=None)
        return None if best is None else best[0]

    @property
    def name_of_point_score(self) -> str:
        """What `score_of_point` is called."""
        return "mean"

    def score_of_point(self, scores: Sequence[float]) -> float:
        """What points are compared by, given the scores of a point's finished runs: their mean."""
        return fmean(scores)

    def refusal_of_scores_sentence(self, *, private: bool, metrics: Collection[str]) -> str:
        """Why the rule cannot choose by such scores, of private records or not; empty if it can."""
        return ""

    @property
    def final_run_terms(self) -> FinalRunTerms | None:
        """The run of the winning point that follows the search; None if the price pays for none."""
        return None

    @property
    def is_search_on_part_of_records(self) -> bool:
        """Whether the search reads a part of the records only; then a final run follows it."""
        return self.final_run_terms is not None and self.final_run_terms.parts[Use.SEARCH] is not None

    def event_of_run_alone(self, trial: PlanEvent) -> PlanEvent:
        """What one run would cost if it were the whole search, and its score were told as this rule tells it."""
        return trial

    @property
    def rule_to_solve_score_noise_under(self) -> SelectionRule:
        """The rule under which the noise of scores is solved for, where it is open."""
        return self

    @property
    def compared_quantity_text(self) -> str | None:
        """What the runs are compared by, with `{unit}` to fill in, where no score is shown; None where one may be."""
        return None

    def charge_of_unequal_points_text(self, search: Search) -> str:
        """How points that differ in what they cost are charged, after the rule's name; `{phase}` narrows it.

        Empty where each run is charged what it costs: where all runs are known beforehand, and all are shown.
        """
        if search.proposals is Proposals.FIXED and not self.hides_losers:
            return ""
        if self.draws_in_secret and Disclosure.NUMBER_OF_TRIES not in self.discloses:
            return (
                "charges the mean of their deltas at each epsilon, since every try draws its point at random and names "
                "it"
            )
        return "charges the worst{phase} at every order"


def rule_from_config(config: Mapping[str, Any]) -> SelectionRule:
    """The rule of a plan's stored form `{"kind": tag, **fields}`, or of a configuration; a field may be a rule itself.

    Raises `BadInput` if the form names no rule of ours or unknown fields; nothing else is imported.
    """
    try:
        rule: SelectionRule = build_from_stored_form(config, "rule")
    except (ValueError, TypeError) as cause:
        raise BadInput(
            f"Expected tuning={class_name_as_written(config)} to name a selection rule: {str(cause).rstrip('.')}."
        ) from cause
    return rule


def _round_computed_numbers(form: Any, key: str = "") -> Any:
    """The stored form of an event, with the parameters of each law of tries to twelve digits."""
    if isinstance(form, Mapping):
        return {name: _round_computed_numbers(one, name) for name, one in form.items()}
    if isinstance(form, list):
        return [_round_computed_numbers(one) for one in form]
    return float(f"{form:.12g}") if key in _COMPUTED and isinstance(form, float) else form


_COMPUTED = frozenset({"eta", "gamma", "mean", "delta2"})
"""The numbers of an event that are found by logarithms or by iteration."""


def check_search_allows_hiding_losers(rule: str, search: Search) -> None:
    """Refuses what a rule with hidden losers does not cover: its tries are independent draws from a fixed list."""
    if search.proposals is not Proposals.FIXED:
        raise BadInput(
            f"Expected proposals={search.proposals.value} to be fixed: {rule} covers points from a list made "
            "beforehand, and a proposal made from hidden scores would show them. Choose tuning=composition."
        )
    if search.pruning:
        raise BadInput(
            f"Expected pruning={search.pruning} to be False: {rule} covers runs that do not depend on one another. "
            "Choose tuning=composition."
        )
    if search.shared:
        raise BadInput(
            f"Expected subsample=shared to be independent: {rule} is a theorem about tries that are independent, and "
            "runs on the same subsamples are not. Choose tuning=composition."
        )
