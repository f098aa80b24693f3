"""What a mechanism or a search cannot cost less than: exact lower bounds from an explicit attack.

The attacker watches an aligned canary, by the sum of all values (`accounting/lower_bounds/canary_attack.py`) or of what
each of them says (`accounting/lower_bounds/likelihood_ratio.py`). Where everything is shown, that is all. Where only
the best of several runs is shown, each run's score is the worst one possible: a function of the attacker's own sum, so
that the winner's tells how the others did. Any choice of what to look at bounds epsilon from below, so what the attack
cannot use is left out: a part of a composition costs no more than all of it.

*Guarantee*: with A and B the probabilities of one event under two neighbours, ln((A - delta) / B) for the best event
found, rounded down; 0 where no attack is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from dpsweep.accounting.accountants.interface import check_delta, gaussian_part
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.events.trial_counts import Stopping
from dpsweep.accounting.events.types import (
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.best_of_k import Law, chance_of_any, winner_above, winner_below
from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps, LatticePmf, between, watch
from dpsweep.accounting.lower_bounds.likelihood_ratio import weigh

ROUNDING = 1e-6
"""More than any probability here is wrong by, relative to itself."""

SMALLEST = 1e-290
"""No probability is said to be smaller: beyond this floating point has no digits left."""

CUTOFFS = 24

Pair = tuple[np.ndarray, np.ndarray]
"""The masses of the same cells under two neighbours."""


def lower_bound(event: DpEvent, delta: float, adjacency: Adjacency) -> float:
    """Epsilon that the attack forces at `delta`: no accountant may say less.

    >>> from dpsweep.accounting.events.build import gaussian
    >>> round(lower_bound(gaussian(noise_multiplier=1.0), 1e-5, Adjacency.ADD_OR_REMOVE_ONE), 2)
    4.38
    """
    check_delta(delta)
    adjacency = Adjacency(adjacency)
    steps, others = gaussian_part(event, adjacency)
    if any(step.noise_multiplier == 0 and step.sample_rate == 1 for step in steps):
        return math.inf
    shown = [forced((cells.present, cells.instead), delta, cells.lost) for cells in _views(event, adjacency)]
    searches = [
        _SEARCHES[type(leaf)](leaf, cells, delta)
        for leaf, _ in others
        if type(leaf) in _SEARCHES
        for cells in _views(leaf.event, adjacency)
    ]
    return max([0.0, *shown, *searches])


def best_of(cells: LatticePmf, law: Law, delta: float, slack: float = 0.0) -> float:
    """Epsilon that the winner's sum forces, the score rising with the sum or falling.

    `slack` is how far the law of the number of tries is from the true one, in total variation.
    """
    return max(
        forced(
            (winner_masses(ranked.present, law), winner_masses(ranked.instead, law)),
            delta,
            law.mean * cells.lost + slack,
        )
        for ranked in _both_ways(cells)
    )


def forced(masses: Pair, delta: float, slack: float) -> float:
    """The largest ln((A - delta) / B) over events, in either direction; cells by likelihood ratio make the best ones.

    `slack` is how far either law may be from the true one, in total variation.
    """
    best = 0.0
    for here, there in (masses, masses[::-1]):
        order = np.argsort(there / np.maximum(here, SMALLEST), kind="stable")
        a = np.cumsum(here[order]) * (1 - ROUNDING) - delta - slack
        b = np.cumsum(there[order]) * (1 + ROUNDING) + slack + SMALLEST
        if a.max() > 0:
            best = max(best, float(np.log(a[a > 0] / b[a > 0]).max()))
    return best


def _both_ways(cells: LatticePmf) -> tuple[LatticePmf, LatticePmf]:
    """The cells with the sum rising and falling."""
    return cells, LatticePmf(present=cells.present[::-1], instead=cells.instead[::-1], lost=cells.lost)


def winner_masses(masses: np.ndarray, law: Law) -> np.ndarray:
    """The best try's masses, where one try's are these and a later cell scores higher."""
    below, above = np.cumsum(masses)[:-1], np.cumsum(masses[::-1])[::-1][1:]
    return between(winner_below(law, np.minimum(below, 1.0)), winner_above(law, np.minimum(above, 1.0)))


def first_good_masses(masses: np.ndarray, law: Stopping, good: int) -> np.ndarray:
    """The masses of the first try in the last `good` cells, and, at the end, of none."""
    share = np.minimum(masses[-good:].sum(), 1.0)
    return np.append(masses[-good:] * chance_of_any(law, share), winner_below(law, 1 - share))


def _selection(leaf: SelectionDpEvent, cells: LatticePmf, delta: float) -> float:
    return best_of(cells, leaf.tries, delta, 0.0 if leaf.limit is None else leaf.tries.beyond(leaf.limit))


def _random_stopping(leaf: RandomStoppingDpEvent, cells: LatticePmf, delta: float) -> float:
    return best_of(cells, leaf.tries, delta)


def _threshold(leaf: ThresholdDpEvent, cells: LatticePmf, delta: float) -> float:
    lost = leaf.tries.mean * cells.lost
    return max(
        forced(
            (first_good_masses(one.present, leaf.tries, good), first_good_masses(one.instead, leaf.tries, good)),
            delta,
            lost,
        )
        for one in _both_ways(cells)
        for good in _cutoffs(one)
    )


def _cutoffs(cells: LatticePmf) -> list[int]:
    """How many of the last cells are good, so that one try is good with chances from 1/2 down to 1e-9."""
    tail = np.cumsum(np.maximum(cells.present, cells.instead)[::-1])
    return sorted({int(np.searchsorted(tail, chance)) + 1 for chance in np.geomspace(0.5, 1e-9, CUTOFFS)})


_SEARCHES: Mapping[type[DpEvent], Callable[[Any, LatticePmf, float], float]] = {
    SelectionDpEvent: _selection,
    RandomStoppingDpEvent: _random_stopping,
    ThresholdDpEvent: _threshold,
}


def _views(event: DpEvent, adjacency: Adjacency) -> tuple[LatticePmf, ...]:
    """The attacker's sums over all parts of a mechanism that it knows how to watch."""
    steps, others = gaussian_part(event, adjacency)
    instead = -1 if adjacency is Adjacency.REPLACE_ONE else 0
    seen = [
        CanarySteps(rate=step.sample_rate, noise_multiplier=step.noise_multiplier, count=step.count, instead=instead)
        for step in steps
    ]
    for leaf, count in others:
        seen += _sampled(leaf, count, adjacency)
    return _watched(tuple(seen))


