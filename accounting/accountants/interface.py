"""The interface of accountants, the price of a plan's two populations, and compositions as Gaussian steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    rate_and_noise_of_gaussian_step_or_none,
    size_records_and_noise_of_fixed_step,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.rounded_noise import mechanisms_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.validation import fraction


class Accountant(Protocol):
    """Computes an upper bound on epsilon for an event.

    *Guarantee*: `epsilon` is never below the true epsilon of `event` at `delta` under `adjacency`. It is 0 for no
    access and infinity for an access without noise. An event without a proven bound, also a nested one, raises
    `UnsupportedEvent`.
    """

    @property
    def name(self) -> str:
        """The name in reports."""

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """An upper bound on epsilon (in nats) at `delta` in (0, 1)."""

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """A lower bound on the true epsilon by this accountant's own analysis; 0 if it has none.

        It cross-checks other accountants, and is never a claim. It is that of exact noise: rounding is post-processing
        of it, which may make the true epsilon a little smaller.
        """


def plan_epsilon(accountant: Accountant, event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
    """Epsilon of a plan: the larger epsilon of its two disjoint populations."""
    return max(accountant.epsilon(part, delta, adjacency) for part in event.events_by_population.values())


@dataclass(frozen=True, kw_only=True)
class GaussianSteps:
    """`count` equal Gaussian steps; the noise multiplier is relative to the norm bound of one record."""

    sample_rate: float
    noise_multiplier: float
    count: int


GaussianPart = tuple[tuple[GaussianSteps, ...], tuple[tuple[DpEvent, int], ...]]


def gaussian_part(event: DpEvent, adjacency: Adjacency) -> GaussianPart:
    """A composition as its Gaussian steps, and its other mechanisms with their multiplicities."""
    steps, others = [], []
    for leaf, count in mechanisms_with_counts(event):
        step = rate_and_noise_of_gaussian_step_or_none(leaf, adjacency)
        if step is None:
            others.append((leaf, count))
        else:
            rate = math.ceil(step[0] * _COIN) / _COIN
            steps.append(GaussianSteps(sample_rate=rate, noise_multiplier=step[1], count=count))
    return tuple(steps), tuple(others)


_COIN = 2**53
"""A coin that compares a number of 53 random bits with a rate comes up at the rate rounded up to a multiple of 2^-53.
"""


def limit_noise_levels_of_steps(steps: tuple[GaussianSteps, ...], most: int) -> tuple[GaussianSteps, ...]:
    """At most `most` kinds of step per sample rate: each noise multiplier is rounded down to the smallest of its group.

    *Guarantee*: less noise never costs less, so an upper bound for the result is an upper bound for `steps`.
    """
    counts: dict[float, dict[float, int]] = {}
    for step in steps:
        by_noise = counts.setdefault(step.sample_rate, {})
        by_noise[step.noise_multiplier] = by_noise.get(step.noise_multiplier, 0) + step.count
    return tuple(
        GaussianSteps(sample_rate=rate, noise_multiplier=noise, count=count)
        for rate in sorted(counts)
        for noise, count in sorted(_round_noises_down_in_groups(counts[rate], most).items())
    )


def limit_noise_levels_of_fixed_batches(
    leaves: tuple[tuple[DpEvent, int], ...], most: int
) -> tuple[tuple[DpEvent, int], ...]:
    """The leaves, with at most `most` kinds of step per fixed batch size, rounded down as in "
    "`limit_noise_levels_of_steps`."""
    batches: dict[tuple[int, int], dict[float, int]] = {}
    result = []
    for leaf, count in leaves:
        step = size_records_and_noise_of_fixed_step(leaf)
        if step is None:
            result.append((leaf, count))
        else:
            batches.setdefault(step[:2], {})[step[2]] = count
    for (size, records), counts in batches.items():
        for noise, count in _round_noises_down_in_groups(counts, most).items():
            leaf = without_replacement_gaussian(records=records, batch_size=size, noise_multiplier=noise)
            result.append((leaf, count))
    return tuple(result)


def _round_noises_down_in_groups(counts: Mapping[float, int], most: int) -> dict[float, int]:
    """The count of each noise multiplier after grouping neighbouring values; each group gets its smallest noise.

    There are at most `most` groups. The next split is where it saves most precision 1 / noise^2, to which the cost of
    cheap steps is proportional; so a frequent noise multiplier gets its own group.
    """
    if len(counts) <= most or 0 in counts:
        return dict(counts)
    noises = np.array(sorted(counts))
    before = np.concatenate([[0], np.cumsum([counts[float(noise)] for noise in noises])])
    precision = (noises / noises[0]) ** -2.0

    def best_split_of_group(first: int, last: int) -> tuple[float, int, int, int]:
        saved = (before[last] - before[first:last]) * (precision[first] - precision[first:last])
        place = int(saved.argmax())
        return -float(saved[place]), first, first + place, last

    groups = [best_split_of_group(0, len(noises))]
    while len(groups) < most and groups[0][0] < 0:
        _, first, place, last = heappop(groups)
        heappush(groups, best_split_of_group(first, place))
        heappush(groups, best_split_of_group(place, last))
    return {float(noises[first]): int(before[last] - before[first]) for _, first, _, last in groups}


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    fraction("delta", delta)
