"""Runs that go on until their budget is spent: how many steps each takes, found before anything runs.

`steps=when_budget_spent` leaves the number of steps open where the noise and the price of the whole search are given.
All runs spend alike: each takes the most steps that cost, alone, no more than those of every other one, and the whole
search with them costs at most privacy.epsilon. So a method whose steps are cheaper takes more of them. What a bound
schedule makes of the number of steps is in the price.

The numbers are then part of the trials' configurations like any that a user types: nothing is decided while a run is
under way, as it is in Algorithm 1 of Yu, Zhang, Chen 2019, whose price would be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from accounting.calibration import largest_count
from accounting.errors import BadInput, UnsupportedEvent
from accounting.events import DpEvent, PlanEvent
from accounting.guarantee import Adjacency
from accounting.rdp import Rdp
from sweeper.declaration import declare
from sweeper.points import Point
from sweeper.solve import MOST_STEPS, ROUGH_ORDERS, Terms, given_noise, training_events
from trainers.bound_schedules import BoundSchedule
from trainers.sampling import Sampler

Kind = tuple[Sampler, int, BoundSchedule, float]
"""What the price of a run follows from, its number of steps apart: sampler, records, bounds, noise multiplier."""

WHEN_BUDGET_SPENT = "when_budget_spent"


def is_open(points: Sequence[Point], solve: object) -> bool:
    """Whether the points' steps are to be found; raises `BadInput` where some are, or something else is besides."""
    left = [point.config["steps"] == WHEN_BUDGET_SPENT for point in points]
    if any(left) and not all(left):
        raise BadInput(f"Expected steps={WHEN_BUDGET_SPENT} to be the only value of steps in a sweep.")
    if any(left) and solve != "noise":
        raise BadInput(f"Expected solve={solve} to be left out with steps={WHEN_BUDGET_SPENT}, which finds the steps.")
    return any(left)


def spend(points: Sequence[Point], terms: Terms, epsilon: float) -> list[Point]:
    """The points with their numbers of steps; raises `BadInput` where not even one step each fits.

    Every point's noise multiplier is given.
    """
    noises = given_noise(points)
    declared = [declare({**point.config, "steps": 1}) for point in points]
    kinds = [(one.sampler, one.train_records, one.bounds, noise) for one, noise in zip(declared, noises, strict=True)]
    runs = dict(zip(kinds, zip(declared, noises, strict=True), strict=True))
    first, *others = runs

    @cache
    def alone(kind: Kind, steps: int) -> float:
        declaration, noise = runs[kind]
        return _price(replace(declaration, steps=steps).training(noise))

    @cache
    def lengths(steps: int) -> Mapping[Kind, int]:
        """How many steps each kind of run takes, where those of the first are given."""
        if not others:
            return {first: steps}
        price = alone(first, steps)
        fitting = {kind: largest_count(partial(alone, kind), price, MOST_STEPS, start=steps) for kind in others}
        return {first: steps} | {kind: max(1, count) for kind, count in fitting.items()}

    def after(steps: int) -> list[PlanEvent]:
        found = lengths(steps)
        return training_events(
            [replace(one, steps=found[kind]) for one, kind in zip(declared, kinds, strict=True)], noises
        )

    found = lengths(terms.most_steps(after, epsilon))
    return [
        replace(point, config={**point.config, "steps": found[kind]}) for point, kind in zip(points, kinds, strict=True)
    ]


def _price(run: DpEvent) -> float:
    """What runs are compared by: a bound by Renyi curves at few orders, under neighbours that these have one for."""
    accountant, delta = Rdp(orders=ROUGH_ORDERS), 1e-5
    try:
        return accountant.epsilon(run, delta, Adjacency.ADD_OR_REMOVE_ONE)
    except UnsupportedEvent:
        return accountant.epsilon(run, delta, Adjacency.REPLACE_ONE)
