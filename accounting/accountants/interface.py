"""The interface that every accountant keeps, and how a plan's two populations are priced by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    as_fixed_size_step,
    as_gaussian_step,
    flatten,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.numbers import fraction


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
class GaussianSteps:
    """`count` Gaussian steps that are alike, the noise relative to what one record adds."""

    sample_rate: float
    noise_multiplier: float
    count: int


def gaussian_part(
    event: DpEvent, adjacency: Adjacency
) -> tuple[tuple[GaussianSteps, ...], tuple[tuple[DpEvent, int], ...]]:
    """A composition as its Gaussian steps, and its other leaves with their multiplicities."""
    steps, others = [], []
    for leaf, count in flatten(event):
        found = as_gaussian_step(leaf, adjacency)
        if found is None:
            others.append((leaf, count))
        else:
            steps.append(GaussianSteps(sample_rate=found[0], noise_multiplier=found[1], count=count))
    return tuple(steps), tuple(others)


def coarser(steps: tuple[GaussianSteps, ...], most: int) -> tuple[GaussianSteps, ...]:
    """At most `most` kinds of step for each sample rate, each noise rounded down to the least of its group.

    *Guarantee*: a mechanism with less noise costs no less, so a price of the result is a price of `steps`.
    """
    counts: dict[float, dict[float, int]] = {}
    for step in steps:
        alike = counts.setdefault(step.sample_rate, {})
        alike[step.noise_multiplier] = alike.get(step.noise_multiplier, 0) + step.count
    return tuple(
        GaussianSteps(sample_rate=rate, noise_multiplier=noise, count=count)
        for rate in sorted(counts)
        for noise, count in sorted(_rounded_down(counts[rate], most).items())
    )


def coarser_batches(leaves: tuple[tuple[DpEvent, int], ...], most: int) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves, of steps on batches of one fixed size at most `most` kinds, rounded down as by `coarser`."""
    batches: dict[tuple[int, int], dict[float, int]] = {}
    kept = []
    for leaf, count in leaves:
        found = as_fixed_size_step(leaf)
        if found is None:
            kept.append((leaf, count))
        else:
            batches.setdefault(found[:2], {})[found[2]] = count
    for (size, records), counts in batches.items():
        for noise, count in _rounded_down(counts, most).items():
            leaf = without_replacement_gaussian(records=records, batch_size=size, noise_multiplier=noise)
            kept.append((leaf, count))
    return tuple(kept)


def _rounded_down(counts: Mapping[float, int], most: int) -> dict[float, int]:
    """How often each noise occurs, in at most `most` groups of neighbours that all have their group's least noise.

    A group is split again where that saves most precision, 1 / noise^2, which is what steps cost where they cost
    little; so a noise that most steps have stands alone.
    """
    if len(counts) <= most or 0 in counts:
        return dict(counts)
    noises = np.array(sorted(counts))
    before = np.concatenate([[0], np.cumsum([counts[float(noise)] for noise in noises])])
    precision = (noises / noises[0]) ** -2.0

    def best_split(first: int, last: int) -> tuple[float, int, int, int]:
        saved = (before[last] - before[first:last]) * (precision[first] - precision[first:last])
        place = int(saved.argmax())
        return -float(saved[place]), first, first + place, last

    groups = [best_split(0, len(noises))]
    while len(groups) < most and groups[0][0] < 0:
        _, first, place, last = heappop(groups)
        heappush(groups, best_split(first, place))
        heappush(groups, best_split(place, last))
    return {float(noises[first]): int(before[last] - before[first]) for _, first, _, last in groups}


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    fraction("delta", delta)
