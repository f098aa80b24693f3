"""The interface that every accountant keeps, and how a plan's two populations are priced by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from accounting.errors import UnsupportedEvent
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
    """`count` Gaussian steps that are alike: add or remove one, the noise relative to the per-record norm bound."""

    sample_rate: float
    noise_multiplier: float
    count: int


def gaussian_steps(event: DpEvent, accountant: str) -> tuple[Steps, ...]:
    """The event as a composition of Gaussian steps; anything else raises `UnsupportedEvent`, nested or not."""
    found = []
    for leaf, count in flatten(event):
        step = as_gaussian_step(leaf)
        if step is None:
            raise UnsupportedEvent(f"{accountant} has no proven bound for {leaf}.")
        found.append(Steps(sample_rate=step[0], noise_multiplier=step[1], count=count))
    return tuple(found)


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    if not (math.isfinite(delta) and 0 < delta < 1):
        raise ValueError(f"Expected 0 < delta={delta} < 1.")
