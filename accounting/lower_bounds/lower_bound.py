"""Exact lower bounds on epsilon of a mechanism or a search, from an explicit attack.

The attacker observes an aligned canary, by the sum of the log-likelihood ratios of all released values
(`accounting/lower_bounds/likelihood_ratio.py`). If only the best of several runs is
released, the attack assumes the worst score, a function of the attacker's own sum that ranks the tries by two cuts
(`accounting/lower_bounds/selection_attack.py`): so the winner carries information about the other runs. Every choice of
observations gives a valid lower bound. So the attack leaves out the parts of a composition that it cannot use: a part
costs no more than the whole.

*Guarantee*: ln((A - delta) / B), rounded down, where A and B are the probabilities of the best event that the attack
considers, under two neighbours; 0 if no attack is known.
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
from dpsweep.accounting.events.trial_counts import MOST_TRIES, Stopping
from dpsweep.accounting.events.types import (
    RandomAllocationDpEvent,
    RandomStoppingDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    ThresholdDpEvent,
    TruncatedSubsampledGaussianDpEvent,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.likelihood_ratio import (
    CanarySteps,
    LatticePmf,
    distribution_of_likelihood_ratio_sum,
)
from dpsweep.accounting.lower_bounds.selection_attack import (
    ROUNDING,
    SMALLEST,
    epsilon_forced_by_two_cuts,
    generating_function_rise,
    mean_tries_until_first_good,
)

CUTOFFS = 24

Pair = tuple[np.ndarray, np.ndarray]
"""The masses of the same cells under two neighbours."""


def lower_bound(event: DpEvent, delta: float, adjacency: Adjacency) -> float:
    """Epsilon that the attack forces at `delta`: no accountant may return less.

    >>> from dpsweep.accounting.events.build import gaussian
    >>> round(lower_bound(gaussian(noise_multiplier=1.0), 1e-5, Adjacency.ADD_OR_REMOVE_ONE), 2)
    4.38
    """
    check_delta(delta)
    adjacency = Adjacency(adjacency)
    steps, others = gaussian_part(event, adjacency)
    if any(step.noise_multiplier == 0 and step.sample_rate == 1 for step in steps):
        return math.inf
    bounds = [0.0]
    if cells := _attack_distribution(event, adjacency):
        bounds.append(forced_epsilon((cells.present, cells.instead), delta, cells.lost))
    for leaf, _ in others:
        if isinstance(leaf, (SelectionDpEvent, RandomStoppingDpEvent, ThresholdDpEvent)):
            tries = _attack_distribution(leaf.event, adjacency)
            bounds.append(0.0 if tries is None else _SEARCHES[type(leaf)](leaf, tries, delta))
    return max(bounds)


def forced_epsilon(masses: Pair, delta: float, slack: float) -> float:
    """The largest ln((A - delta) / B) over events, in both directions; the best events are likelihood-ratio tests.

    `slack` bounds the total variation between each distribution and the true one.
    """
    best = 0.0
    for first, second in (masses, masses[::-1]):
        order = np.argsort(second / np.maximum(first, SMALLEST), kind="stable")
        a = np.cumsum(first[order]) * (1 - ROUNDING) - delta - slack
        b = np.cumsum(second[order]) * (1 + ROUNDING) + slack + SMALLEST
        if a.max() > 0:
            best = max(best, float(np.log(a[a > 0] / b[a > 0]).max()))
    return best


def _cells_ascending_and_descending(cells: LatticePmf) -> tuple[LatticePmf, LatticePmf]:
    """The cells in ascending and in descending order of the sum."""
    return cells, LatticePmf(present=cells.present[::-1], instead=cells.instead[::-1], lost=cells.lost)


def masses_of_first_good_try(masses: np.ndarray, law: Stopping, good: int) -> np.ndarray:
    """The masses of the first good try in the last `good` cells; the last entry is the mass of no good try."""
    share = np.minimum(masses[-good:].sum(), 1.0)
    return np.append(
        masses[-good:] * mean_tries_until_first_good(law, share),
        generating_function_rise(law, np.zeros(()), np.asarray(1 - share)),
    )


def _selection_lower_bound(leaf: SelectionDpEvent, cells: LatticePmf, delta: float) -> float:
    if leaf.limit is None or leaf.limit <= MOST_TRIES:
        return epsilon_forced_by_two_cuts(cells, leaf.law_of_tries_with_limit, delta)
    return epsilon_forced_by_two_cuts(cells, leaf.tries, delta, leaf.tries.probability_beyond(leaf.limit))


def _random_stopping_lower_bound(leaf: RandomStoppingDpEvent, cells: LatticePmf, delta: float) -> float:
    return epsilon_forced_by_two_cuts(cells, leaf.tries, delta)


def _threshold_lower_bound(leaf: ThresholdDpEvent, cells: LatticePmf, delta: float) -> float:
    lost, tries = leaf.tries.mean * cells.lost, leaf.tries
    return max(
        forced_epsilon(
            (
                masses_of_first_good_try(ordered.present, tries, good),
                masses_of_first_good_try(ordered.instead, tries, good),
            ),
            delta,
            lost,
        )
        for ordered in _cells_ascending_and_descending(cells)
        for good in _candidate_good_cell_counts(ordered)
    )


def _candidate_good_cell_counts(cells: LatticePmf) -> list[int]:
    """Numbers of last cells that count as good, for probabilities of a good try from 1/2 down to 1e-9."""
    tail = np.cumsum(np.maximum(cells.present, cells.instead)[::-1])
    return sorted({int(np.searchsorted(tail, chance)) + 1 for chance in np.geomspace(0.5, 1e-9, CUTOFFS)})


_SEARCHES: Mapping[type[DpEvent], Callable[[Any, LatticePmf, float], float]] = {
    SelectionDpEvent: _selection_lower_bound,
    RandomStoppingDpEvent: _random_stopping_lower_bound,
    ThresholdDpEvent: _threshold_lower_bound,
}


def _attack_distribution(event: DpEvent, adjacency: Adjacency) -> LatticePmf | None:
    """The attacker's sum over all parts of a mechanism that the attack supports; None without any."""
    steps, others = gaussian_part(event, adjacency)
    instead = -1 if adjacency is Adjacency.REPLACE_ONE else 0
    canary_steps = [
        CanarySteps(rate=step.sample_rate, noise_multiplier=step.noise_multiplier, count=step.count, instead=instead)
        for step in steps
    ]
    for leaf, count in others:
        canary_steps += _canary_steps_of_other_sampling(leaf, count, adjacency)
    return _remembered_distribution(tuple(canary_steps))


