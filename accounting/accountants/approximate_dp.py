"""Mechanisms with a theorem for one (epsilon, delta) pair at a time, composed by basic composition.

Random stopping and hard stops have no Renyi curve and no privacy profile. So each such leaf, and the rest of a
composition, gets an equal share of delta, and the epsilons are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.types import DpEvent, RandomStoppingDpEvent, SelectionDpEvent, ThresholdDpEvent
from dpsweep.accounting.profiles.privacy_profiles import rounded_up

EpsilonAt = Callable[[DpEvent, float], float]  # an upper bound on a mechanism's epsilon at a delta
Theorem = Callable[[Any, float, EpsilonAt], float]

_ROUNDS, _AHEAD, _TAIL = 1000, 1e-10, 1e-9


def approximate_dp_epsilon_or_none(
    event: DpEvent, delta: float, epsilon_at: EpsilonAt, *, profiled_limit: int = 0
) -> float | None:
    """Epsilon of a composition with leaves of this module; None without them.

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


def random_stopping_epsilon(leaf: RandomStoppingDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
    """3 eps1 + 3 sqrt(2 delta1) at the largest delta1 with sqrt(2 delta1) T + delta2 <= delta.

    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Theorem 3.4.
    """
    if leaf.delta2 >= delta:
        return math.inf
    root = (delta - leaf.delta2) / leaf.tries.limit
    return 3 * epsilon_at(leaf.event, root**2 / 2) + 3 * root


def above_threshold_epsilon(leaf: ThresholdDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
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
    RandomStoppingDpEvent: random_stopping_epsilon,
    ThresholdDpEvent: above_threshold_epsilon,
    SelectionDpEvent: hard_stopped_selection_epsilon,
}
