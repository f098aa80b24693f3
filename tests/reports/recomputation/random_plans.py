"""Plans drawn from a seed: every selection rule, sampler, adjacency, and points that differ in what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent, PlanEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    Final,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    Public,
    RandomStopping,
    Subsampled,
    Threshold,
)

DELTAS = (1e-4, 1e-5, 1e-6, 1e-8)
RULES: Mapping[str, Callable[[Random, float], SelectionRule]] = {
    "composition": lambda rng, delta: Composition(),
    "private_selection": lambda rng, delta: PrivateSelection(eta=rng.choice([1.0, 0.5, 0.0, -0.5, 2.0])),
    "poisson_selection": lambda rng, delta: PoissonSelection(mean=rng.choice([None, 2.0, 10.0])),
    "best_of_grid": lambda rng, delta: BestOfGrid(),
    "random_stopping": lambda rng, delta: RandomStopping(delta=delta),
    "threshold": lambda rng, delta: Threshold(threshold=0.9, delta=delta),
    "noisy_max": lambda rng, delta: NoisyMax(noise_scale=rng.uniform(0.2, 5.0)),
    "disjoint": lambda rng, delta: DisjointParts(),
    "public": lambda rng, delta: Public(sweep="abc"),
    "composition + final": lambda rng, delta: Final(rule=Composition()),
    "subsampled": lambda rng, delta: Subsampled(rule=PrivateSelection(), rate=0.2),
}


@dataclass(frozen=True, kw_only=True)
class RandomPlan:
    """A search's event with its rule, delta and adjacency."""

    rule: SelectionRule
    event: PlanEvent
    delta: float
    adjacency: Adjacency


def random_plan(place: int) -> RandomPlan:
    """The plan at a place of the sequence, which goes through all rules."""
    rng = Random(f"plan {place}")
    delta, adjacency = rng.choice(DELTAS), rng.choice(list(Adjacency))
    rule = list(RULES.values())[place % len(RULES)](rng, delta)
    points, unlike, private = rng.randint(1, 5), rng.random() < 0.4, rng.random() < 0.6
    if isinstance(rule, NoisyMax):
        private = True
    run, count = _run(rng, adjacency), events.noisy_count(noise_std=rng.uniform(1.5, 20.0))
    scores = events.repeat(count, 2) if private else None
    last = PlanEvent(training=_run(rng, adjacency), validation=scores)
    final = None if rule.final_run is None else last
    trials = [
        PlanEvent(training=_run(rng, adjacency) if unlike else run, validation=scores, final=final)
        for _ in range(points)
    ]
    return RandomPlan(rule=rule, event=rule.event(trials), delta=delta, adjacency=adjacency)


def _run(rng: Random, adjacency: Adjacency) -> DpEvent:
    """A training run whose epsilon is neither tiny nor huge: sampled, in batches of a fixed size, shuffled or whole."""
    steps = round(math.exp(rng.uniform(0, math.log(5000))))
    noise = math.exp(rng.uniform(math.log(0.7), math.log(6.0)))
    rate = math.exp(rng.uniform(math.log(0.001), math.log(min(0.9, 30 / math.sqrt(steps) / 10))))
    kind = rng.choice(["poisson", "poisson", "poisson", "whole", "shuffled", "fixed", "decaying"])
    if kind == "fixed" and adjacency is Adjacency.REPLACE_ONE:
        batch = max(1, round(rate * 10000))
        step = events.without_replacement_gaussian(records=10000, batch_size=batch, noise_multiplier=2 * noise)
        return events.repeat(step, steps)
    if kind == "whole":
        return events.repeat(events.gaussian(noise_multiplier=noise * math.sqrt(steps)), steps)
    if kind == "shuffled":
        return events.shuffled_gaussian(epochs=1 + steps % 5, steps=20, noise_multiplier=2 + noise)
    if kind == "decaying":
        noises = [noise * (1 + level / 4) for level in range(4)]
        return events.compose(
            events.repeat(events.poisson_gaussian(sample_rate=rate, noise_multiplier=one), 1 + steps // 4)
            for one in noises
        )
    return events.repeat(events.poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)
