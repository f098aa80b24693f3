"""The two-cut attack on a search that releases the best of K tries, K secret.

The worst score ranks the likelihood ratios L of one try with two cuts t <= s: lowest are the outputs with t <= L < s,
then those with L >= s, and highest those with L < t. The event is "the winner has L >= s": every try has L >= t and one
has L >= s. With the generating function f of K its probability is f(P(L >= t)) - f(P(t <= L < s)), which is computed
from the probabilities of one try without loss of the digits of small ones.

*Source*: the worst case of the envelope bound (`selection_envelope.py`), restricted to two cuts; benchmarks/RESULTS.md
has the gap between both. `t` = 0 gives the ranking by L.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpsweep.accounting import codec
from dpsweep.accounting.events.trial_counts import (
    SERIES,
    Capped,
    EachPoint,
    NegativeBinomial,
    Poisson,
    Stopping,
    Tries,
)
from dpsweep.accounting.lower_bounds.likelihood_ratio import LatticePmf


def chance_to_draw_best_share(tries: Tries | Stopping, share: float) -> float:
    """The probability that K independent uniform draws contain one of the best `share` of all points.

    >>> round(chance_to_draw_best_share(NegativeBinomial.with_mean(eta=1.0, mean=40.0), 1 / 35), 2)
    0.54
    """
    codec.share("share", share)
    return float(generating_function_rise(tries, np.asarray(1 - share), np.asarray(share)))


def generating_function_rise(tries: Tries | Stopping, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """f(low + step) - f(low) for the generating function f, without loss of digits where the step is small."""
    return np.asarray(_RISES[type(tries)](tries, np.minimum(low, 1.0), np.minimum(step, 1.0)))


def _negative_binomial_generating_rise(tries: NegativeBinomial, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    if tries.gamma == 1:
        return step
    base = np.maximum((1 - low) + tries.gamma * low, tries.gamma)
    growth = -np.log1p(-np.minimum((1 - tries.gamma) * step / base, 1 - 1e-16))
    if abs(tries.eta) < SERIES:
        return np.asarray(growth / -math.log(tries.gamma))
    scale = base**-tries.eta / math.expm1(-tries.eta * math.log(tries.gamma))
    return np.asarray(scale * np.expm1(tries.eta * growth))


def _poisson_generating_rise(tries: Poisson, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    top = np.minimum(low + step, 1.0)
    return np.asarray(np.exp(tries.mean * (top - 1)) * -np.expm1(-tries.mean * step))


def _stopping_generating_rise(tries: Stopping, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """f(u) = gamma u / (1 - h u) + (h u)^limit (1 - u) / (1 - h u) with h = 1 - gamma, as a sum of positive terms."""
    go_on, high = 1 - tries.gamma, np.minimum(low + step, 1.0)
    below, above = 1 - go_on * low, 1 - go_on * high
    early = tries.gamma * step / (below * above) * (1 - (go_on * low) ** tries.limit)
    late = _fixed_generating_rise(EachPoint(count=tries.limit), low, step) * (1 - high) / above
    return np.asarray(early + go_on**tries.limit * late)


def _capped_generating_rise(tries: Capped, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The divided difference of a polynomial with positive coefficients, by two nested Horner schemes."""
    high = low + step
    *coefficients, last = tries.probabilities_up_to(tries.limit)[1:].tolist()
    value = quotient = np.full(np.shape(low), last)
    for coefficient in reversed(coefficients):
        value = value * high + coefficient
        quotient = quotient * low + value
    return np.asarray(quotient * step)


