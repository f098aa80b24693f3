"""Numbers of steps for runs that go on until their budget is spent, solved for before anything runs.

`steps=when_budget_spent` leaves the number of steps open if the noise and the price of the whole search are given.
All runs spend alike: the steps of each cost, alone, as much as the steps of every other one, to a few hundredths, and
the whole search costs at most privacy.epsilon, to the last step. So a method with cheaper steps takes more of them. If
a bound schedule depends on the number of steps, the price includes that.

The numbers are then part of the trials' configurations like typed ones: nothing is decided during a run, unlike in
Algorithm 1 of Yu, Zhang, Chen 2019, whose price would be the same.
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
"""All that determines the price of a run, except its number of steps: its kind and its noise multiplier."""

LEAST = 1e-12
"""Smaller prices are raised to this one."""


def runs_with_solved_steps(runs: Sequence[DeclaredRun], terms: SearchTerms, epsilon: float) -> list[DeclaredRun]:
    """The runs with their numbers of steps; raises `BadInput` if not even one step each fits.

    Each given run has one step so far, and a noise multiplier.
    """
    noises = given_noises(runs)
    kinds: list[Kind] = [(run.kind, noise) for run, noise in zip(runs, noises, strict=True)]
    ones = dict(zip(kinds, zip(runs, noises, strict=True), strict=True))
    first, *others = ones
    alone = {kind: _Alone.of(*ones[kind], terms, epsilon) for kind in ones if others}

    def lengths(steps: int) -> Mapping[Kind, int]:
        """The number of steps of each kind of run, given those of the first kind."""
        return {first: steps} | {kind: alone[kind].steps(alone[first].price(steps)) for kind in others}

    def after(steps: int) -> list[PlanEvent]:
        counts = lengths(steps)
        return training_events(runs, noises, [counts[kind] for kind in kinds])

    counts = lengths(terms.most_steps(after, epsilon))
    return [run.after(counts[kind]) for run, kind in zip(runs, kinds, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Alone:
    """Log prices of runs of one kind alone, after 1, 4, 16, ... steps, by log steps; linear interpolation between."""

    counts: np.ndarray
    prices: np.ndarray

    @classmethod
    def of(cls, run: DeclaredRun, noise: float, terms: SearchTerms, most: float) -> _Alone:
        """Prices up to the first one above `most`."""
        counts, prices = [1], [_price(run.training(noise, 1), terms)]
        while prices[-1] <= most and counts[-1] < MOST_STEPS:
            counts.append(4 * counts[-1])
            prices.append(max(prices[-1], _price(run.training(noise, counts[-1]), terms)))
        return cls(counts=np.log(counts), prices=np.log(prices))

    def price(self, steps: int) -> float:
        """The logarithm of the price of this many steps."""
        return float(np.interp(math.log(steps), self.counts, self.prices))

    def steps(self, price: float) -> int:
        """The number of steps with this log price, at least one."""
        return max(1, math.floor(math.exp(float(np.interp(price, self.prices, self.counts))) + 1e-9))


def _price(run: DpEvent, terms: SearchTerms) -> float:
    """The price by which runs are compared: from the distribution on a wide grid, which is quick, or Renyi curves."""
    try:
        return max(LEAST, Pld(interval=1e-3).epsilon(run, terms.delta, terms.adjacency))
    except UnsupportedEvent:
        return max(LEAST, terms.rough_epsilon([PlanEvent(training=run)]))
