"""The epsilon of one run by accountant and by sampler beside the papers' numbers, and the lecture's theorem.

The setting is that of Yang, Zhang, Chen, Liu 2022 (Normalized/Clipped SGD with Perturbation for DP Non-Convex
Optimization): 50000 records, batches of 1000, 100 epochs, delta 1e-5, noise multipliers 3.6, 2.0 and 1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.events.build import (
    DpEvent,
    poisson_gaussian,
    random_allocation,
    repeat,
    shuffled_gaussian,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.reports.reproduction.classical import Classical, dp_sgd_noise_std_by_lecture_theorem
from dpsweep.reports.reproduction.gaussian_limit import (
    dp_sgd_epsilon_by_closed_renyi_formula,
    dp_sgd_epsilon_by_gaussian_limit,
)

RECORDS, BATCH, EPOCHS, DELTA = 50_000, 1000, 100, 1e-5
RATE, STEPS = BATCH / RECORDS, EPOCHS * RECORDS // BATCH
GRID = 35
"""Number of cells in the paper's heatmaps; all were trained on the same records."""

PRINTED = {3.6: 2.0, 2.0: 4.0, 1.2: 8.0}
"""The epsilon that the paper prints for each noise multiplier."""

CAPS = (1.05, 1.10, 1.15)
"""Largest batches of truncated Poisson sampling, relative to the expected one."""

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


@dataclass(frozen=True, kw_only=True)
class NoiseRow:
    """Epsilon of one run at a noise multiplier, Poisson sampling, add or remove one; `limit` is not a bound.

    `mironov` and `improved` are the two conversions of the Moments Accountant; `grid` is the price of all 35 runs.
    """

    noise_multiplier: float
    printed: float
    mironov: float
    improved: float
    distribution: float
    classical: float
    limit: float
    grid: float


@dataclass(frozen=True, kw_only=True)
class SamplerRow:
    """Epsilon of one run with a sampler at the noise multipliers 3.6, 2.0, 1.2; only a `proven` row is a bound.

    `forced` is a lower bound by an explicit attack.
    """

    sampler: str
    method: str
    adjacency: Adjacency
    epsilons: tuple[float, ...]
    forced: tuple[float, ...]
    proven: bool = True


@dataclass(frozen=True, kw_only=True)
class LectureRow:
    """The lecture's theorem for a million single-record steps: the promised epsilon and the epsilon of its noise.

    `forced` is a lower bound by an explicit attack; `neighbours` is the epsilon of the worst known neighbours (one
    record replaced, all others with the old record's gradient); `bound` is proven for all neighbours.
    """

    noise_multiplier: float
    promised: float
    forced: float
    neighbours: float
    bound: float


def rows_comparing_accountants_by_noise() -> tuple[NoiseRow, ...]:
    """The paper's three noise multipliers under every accountant."""
    return tuple(_row_comparing_accountants_at_noise(noise, printed) for noise, printed in PRINTED.items())


def epsilon_rows_by_sampler() -> tuple[SamplerRow, ...]:
    """The same run with every sampler: the sampler that runs must be the one that is charged."""
    return (
        _epsilons_row_of_sampler("Poisson", Pld(), ADD, _poisson_run_event),
        _epsilons_row_of_sampler("Poisson", Pld(), REPLACE, _poisson_run_event),
        *epsilon_rows_of_fixed_batches(),
        _epsilons_row_of_sampler("random allocation", Pld(), ADD, _random_allocation_run_event),
        _epsilons_row_of_sampler("shuffling, no amplification", Pld(), ADD, _shuffled_run_event),
    )


def epsilon_rows_of_fixed_batches() -> tuple[SamplerRow, ...]:
    """The paper's own definitions: batches of fixed size without replacement, one record replaced; and what it says."""
    sampler, run = "fixed size without replacement", _fixed_size_run_event
    formula = tuple(
        dp_sgd_epsilon_by_closed_renyi_formula(sample_rate=RATE, noise_multiplier=noise, steps=STEPS, delta=DELTA)
        for noise in PRINTED
    )
    return (
        _epsilons_row_of_sampler(sampler, Pld(), REPLACE, run),
        _epsilons_row_of_sampler(sampler, Rdp(), REPLACE, run),
        SamplerRow(
            sampler=sampler,
            method="the paper's Proposition E.3",
            adjacency=REPLACE,
            epsilons=formula,
            forced=_lower_bounds_at_printed_noises(run, REPLACE),
            proven=False,
        ),
    )


