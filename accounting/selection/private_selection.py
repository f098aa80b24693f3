"""Tuning by private selection (the papers' "PS"): the best of a secret random number of tries is all that is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
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


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """The best of K tries, K truncated negative binomial: geometric at `eta` 1, logarithmic at 0.

    *Guarantee*: about 2 + eta times the epsilon of one run where that is pure, less where it is Gaussian. Points come
    from a list made beforehand, independently and with replacement; K is secret. Shown may be the winner and its score.
    Either `mean`, E[K], or `gamma` fixes the law; the mean is the number of points where both are None. `limit` ends
    the search early, at a price. With the mean fixed a smaller eta costs less and is less lucky: compare rules at equal
    `chance_of_best`.
    *Source*: Papernot and Steinke 2022 (Hyperparameter Tuning with Renyi Differential Privacy), Theorem 2; Koskela,
    Redberg, Wang 2024 (Privacy Profiles for Private Selection), Theorem 7.
    """

    eta: float = 1.0
    mean: float | None = None
    gamma: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        require_number("eta", self.eta, above=-1)
        if self.mean is not None and self.gamma is not None:
            raise ValueError(f"Expected either mean={self.mean} or gamma={self.gamma}: one decides the other.")
        if self.mean is not None:
            require_number("mean", self.mean, above=0)
        if self.gamma is not None:
            require_share("gamma", self.gamma)
        if self.limit is not None:
            require_count("limit", self.limit)
        self.tries(1)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "private_selection"

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
        """E[K], without what a `limit` cuts off."""
        return self.tries(n_points).mean

    def chance_of_best(self, n_points: int, share: float) -> float:
        """By the law of K, less the chance that a `limit` ends the search."""
        return _chance(self.tries(n_points), self.limit, n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """K uniform tries, at most `limit`."""
        return _draw(self.tries(n_points), self.limit, n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """Selection from tries as dear as the worst point."""
        return _event(self.tries(len(trials)), self.limit, trials)

    def tries(self, n_points: int) -> NegativeBinomial:
        """The law of K over `n_points` points."""
        require_points(n_points)
        if self.gamma is not None:
            return NegativeBinomial(eta=float(self.eta), gamma=float(self.gamma))
        return NegativeBinomial.with_mean(eta=self.eta, mean=n_points if self.mean is None else self.mean)


@dataclass(frozen=True, kw_only=True)
class PoissonSelection:
    """The best of K tries, K Poisson, the law of least spread: the luckiest at equal mean, and the dearest.

    *Guarantee*: the price falls towards that of one run as its delta does. Points come from a list made beforehand,
    independently and with replacement; K is secret. Shown may be the winner and its score, or, with probability
    exp(-mean), that there is none. `mean` is the number of points where it is None. `limit` ends the search early, at
    a price.
    *Source*: Papernot and Steinke 2022, Theorem 6.
    """

    mean: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.mean is not None:
            require_number("mean", self.mean, above=0)
        if self.limit is not None:
            require_count("limit", self.limit)

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "poisson_selection"

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
        """E[K], without what a `limit` cuts off."""
        return self.tries(n_points).mean

    def chance_of_best(self, n_points: int, share: float) -> float:
        """By the law of K, less the chance that a `limit` ends the search."""
        return _chance(self.tries(n_points), self.limit, n_points, share)

    def draw(self, n_points: int, rng: Random) -> Draw:
        """K uniform tries, at most `limit`; perhaps none."""
        return _draw(self.tries(n_points), self.limit, n_points, rng)

    def event(self, trials: Sequence[PlanEvent]) -> PlanEvent:
        """Selection from tries as dear as the worst point."""
        return _event(self.tries(len(trials)), self.limit, trials)

    def tries(self, n_points: int) -> Poisson:
        """The law of K over `n_points` points."""
        require_points(n_points)
        return Poisson(mean=float(n_points if self.mean is None else self.mean))


def _chance(tries: NegativeBinomial | Poisson, limit: int | None, n_points: int, share: float) -> float:
    chance = chance_by(tries, n_points, share)
    return chance if limit is None else max(0.0, chance - tries.beyond(limit))


def _draw(tries: NegativeBinomial | Poisson, limit: int | None, n_points: int, rng: Random) -> Draw:
    count = tries.sample(rng)
    return Draw(tries=uniform_tries(count if limit is None else min(count, limit), n_points, rng))


def _event(tries: NegativeBinomial | Poisson, limit: int | None, trials: Sequence[PlanEvent]) -> PlanEvent:
    return of_both_parts(trials, lambda one: events.select(one, tries, limit))