def _fixed_generating_rise(tries: EachPoint, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    small = step < 1e-3 * low
    base = np.where(small, low, 1.0)
    growth = np.expm1(tries.count * np.log1p(np.where(small, step, 0.0) / base))
    return np.asarray(np.where(small, base**tries.count * growth, (low + step) ** tries.count - low**tries.count))


_RISES: Mapping[type, Callable[[Any, np.ndarray, np.ndarray], np.ndarray]] = {
    NegativeBinomial: _negative_binomial_generating_rise,
    Poisson: _poisson_generating_rise,
    EachPoint: _fixed_generating_rise,  # equal points are independent tries
    Capped: _capped_generating_rise,
    Stopping: _stopping_generating_rise,
}


def mean_tries_until_first_good(tries: Stopping, good: np.ndarray) -> np.ndarray:
    """P(any try is good) / P(one try is good): the mean number of tries until the first good one or the stop."""
    go_on = (1 - tries.gamma) * (1 - good)
    return np.asarray((1 - go_on**tries.limit) / (tries.gamma + (1 - tries.gamma) * good))


ROUNDING = 1e-6
"""An upper bound on the relative error of every probability here."""

SMALLEST = 1e-290
"""Smaller probabilities are replaced by this: floating point has no precision below it."""

CUTS = 120
"""Candidates for each cut in the first search; later searches refine the neighbourhood of the best pair."""

ROUNDS = 3


def epsilon_forced_by_two_cuts(cells: LatticePmf, tries: Tries | Stopping, delta: float, slack: float = 0.0) -> float:
    """The largest ln((A - delta) / B) that two cuts force, in both directions; 0 if they force nothing.

    `slack` bounds the total variation between the distribution of the number of tries and the true one.
    """
    lost = tries.mean * cells.lost + slack
    both = (cells.present, cells.instead), (cells.instead, cells.present)
    return max(0.0, *(_epsilon_forced_in_one_direction(first, second, tries, delta, lost) for first, second in both))


def _epsilon_forced_in_one_direction(
    first: np.ndarray, second: np.ndarray, tries: Tries | Stopping, delta: float, lost: float
) -> float:
    """The best cuts between the cells in descending order of first / second."""
    order = np.argsort(second / np.maximum(first, SMALLEST), kind="stable")
    heads = [np.append(0.0, np.cumsum(masses[order])) for masses in (first, second)]
    best, place = 0.0, (0, 0)
    tops = bottoms = _cuts_at_geometric_masses(heads, 0, len(order))
    for _ in range(ROUNDS):
        top, bottom = (grid.ravel() for grid in np.meshgrid(tops, bottoms, indexing="ij"))
        top, bottom = top[top <= bottom], bottom[top <= bottom]
        a, b = (generating_function_rise(tries, head[bottom] - head[top], head[top]) for head in heads)
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.log(a * (1 - ROUNDING) - delta - lost) - np.log(b * (1 + ROUNDING) + lost + SMALLEST)
        gains = np.nan_to_num(gains, nan=-math.inf)
        at = int(np.argmax(gains))
        if gains[at] > best:
            best, place = float(gains[at]), (int(top[at]), int(bottom[at]))
        tops, bottoms = (
            _cuts_between_grid_neighbours(grid, cut) for grid, cut in zip((tops, bottoms), place, strict=True)
        )
    return best


def _cuts_at_geometric_masses(heads: list[np.ndarray], lowest: int, highest: int) -> np.ndarray:
    """Numbers of first cells whose total masses, or those of the rest, fall geometrically under either neighbour."""
    shares = np.geomspace(1e-14, 0.5, CUTS // 2)
    ends = [
        np.searchsorted(side, shares) if ascending else len(side) - 1 - np.searchsorted(side, shares)
        for head in heads
        for side, ascending in ((head, True), (head[-1] - head[::-1], False))
    ]
    return np.unique(np.clip(np.concatenate([*ends, [lowest, highest]]), lowest, highest))


def _cuts_between_grid_neighbours(grid: np.ndarray, cut: int) -> np.ndarray:
    """Candidates between the two neighbours of a cut on a grid."""
    place = int(np.searchsorted(grid, cut))
    low, high = grid[max(0, place - 1)], grid[min(len(grid) - 1, place + 1)]
    return np.unique(np.linspace(low, high, CUTS).round().astype(np.int64))