def _sampled(leaf: DpEvent, count: int, adjacency: Adjacency) -> list[CanarySteps]:
    """Steps on samples of another kind.

    Without replacement every sample has one size, so all others may point the other way: replacing one of them by the
    canary moves the sum by 2 where the canary was sampled and not at all elsewhere. Where large samples are cut down,
    the canary is kept in proportion; one more record than stated only makes that rarer.
    """
    if type(leaf) is SampledWithoutReplacementDpEvent and adjacency is Adjacency.REPLACE_ONE:
        inner, _ = gaussian_part(leaf.event, adjacency)
        if len(inner) == 1 and inner[0].count == 1 and inner[0].sample_rate == 1:
            rate = leaf.sample_size / leaf.source_dataset_size
            noise = inner[0].noise_multiplier
            return [CanarySteps(rate=rate, noise_multiplier=noise, count=count, present=2)]
    if type(leaf) is TruncatedSubsampledGaussianDpEvent and adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        rate = leaf.sampling_probability * _kept(
            leaf.dataset_size, leaf.sampling_probability, leaf.truncated_batch_size
        )
        return [CanarySteps(rate=rate, noise_multiplier=leaf.noise_multiplier, count=count)]
    return []


@lru_cache(maxsize=32)
def _watched(seen: tuple[CanarySteps, ...]) -> tuple[LatticePmf, ...]:
    return tuple(cells for cells in (watch(seen), weigh(seen)) if cells is not None)


@lru_cache(maxsize=64)
def _kept(others: int, rate: float, largest: int) -> float:
    """E[min(1, largest / (1 + n))], n binomial, less what far tails could add."""
    last = min(others, math.ceil(max(largest, others * rate) + 20 * math.sqrt(others * rate) + 100))
    n = np.arange(largest, last + 1)
    above = special.bdtrc(n - 1, others, rate)
    return 1 - float(np.sum(above * (largest / n - largest / (1 + n))) + special.bdtrc(last, others, rate))