def _canary_steps_of_other_sampling(leaf: DpEvent, count: int, adjacency: Adjacency) -> list[CanarySteps]:
    """Steps on samples other than Poisson samples.

    Without replacement every sample has the same size, so all other gradients may be the opposite of the canary's:
    replacing one of these records by the canary moves the sum by 2 if the canary is sampled, and by 0 otherwise. A
    truncated Poisson sample keeps the canary with the same probability as every record; one record more than stated
    only lowers it. In an epoch with random allocation the attacker adds up all steps, which have the canary once.
    """
    if type(leaf) is RandomAllocationDpEvent and adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        noise = leaf.noise_multiplier * math.sqrt(leaf.steps)
        return [CanarySteps(rate=1.0, noise_multiplier=noise, count=count)]
    if type(leaf) is SampledWithoutReplacementDpEvent and adjacency is Adjacency.REPLACE_ONE:
        inner, _ = gaussian_part(leaf.event, adjacency)
        if len(inner) == 1 and inner[0].count == 1 and inner[0].sample_rate == 1:
            rate = leaf.sample_size / leaf.source_dataset_size
            noise = inner[0].noise_multiplier
            return [CanarySteps(rate=rate, noise_multiplier=noise, count=count, present=2)]
    if type(leaf) is TruncatedSubsampledGaussianDpEvent and adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        rate = leaf.sampling_probability * _chance_to_survive_truncation(
            leaf.dataset_size, leaf.sampling_probability, leaf.truncated_batch_size
        )
        return [CanarySteps(rate=rate, noise_multiplier=leaf.noise_multiplier, count=count)]
    return []


_remembered_distribution = lru_cache(maxsize=32)(distribution_of_likelihood_ratio_sum)


@lru_cache(maxsize=64)
def _chance_to_survive_truncation(others: int, rate: float, largest: int) -> float:
    """E[min(1, largest / (1 + n))] for a binomial n, minus a bound on the contribution of far tails."""
    last = min(others, math.ceil(max(largest, others * rate) + 20 * math.sqrt(others * rate) + 100))
    n = np.arange(largest, last + 1)
    above = special.bdtrc(n - 1, others, rate)
    return 1 - float(np.sum(above * (largest / n - largest / (1 + n))) + special.bdtrc(last, others, rate))
