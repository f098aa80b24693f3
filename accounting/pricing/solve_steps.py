"""Runs that go on until their budget is spent: how many steps each takes, found before anything runs.

`steps=when_budget_spent` leaves the number of steps open where the noise and the price of the whole search are given.
All runs spend alike: each takes as many steps as cost, alone, what every other one does, to a few hundredths, and the
whole search with them costs at most privacy.epsilon, to the last step. So a method whose steps are cheaper takes more
of them. What a bound schedule makes of the number of steps is in the price.

The numbers are then part of the trials' configurations like any that a user types: nothing is decided while a run is
under way, as it is in Algorithm 1 of Yu, Zhang, Chen 2019, whose price would be the same.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.pricing.declared_run import DeclaredRun, given_noises, training_events
from dpsweep.accounting.pricing.search_terms import MOST_STEPS, SearchTerms

Kind = tuple[Hashable, float]
"""What the price of a run follows from, its number of steps apart: its kind and its noise multiplier."""

LEAST = 1e-12
"""Less than this is as much."""


def spend(runs: Sequence[DeclaredRun], terms: SearchTerms, epsilon: float) -> list[DeclaredRun]:
    """The runs with their numbers of steps; raises `BadInput` where not even one step each fits.

    Every run has one step so far, and its noise multiplier.
    """
    noises = given_noises(runs)
    kinds: list[Kind] = [(run.kind, noise) for run, noise in zip(runs, noises, strict=True)]
    ones = dict(zip(kinds, zip(runs, noises, strict=True), strict=True))
    first, *others = ones
    alone = {kind: _Alone.of(*ones[kind], terms, epsilon) for kind in ones if others}

    def lengths(steps: int) -> Mapping[Kind, int]:
        """How many steps each kind of run takes, where those of the first are given."""
        return {first: steps} | {kind: alone[kind].steps(alone[first].price(steps)) for kind in others}

    def after(steps: int) -> list[PlanEvent]:
        counts = lengths(steps)
        return training_events(runs, noises, [counts[kind] for kind in kinds])

    counts = lengths(terms.most_steps(after, epsilon))
    return [run.after(counts[kind]) for run, kind in zip(runs, kinds, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Alone:
    """The logarithms of what runs of one kind cost alone, after 1, 4, 16, ... steps, and of these; straight between."""

    counts: np.ndarray
    prices: np.ndarray

    @classmethod
    def of(cls, run: DeclaredRun, noise: float, terms: SearchTerms, most: float) -> _Alone:
        """Up to the first price above `most`."""
        counts, prices = [1], [_price(run.training(noise, 1), terms)]
        while prices[-1] <= most and counts[-1] < MOST_STEPS:
            counts.append(4 * counts[-1])
            prices.append(max(prices[-1], _price(run.training(noise, counts[-1]), terms)))
        return cls(counts=np.log(counts), prices=np.log(prices))

    def price(self, steps: int) -> float:
        """The logarithm of what so many steps cost."""
        return float(np.interp(math.log(steps), self.counts, self.prices))

    def steps(self, price: float) -> int:
        """How many steps cost so much, at least one."""
        return max(1, math.floor(math.exp(float(np.interp(price, self.prices, self.counts))) + 1e-9))


def _price(run: DpEvent, terms: SearchTerms) -> float:
    """What runs are compared by: by the distribution on a wide grid, which is quick, or else by Renyi curves."""
    try:
        return max(LEAST, Pld(interval=1e-3).epsilon(run, terms.delta, terms.adjacency))
    except UnsupportedEvent:
        return max(LEAST, terms.rough_epsilon([PlanEvent(training=run)]))
