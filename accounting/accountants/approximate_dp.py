"""Mechanisms with a theorem for one (epsilon, delta) pair at a time, composed by basic composition.

Random stopping and hard stops have no Renyi curve and no privacy profile. So these leaves are priced separately from
the rest of a composition: every one gets an equal share of delta, and the epsilons are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpsweep.accounting.events.build import DpEvent, best_of_tries, compose, leaves_with_counts, repeat
from dpsweep.accounting.events.types import RandomStoppingDpEvent, SelectionDpEvent, ThresholdDpEvent

EpsilonAt = Callable[[DpEvent, float], float]
"""An upper bound on a mechanism's epsilon at a delta."""

Theorem = Callable[[Any, float, EpsilonAt], float]

_STEPS = 60


def approximate_dp_epsilon_or_none(
    event: DpEvent, delta: float, epsilon_at: EpsilonAt, *, profiled_limit: int = 0
) -> float | None:
    """Epsilon of a composition with leaves of this module; None for a composition without them.

    `epsilon_at` prices the mechanisms inside these leaves and the rest of the composition, which includes searches with
    a limit of at most `profiled_limit` tries.
    """

    def is_priced_by_own_theorem(leaf: DpEvent) -> bool:
        profiled = isinstance(leaf, SelectionDpEvent) and leaf.limit is not None and leaf.limit <= profiled_limit
        return _theorem_of_leaf_or_none(leaf) is not None and not profiled

    leaves = leaves_with_counts(event)
    separate = [(leaf, count) for leaf, count in leaves if is_priced_by_own_theorem(leaf)]
    if not separate:
        return None
    rest = compose(repeat(leaf, count) for leaf, count in leaves if not is_priced_by_own_theorem(leaf))
    shares = sum(count for _, count in separate) + bool(leaves_with_counts(rest))
    total = epsilon_at(rest, delta / shares) if leaves_with_counts(rest) else 0.0
    for leaf, count in separate:
        total += count * _THEOREMS[type(leaf)](leaf, delta / shares, epsilon_at)
    return total


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

    def epsilon_without_hard_stop(share: float) -> float:
        inner = epsilon_at(leaf.event, share * gamma)
        return 2 * inner + math.log1p(share * math.exp(-inner))  # inner + ln(exp(inner) + share)

    tail = (1 - gamma) ** leaf.tries.limit
    return epsilon_without_hard_stop(delta - tail) - math.log1p(-tail) if tail < delta else math.inf


def hard_stopped_selection_epsilon(leaf: SelectionDpEvent, delta: float, epsilon_at: EpsilonAt) -> float:
    """Selection that ends after `limit` tries: the distribution of K changes by P(K > limit) in total variation."""
    if leaf.limit is None:
        return epsilon_at(leaf, delta)
    return _least_epsilon_with_hard_stop(
        lambda share: epsilon_at(best_of_tries(leaf.event, leaf.tries), share),
        delta,
        leaf.tries.probability_beyond(leaf.limit),
    )


def _least_epsilon_with_hard_stop(epsilon_of: Callable[[float], float], delta: float, tail: float) -> float:
    """The least epsilon with epsilon_of(delta - (1 + exp(epsilon)) tail) <= epsilon: by bisection, rounded up."""
    if tail == 0:
        return epsilon_of(delta)

    def is_epsilon_enough(epsilon: float) -> bool:
        remaining = delta - (1 + math.exp(min(epsilon, 700.0))) * tail
        return remaining > 0 and epsilon_of(remaining) <= epsilon

    low = high = epsilon_of(delta)
    step = 1e-9
    while not is_epsilon_enough(high):
        low, high, step = high, high + step, 2 * step
        if (1 + math.exp(min(low, 700.0))) * tail >= delta:
            return math.inf
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_epsilon_enough(middle) else (middle, high)
    return high


def _theorem_of_leaf_or_none(leaf: DpEvent) -> Theorem | None:
    if isinstance(leaf, SelectionDpEvent) and leaf.limit is None:
        return None
    return _THEOREMS.get(type(leaf))


_THEOREMS: Mapping[type[DpEvent], Theorem] = {
    RandomStoppingDpEvent: random_stopping_epsilon,
    ThresholdDpEvent: above_threshold_epsilon,
    SelectionDpEvent: hard_stopped_selection_epsilon,
}