def epsilon_rows_of_truncated_sampling() -> tuple[SamplerRow, ...]:
    """Poisson sampling truncated a little above the expected batch: the price of bounded memory."""
    return tuple(
        _epsilons_row_of_sampler(
            f"truncated Poisson, at most {cap:.2f} of a batch", Pld(), ADD, _truncated_run_event_by_noise(cap)
        )
        for cap in CAPS
    )


def row_of_lecture_theorem() -> LectureRow:
    """1000 records, 10^6 steps, epsilon 1, delta 1e-5, and the noise that the theorem requires."""
    records, steps, epsilon = 1000, 10**6, 1.0
    noise = dp_sgd_noise_std_by_lecture_theorem(records=records, steps=steps, epsilon=epsilon, delta=DELTA)
    # A replaced gradient moves across the whole ball: the sensitivity is 2, hence half the noise multiplier.
    pair = poisson_gaussian(sample_rate=1 / records, noise_multiplier=noise / 2)
    step = without_replacement_gaussian(records=records, batch_size=1, noise_multiplier=noise)
    return LectureRow(
        noise_multiplier=noise,
        promised=epsilon,
        forced=lower_bound(repeat(step, steps), DELTA, REPLACE),
        neighbours=Pld().epsilon(repeat(pair, steps), DELTA, ADD),
        bound=Pld().epsilon(repeat(step, steps), DELTA, REPLACE),
    )


def _row_comparing_accountants_at_noise(noise: float, printed: float) -> NoiseRow:
    run = _poisson_run_event(noise)
    return NoiseRow(
        noise_multiplier=noise,
        printed=printed,
        mironov=Rdp(conversion=Conversion.MIRONOV).epsilon(run, DELTA, ADD),
        improved=Rdp().epsilon(run, DELTA, ADD),
        distribution=Pld().epsilon(run, DELTA, ADD),
        classical=Classical().epsilon(run, DELTA, ADD),
        limit=dp_sgd_epsilon_by_gaussian_limit(sample_rate=RATE, noise_multiplier=noise, steps=STEPS, delta=DELTA),
        grid=Pld().epsilon(repeat(run, GRID), DELTA, ADD),
    )


def _epsilons_row_of_sampler(
    sampler: str, accountant: Accountant, adjacency: Adjacency, run: Callable[[float], DpEvent]
) -> SamplerRow:
    return SamplerRow(
        sampler=sampler,
        method=accountant.name,
        adjacency=adjacency,
        epsilons=tuple(accountant.epsilon(run(noise), DELTA, adjacency) for noise in PRINTED),
        forced=_lower_bounds_at_printed_noises(run, adjacency),
    )


def _lower_bounds_at_printed_noises(run: Callable[[float], DpEvent], adjacency: Adjacency) -> tuple[float, ...]:
    return tuple(lower_bound(run(noise), DELTA, adjacency) for noise in PRINTED)


def _poisson_run_event(noise: float) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=RATE, noise_multiplier=noise), STEPS)


def _fixed_size_run_event(noise: float) -> DpEvent:
    step = without_replacement_gaussian(records=RECORDS, batch_size=BATCH, noise_multiplier=noise)
    return repeat(step, STEPS)


def _shuffled_run_event(noise: float) -> DpEvent:
    return shuffled_gaussian(epochs=EPOCHS, steps=STEPS // EPOCHS, noise_multiplier=noise)


def _random_allocation_run_event(noise: float) -> DpEvent:
    return random_allocation(epochs=EPOCHS, steps=STEPS // EPOCHS, noise_multiplier=noise)


def _truncated_run_event_by_noise(cap: float) -> Callable[[float], DpEvent]:
    largest = math.floor(cap * BATCH)

    def event_at_noise(noise: float) -> DpEvent:
        step = truncated_poisson_gaussian(
            records=RECORDS, sample_rate=RATE, largest_batch=largest, noise_multiplier=noise
        )
        return repeat(step, STEPS)

    return event_at_noise
