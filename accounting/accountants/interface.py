"""The interface of accountants, compositions as Gaussian steps, and mechanisms with a theorem for one delta at a time.

Random stopping and hard stops have no Renyi curve and no privacy profile. So each such leaf, and the rest of a
composition, gets an equal share of delta, and the epsilons are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpsweep.accounting.codec import fraction
from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.types import DpEvent, Leaves, SelectionDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import rounded_up

EpsilonAt = Callable[[DpEvent, float], float]  # an upper bound on a mechanism's epsilon at a delta
Theorem = Callable[[Any, float, EpsilonAt], float]

_ROUNDS, _AHEAD, _TAIL = 1000, 1e-10, 1e-9


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
    leaves = events.mechanisms_with_counts(event)
    for leaf, count in leaves if most is None else round_noise_down(leaves, most):
        if step := events.as_gaussian_step(leaf, adjacency):
            rate = math.ceil(step[0] * 2**53) / 2**53
            steps.append(GaussianSteps(sample_rate=rate, noise_multiplier=step[1], count=count))
        else:
            others.append((leaf, count))
    return tuple(steps), tuple(others)


def round_noise_down(leaves: Leaves, most: int) -> Leaves:
    """At most `most` noise multipliers of each kind of step, each rounded down to the smallest of its neighbours'.

    *Guarantee*: less noise never costs less, so an upper bound for the result is one for `leaves`.
    """
    kinds: dict[DpEvent, dict[float, int]] = {}
    rounded = []
    for leaf, count in leaves:
        inner: Any = getattr(leaf, "event", leaf)
        if isinstance(leaf, DpEvent) and getattr(inner, "noise_multiplier", 0.0) > 0:
            counts = kinds.setdefault(_with_noise(leaf, 1.0), {})
            counts[inner.noise_multiplier] = counts.get(inner.noise_multiplier, 0) + count
        else:
            rounded.append((leaf, count))
    for kind, counts in kinds.items():
        groups = _smallest_noise_of_groups(counts, most)
        rounded += [(_with_noise(kind, noise), count) for noise, count in groups.items()]
    return tuple(rounded)


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


def noisy_max_epsilon(leaf: events.NoisyMaxDpEvent, adjacency: Adjacency) -> float:
    """Epsilon of report-noisy-max with Gumbel noise, for any number of counts.

    Adding or removing a record moves all counts one way, by at most 1; replacing one may move counts both ways.
    *Source*: McSherry and Talwar 2007 (the exponential mechanism); Durfee and Rogers 2019, Lemma 4.2.
    """
    moved = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    return moved / leaf.noise_scale if leaf.noise_scale > 0 else math.inf


def check_delta(delta: float) -> None:
    """Raises unless delta is a probability strictly between 0 and 1."""
    fraction("delta", delta)


def approximate_dp_epsilon_or_none(
    event: DpEvent, delta: float, epsilon_at: EpsilonAt, *, profiled_limit: int = 0
) -> float | None:
    """Epsilon of a composition with leaves of `_THEOREMS`; None without them.

    `epsilon_at` prices the mechanisms inside them and the rest, with searches of at most `profiled_limit` tries.
    """
    separate: list[tuple[DpEvent, int]] = []
    rest: list[tuple[DpEvent, int]] = []
    for leaf, count in events.leaves_with_counts(event):
        profiled = isinstance(leaf, SelectionDpEvent) and (leaf.limit is None or leaf.limit <= profiled_limit)
        (rest if profiled or type(leaf) not in _THEOREMS else separate).append((leaf, count))
    if not separate:
        return None
    share = delta / (sum(count for _, count in separate) + bool(rest))
    total = sum(count * _THEOREMS[type(leaf)](leaf, share, epsilon_at) for leaf, count in separate)
    others = epsilon_at(events.compose(events.repeat(leaf, count) for leaf, count in rest), share) if rest else 0.0
    return rounded_up(total + others)


def random_stopping_epsilon(leaf: events.RandomStoppingDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
    """3 eps1 + 3 sqrt(2 delta1) at the largest delta1 with sqrt(2 delta1) T + delta2 <= delta.

    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.4.
    """
    if leaf.delta2 >= delta:
        return math.inf
    root = (delta - leaf.delta2) / leaf.tries.limit
    return 3 * epsilon_at(leaf.event, root**2 / 2) + 3 * root


def above_threshold_epsilon(leaf: events.ThresholdDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
    """eps1 + ln(exp(eps1) + delta1 / gamma), at delta1 / gamma plus the cost of the hard stop.

    *Source*: Liu and Talwar 2019, Theorem 3.1, with our own constants. Without the stop, an outcome o is released with
    probability A(o) = Q(o) / d, where d = gamma + (1 - gamma) p and p is the probability to reach the threshold. A
    neighbour has Q(E) <= exp(eps1) Q'(E) + delta1 and d' <= exp(eps1) d + delta1, and d >= gamma, so A(E) <= exp(eps1)
    (exp(eps1) + delta1 / gamma) A'(E) + delta1 / gamma; the output "none" is another event of this kind. The stop after
    T tries multiplies every A(o) by 1 - (1 - d)^T and gives the rest, at most t = (1 - gamma)^T, to "none". So the
    stopped distribution is at most A + t and at least (1 - t) A: epsilon grows by ln(1 / (1 - t)) and delta by t.
    """
    gamma = leaf.tries.gamma
    tail = (1 - gamma) ** leaf.tries.limit
    if tail >= delta:
        return math.inf
    inner = epsilon_at(leaf.event, (delta - tail) * gamma)
    return 2 * inner + math.log1p((delta - tail) * math.exp(-inner)) - math.log1p(-tail)


def hard_stopped_selection_epsilon(leaf: SelectionDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
    """Selection that ends after `limit` tries, which changes the law of K by t = P(K > limit) in total variation.

    So epsilon is enough at delta if that of an endless search is, at delta - (1 + exp(epsilon)) t. What is needed only
    grows with the epsilon that it is computed from, so from below the iteration comes to the least that is enough.
    """
    endless, tail = replace(leaf, limit=None), leaf.tries.probability_beyond(leaf.limit or 0) * (1 + _TAIL)
    epsilon = epsilon_at(endless, delta)
    for _ in range(_ROUNDS):
        left = delta - (1 + math.exp(min(epsilon, 700.0))) * tail
        if left <= 0:
            break
        needed = epsilon_at(endless, left)
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + _AHEAD)
    return math.inf


_THEOREMS: Mapping[type[DpEvent], Theorem] = {
    events.RandomStoppingDpEvent: random_stopping_epsilon,
    events.ThresholdDpEvent: above_threshold_epsilon,
    SelectionDpEvent: hard_stopped_selection_epsilon,
}
