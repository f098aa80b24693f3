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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.sweeper.planning.grid import Point
from dpsweep.sweeper.planning.solver import MOST_STEPS, SearchTerms, given_noise, training_events
from dpsweep.sweeper.trial.spec import Declaration, declare
from dpsweep.trainers.declarations.batch_sampling import Sampler
from dpsweep.trainers.declarations.clip_schedules import BoundSchedule

Kind = tuple[Sampler, int, BoundSchedule, float]
"""What the price of a run follows from, its number of steps apart: sampler, records, bounds, noise multiplier."""

LEAST = 1e-12
"""Less than this is as much."""

WHEN_BUDGET_SPENT = "when_budget_spent"


def is_open(points: Sequence[Point], solve: object) -> bool:
    """Whether the points' steps are to be found; raises `BadInput` where some are, or something else is besides."""
    left = [point.config["steps"] == WHEN_BUDGET_SPENT for point in points]
    if any(left) and not all(left):
        raise BadInput(f"Expected steps={WHEN_BUDGET_SPENT} to be the only value of steps in a sweep.")
    if any(left) and solve != "noise":
        raise BadInput(f"Expected solve={solve} to be left out with steps={WHEN_BUDGET_SPENT}, which finds the steps.")
    return any(left)


def spend(points: Sequence[Point], terms: SearchTerms, epsilon: float) -> list[Point]:
    """The points with their numbers of steps; raises `BadInput` where not even one step each fits.

    Every point's noise multiplier is given.
    """
    begun = [replace(point, config={**point.config, "steps": 1}) for point in points]
    noises, declared = given_noise(begun), [declare(point.config) for point in begun]
    kinds = [(one.sampler, one.train_records, one.bounds, noise) for one, noise in zip(declared, noises, strict=True)]
    runs = dict(zip(kinds, zip(declared, noises, strict=True), strict=True))
    first, *others = runs
    alone = {kind: _Alone.of(*runs[kind], terms, epsilon) for kind in runs if others}

    def lengths(steps: int) -> Mapping[Kind, int]:
        """How many steps each kind of run takes, where those of the first are given."""
        return {first: steps} | {kind: alone[kind].steps(alone[first].price(steps)) for kind in others}

    def after(steps: int) -> list[PlanEvent]:
        found = lengths(steps)
        longer = [replace(one, steps=found[kind]) for one, kind in zip(declared, kinds, strict=True)]
        return training_events(longer, noises)

    found = lengths(terms.most_steps(after, epsilon))
    return [
        replace(point, config={**point.config, "steps": found[kind]}) for point, kind in zip(points, kinds, strict=True)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Alone:
    """The logarithms of what runs of one kind cost alone, after 1, 4, 16, ... steps, and of these; straight between."""

    counts: np.ndarray
    prices: np.ndarray

    @classmethod
    def of(cls, declaration: Declaration, noise: float, terms: SearchTerms, most: float) -> _Alone:
        """Up to the first price above `most`."""
        counts, prices = [1], [_price(declaration.training(noise), terms)]
        while prices[-1] <= most and counts[-1] < MOST_STEPS:
            counts.append(4 * counts[-1])
            longer = replace(declaration, steps=counts[-1])
            prices.append(max(prices[-1], _price(longer.training(noise), terms)))
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
