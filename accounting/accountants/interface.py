"""The interface of accountants, and compositions as Gaussian steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpsweep.accounting.events.types import DpEvent, Leaves, NoisyMaxDpEvent, as_gaussian_step, mechanisms_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.validation import fraction


class Accountant(Protocol):
    """Upper bounds on epsilon; an event without a proven bound, also a nested one, raises `UnsupportedEvent`.

    *Guarantee*: `epsilon` is never below the true epsilon of `event` at `delta` under `adjacency`. It is 0 without an
    access, and infinity for an access without noise.
    """

    @property
    def name(self) -> str:
        """The name in reports."""

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """In nats, at `delta` in (0, 1)."""


@dataclass(frozen=True, kw_only=True)
class GaussianSteps:
    """`count` equal Gaussian steps; the noise multiplier is relative to the norm bound of one record."""

    sample_rate: float
    noise_multiplier: float
    count: int


def gaussian_part(
    event: DpEvent, adjacency: Adjacency, most: int | None = None
) -> tuple[tuple[GaussianSteps, ...], Leaves]:
    """A composition's Gaussian steps, and its other mechanisms with multiplicities, after `round_noise_down` to `most`.

    Rates are rounded up to a multiple of 2^-53, as a coin does that compares a number of 53 random bits with a rate.
    """
    steps, others = [], []
    leaves = mechanisms_with_counts(event)
    for leaf, count in leaves if most is None else round_noise_down(leaves, most):
        step = as_gaussian_step(leaf, adjacency)
        if step is None:
            others.append((leaf, count))
        else:
            rate = math.ceil(step[0] * 2**53) / 2**53
            steps.append(GaussianSteps(sample_rate=rate, noise_multiplier=step[1], count=count))
    return tuple(steps), tuple(others)


def round_noise_down(leaves: Leaves, most: int) -> Leaves:
    """At most `most` noise multipliers of each kind of step, each rounded down to the smallest of its neighbours'.

    *Guarantee*: less noise never costs less, so an upper bound for the result is one for `leaves`.
    """
    kinds: dict[DpEvent, dict[float, int]] = {}
    others = []
    for leaf, count in leaves:
        inner: Any = getattr(leaf, "event", leaf)
        if isinstance(leaf, DpEvent) and getattr(inner, "noise_multiplier", 0.0) > 0:
            counts = kinds.setdefault(_with_noise(leaf, 1.0), {})
            counts[inner.noise_multiplier] = counts.get(inner.noise_multiplier, 0) + count
        else:
            others.append((leaf, count))
    return *others, *(
        (_with_noise(kind, noise), count)
        for kind, counts in kinds.items()
        for noise, count in _smallest_noise_of_groups(counts, most).items()
    )


def _with_noise(leaf: DpEvent, noise: float) -> DpEvent:
    changed: Any = {"event": replace(leaf.event, noise_multiplier=noise)} if hasattr(leaf, "event") else {}
    return replace(leaf, **(changed or {"noise_multiplier": noise}))


def _smallest_noise_of_groups(counts: Mapping[float, int], most: int) -> dict[float, int]:
    """The next split is where it saves most precision 1 / noise^2, to which the cost of cheap steps is proportional."""
    noises = np.array(sorted(counts))
    before = np.cumsum([0, *(counts[float(noise)] for noise in noises)])
    precision = (noises / noises[0]) ** -2.0
    starts, ends = np.array([0]), np.array([len(noises)])
    while len(starts) < most:
        group = np.searchsorted(starts, np.arange(len(noises)), side="right") - 1
        saved = (before[ends[group]] - before[:-1]) * (precision[starts[group]] - precision)
        if not saved.max() > 0:
            break
        starts = np.union1d(starts, [int(saved.argmax())])
        ends = np.append(starts[1:], len(noises))
    return {float(noises[one]): int(before[end] - before[one]) for one, end in zip(starts, ends, strict=True)}


def noisy_max_epsilon(leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> float:
    """Epsilon of report-noisy-max with Gumbel noise, for any number of counts.

    Adding or removing a record moves all counts one way, by at most 1; replacing one may move counts both ways.
    *Source*: McSherry and Talwar 2007 (the exponential mechanism); Durfee and Rogers 2019, Lemma 4.2.
    """
    moved = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    return moved / leaf.noise_scale if leaf.noise_scale > 0 else math.inf


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    fraction("delta", delta)
