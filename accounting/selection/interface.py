"""Selection rules: which points are run, what that costs, and what may be shown, answered by one object.

All honesty of a sweep comes from keeping the three answers together. Planner, runner and reporter ask the rule; none
of them knows one by name. What holds for every rule:

* `event` prices the whole search, including whatever `draw` may choose; it never depends on what was drawn.
* `execution` declares what running a plan under the rule means. What runs is compared with the plan's event, too.
* `discloses` lists all that may leave the curator's hands. What is not listed is not covered by the price.
* `draw` takes its randomness from the generator it is given, and is stored before the first run. What was drawn is
  never drawn again, extended or cut short: a try that died stays a try, and scores worst.
* A rule that hides losers treats both populations alike: the score is part of the mechanism, so for the training
  records and for the held-out ones it wraps the worst of the points, since which point a try takes is left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Protocol

from dpsweep.accounting import numbers
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.names.stored_classes import build_own, written_name


class Disclosure(StrEnum):
    """A kind of fact about a finished sweep."""

    WINNER = "winner"
    WINNER_SCORE = "winner_score"
    ALL_SCORES = "all_scores"
    NUMBER_OF_TRIES = "number_of_tries"


THE_WINNER = frozenset({Disclosure.WINNER, Disclosure.WINNER_SCORE})
"""What a rule that hides losers may show."""


class Execution(StrEnum):
    """How a plan is executed."""

    EVERY_POINT = "every point once"
    PROPOSED = "points that a sampler proposes from the scores so far"
    DRAWN_TRIES = "the tries of a secret draw"


class Proposals(StrEnum):
    """Where candidates come from: a list made beforehand, or what earlier scores suggest."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a sweep would like to search.

    `pruning` ends a run early because of other runs' scores; `shared` trains all points on the same subsamples.
    """

    proposals: Proposals = Proposals.FIXED
    pruning: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "proposals", Proposals(self.proposals))


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The points to run, as indices into the plan's points, in the order in which they are tried.

    The winner is the first try whose score reaches `threshold`, where there is one, and none if none does; else the
    one with the largest number of correct predictions, after `handicaps`, one for each try, are added where there are
    any. No try, no winner. All of a draw is as secret as the noise.
    """

    tries: tuple[int, ...]
    threshold: float | None = None
    handicaps: tuple[float, ...] = ()

    def winner(self, scores: Mapping[int, float | None]) -> int | None:
        """The place in the draw of the try that wins, the first among equals; no score is worse than any.

        `scores` maps the places of tries that have ended to their scores. Handicaps count correct predictions, which
        scores are not: a draw that has them is refused.

        >>> Draw(tries=(4, 2, 4)).winner({0: 0.3, 1: None, 2: 0.7})
        2
        >>> Draw(tries=(4, 2, 4), threshold=0.9).winner({0: 0.3, 1: None, 2: 0.7}) is None
        True
        """
        if self.handicaps:
            raise BadInput(f"Expected handicaps={self.handicaps} to be none where scores are compared.")
        known = {place: score for place, score in sorted(scores.items()) if score is not None}
        if self.threshold is None:
            return max(known, key=known.__getitem__, default=None)
        return next((place for place, score in known.items() if score >= self.threshold), None)

    def over(self, scores: Mapping[int, float | None]) -> bool:
        """Whether no try that has not ended could change the winner."""
        found = None if self.threshold is None else self.winner(scores)
        return all(place in scores for place in range(len(self.tries) if found is None else found))

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal draw."""
        form: dict[str, Any] = {"tries": list(self.tries)}
        if self.threshold is not None:
            form["threshold"] = self.threshold
        return form | ({"handicaps": list(self.handicaps)} if self.handicaps else {})

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Draw:
        """Reads `to_json`'s form."""
        return cls(
            tries=tuple(numbers.whole("tries", point) for point in form["tries"]),
            threshold=None if form.get("threshold") is None else float(form["threshold"]),
            handicaps=tuple(form.get("handicaps", ())),
        )


class SelectionRule(Protocol):
    """How a search spends its budget."""

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        ...

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """All that the price covers the release of."""
        ...

    @property
    def execution(self) -> Execution | None:
        """How a plan under this rule is executed where its event pays for that; None where plans are only priced.

        A rule declares `EVERY_POINT` or `DRAWN_TRIES`; `EVERY_POINT` becomes `PROPOSED` where a plan has a sampler.
        """
        ...

    def check(self, search: Search) -> None:
        """Raises `BadInput` with the reason where the rule's theorem does not cover such a search."""
        ...

    def expected_tries(self, n_points: int) -> float:
        """The mean number of runs over `n_points` points."""
        ...

    def chance_of_best(self, n_points: int, share: float) -> float:
        """The probability to have tried one of the best `share` of the points, and at least of the best one."""
        ...

    def draw(self, n_points: int, rng: Random) -> Draw:
        """Chooses the tries among `n_points` points."""
        ...

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The privacy event of the whole search over points with these events."""
        ...


def rule_from_config(config: Mapping[str, Any]) -> SelectionRule:
    """The rule that a plan stores as `{"kind": tag, **fields}`, or a configuration names; a field may be a rule itself.

    Raises `BadInput` where it names no rule of ours or fields that the rule does not have; nothing else is imported.
    """
    try:
        rule: SelectionRule = build_own(config, "rule")
    except (ValueError, TypeError) as cause:
        raise BadInput(
            f"Expected tuning={written_name(config)} to name a selection rule: {str(cause).rstrip('.')}."
        ) from cause
    return rule


def refuse_unless_fixed(rule: str, search: Search) -> None:
    """For rules whose tries are independent draws from a list made beforehand, and whose losers stay hidden."""
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
    refuse_sharing(rule, search)


def refuse_sharing(rule: str, search: Search) -> None:
    """For rules whose price is that of runs which are independent of one another."""
    if search.shared:
        raise BadInput(
            f"Expected subsample=shared to be independent: {rule} is a theorem about tries that are independent, and "
            "runs on the same subsamples are not. Choose tuning=composition."
        )


def best_points(n_points: int, share: float) -> int:
    """How many points are the best `share` of all: at least one.

    >>> best_points(35, 0.05), best_points(10, 0.01), best_points(10, 0.3)
    (2, 1, 3)
    """
    require_points(n_points)
    numbers.share("share", share)
    return max(1, math.ceil(share * n_points - 1e-9))


def require_points(n_points: int) -> None:
    """Raises unless there is something to choose from."""
    numbers.positive_int("n_points", n_points)
