"""The interface that every accountant keeps, and how a plan's two populations are priced by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from accounting.events import DpEvent, PlanEvent, as_gaussian_step, flatten
from accounting.guarantee import Adjacency


class Accountant(Protocol):
    """Turns what ran into an upper bound on epsilon.

    *Guarantee*: `epsilon` is never below the true epsilon of `event` at `delta` under `adjacency`; it is 0 for no
    access and infinity for an access without noise; what has no proven bound raises `UnsupportedEvent`, nested or not.
    """

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """An upper bound on epsilon (in nats) at `delta` in (0, 1)."""
        ...

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """What the true epsilon cannot be below by this accountant's own reckoning; 0 where it has no such bound.

        A cross-check between accountants, never a claim.
        """
        ...


def plan_epsilon(accountant: Accountant, event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
    """Epsilon of a plan: the larger of its two disjoint populations."""
    return max(accountant.epsilon(part, delta, adjacency) for part in event.parts.values())


@dataclass(frozen=True, kw_only=True)
class Steps:
    """`count` Gaussian steps that are alike, the noise relative to what one record adds."""

    sample_rate: float
    noise_multiplier: float
    count: int


def gaussian_part(event: DpEvent, adjacency: Adjacency) -> tuple[tuple[Steps, ...], tuple[tuple[DpEvent, int], ...]]:
    """A composition as its Gaussian steps, and its other leaves with their multiplicities."""
    steps, others = [], []
    for leaf, count in flatten(event):
        found = as_gaussian_step(leaf, adjacency)
        if found is None:
            others.append((leaf, count))
        else:
            steps.append(Steps(sample_rate=found[0], noise_multiplier=found[1], count=count))
    return tuple(steps), tuple(others)


def coarser(steps: tuple[Steps, ...], most: int) -> tuple[Steps, ...]:
    """At most `most` kinds of step for each sample rate, each noise rounded down to one of a geometric series.

    *Guarantee*: a mechanism with less noise costs no less, so a price of the result is a price of `steps`.
    """
    coarse: dict[tuple[float, float], int] = {}
    for rate in {step.sample_rate for step in steps}:
        alike = [step for step in steps if step.sample_rate == rate]
        bins = _series([step.noise_multiplier for step in alike], most)
        for step in alike:
            noise = max(value for value in bins if value <= step.noise_multiplier)
            coarse[rate, noise] = coarse.get((rate, noise), 0) + step.count
    return tuple(
        Steps(sample_rate=rate, noise_multiplier=noise, count=count) for (rate, noise), count in sorted(coarse.items())
    )


def _series(noises: list[float], most: int) -> list[float]:
    """The noises themselves if they are few, else a geometric series from the least one up."""
    distinct = sorted(set(noises))
    if len(distinct) <= most or distinct[0] == 0:
        return distinct
    ratio = (distinct[-1] / distinct[0]) ** (1 / most)
    return [distinct[0], *(distinct[0] * ratio**power for power in range(1, most))]


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    if not (math.isfinite(delta) and 0 < delta < 1):
        raise ValueError(f"Expected 0 < delta={delta} < 1.")
