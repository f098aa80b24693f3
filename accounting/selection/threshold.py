"""Tuning by a public threshold: the first try that is good enough ends the search, and only that one is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.events.trial_counts import Stopping
from dpsweep.accounting.selection.interface import (
    THE_WINNER,
    Disclosure,
    Draw,
    Execution,
    Search,
    chance_by,
    of_both_parts,
    refuse_unless_fixed,
    require_count,
    require_number,
    require_points,
    require_share,
    uniform_tries,
)

NEGLIGIBLE = 1e-20
"""The tail that a hard stop may have, as a part of delta: times exp(epsilon) it is still below the last digit."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The first try whose score reaches a public `threshold`; a coin of probability `gamma` gives up before.

    *Guarantee*: about twice the epsilon of one run. The threshold is an accuracy known beforehand, not read off this
    data; points come from a list made beforehand, independently and with replacement. Shown may be the winner and its
    score, or that there is none. `gamma` is one over the number of points where it is None; no more than `limit` tries
    are made, None: so many that the stop costs nothing beside `delta`, the plan's.
    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.1.
    """

    gamma: float | None = None
    limit: int | None = None
    threshold: float
    delta: float

    def __post_init__(self) -> None:
        if self.gamma is not None:
            require_share("gamma", self.gamma)
        if self.limit is not None:
            require_count("limit", self.limit)
        require_share("threshold", self.threshold)
        require_number("delta", self.delta, above=0, below=1)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "threshold"

    @property
    def discloses(self) -> frozenset[Disclosure]:
        """The winner and its score."""
        return THE_WINNER

    @property
    def execution(self) -> Execution:
        """The tries of a secret draw."""
        return Execution.DRAWN_TRIES

    def check(self, search: Search) -> None:
        """Refuses adaptive proposals and pruning."""
        refuse_unless_fixed(self.name, search)

    def expected_tries(self, n_points: int) -> float:
        """What the coin and the hard stop allow: the mean where no score reaches the threshold, else an upper bound."""
        return self._tries(n_points).mean

    def chance_of_best(self, n_points: int, share: float) -> float:
        """By the law of the number of tries, where the threshold is what the best `share` reach."""
        return chance_by(self._tries(n_points), n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """As many uniform tries as the coin and the hard stop allow, of which the first good one wins.

        Tries after the winner may be made or spared: nobody sees them.
        """
        tries = uniform_tries(self._tries(n_points).sample(rng), n_points, rng)
        return Draw(tries=tries, threshold=float(self.threshold))

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """The search among tries as dear as the worst point."""
        law = self._tries(len(trials))
        return of_both_parts(trials, lambda one: events.above_threshold(one, gamma=law.gamma, limit=law.limit))

    def _tries(self, n_points: int) -> Stopping:
        require_points(n_points)
        gamma = 1 / n_points if self.gamma is None else float(self.gamma)
        return Stopping(gamma=gamma, limit=self._limit(gamma) if self.limit is None else self.limit)

    def _limit(self, gamma: float) -> int:
        return 1 if gamma == 1 else math.ceil(math.log(NEGLIGIBLE * self.delta) / math.log1p(-gamma))
