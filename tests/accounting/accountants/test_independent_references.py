"""Prices against references of their own: falling clip norms, shared subsamples and batches of a fixed size.

Each reference is a closed form, an integral or the bracket of `tests/accounting/reference_losses.py`. No price may be
below the floor of a bracket, and the least price is near its ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    compose,
    gaussian,
    poisson_gaussian,
    repeat,
    step_on_shared_subsample,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import priced_events_of_runs
from dpsweep.trainers.declarations import batch_sampling
from dpsweep.trainers.declarations.clip_schedules import BoundSchedule, Geometric, Linear, step_counts_by_noise_factor
from tests.accounting.reference_losses import (
    Added,
    Draw,
    FixedSize,
    Law,
    Parts,
    Removed,
    Replaced,
    draws,
    epsilons_between,
    gaussian_epsilon,
    needs_long_doubles,
    sized,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
RECORDS = 10**7
HUGE = 500.0
"""An epsilon near which the tightest accountant may need too much memory and refuse."""

pytestmark = needs_long_doubles


def prices_of_event(event: DpEvent, delta: float, adjacency: Adjacency) -> list[float]:
    """The upper bounds of the accountants that have one."""
    found = []
    for accountant in (Pld(), Rdp()):
        try:
            found.append(accountant.epsilon(event, delta, adjacency))
        except UnsupportedEvent:
            continue
    return found


def assert_between(
    event: DpEvent,
    directions: Iterable[Parts],
    delta: float,
    adjacency: Adjacency,
    *,
    loose: float,
    points: int = 2**15,
) -> float:
    """No price is below the larger floor, and the least one, which is returned, is near the larger ceiling."""
    least, most = np.max([epsilons_between(parts, delta, points) for parts in directions], axis=0)
    prices = prices_of_event(event, delta, adjacency)
    assert prices
    assert min(prices) >= least
    if least < HUGE:
        assert min(prices) <= loose * most + 1e-6
    assert most <= 1.02 * least + 1e-5, "the bracket is narrow"
    return min(prices)


def both_ways(parts: Sequence[tuple[Draw, int]]) -> list[Parts]:
    return [[(law(one.rate, one.noise), count) for one, count in parts] for law in (Removed, Added)]


# Batches of a fixed size

SMALL_RATES = [
    Draw(1e-5, 0.5, 1, 1e-12),
    Draw(1e-5, 3.0, 20_000, 1e-8),
    Draw(1e-5, 50.0, 20_000, 1e-10),
    Draw(1e-4, 2.0, 1000, 1e-9),
    Draw(1e-3, 2.0, 20_000, 1e-6),
]
LARGE_RATES = [Draw(0.02, 2.0, 5000, 1e-5), Draw(0.5, 50.0, 20_000, 1e-2)]
CORNERS = [
    Draw(rate, noise, steps, delta)
    for rate in (1e-5, 1e-3, 1.0)
    for noise in (0.3, 3.0, 50.0)
    for steps in (1, 300, 20_000)
    for delta in (1e-12, 1e-7, 1e-2)
    if (rate, noise, steps) != (1.0, 0.3, 20_000)  # whose bracket is wider than 2 % of an epsilon of 450,000
]


@pytest.mark.parametrize(
    "case",
    [*SMALL_RATES, *LARGE_RATES, *(pytest.param(one, marks=pytest.mark.long) for one in CORNERS), *sized(3, 300, 41)],
    ids=str,
)
def test_batches_of_a_fixed_size_cost_the_composed_tight_profile(case: Draw) -> None:
    """Within 2 % of the ceiling: nothing is lost by composing, at small rates either.

    No price is below that of one pair of data sets either: all other records add nothing, and the replaced one adds 1
    where its neighbour adds -1, if it is in the batch.
    """
    size = max(1, round(case.rate * RECORDS))
    event = without_replacement_gaussian(records=RECORDS, batch_size=size, noise_multiplier=case.noise)
    rate = size / RECORDS
    law, pair = FixedSize(rate, case.noise), Replaced(rate, case.noise)
    price = assert_between(repeat(event, case.steps), [[(law, case.steps)]], case.delta, REPLACE, loose=1.02)
    assert price >= epsilons_between([(pair, case.steps)], case.delta, 2**13)[0]


@pytest.mark.parametrize("case", draws(25, 42), ids=str)
def test_one_batch_of_a_fixed_size_is_the_closed_form(case: Draw) -> None:
    """rate times the Gaussian's delta, whose sensitivity is 2, at ln(1 + (exp(epsilon) - 1) / rate)."""
    size = max(1, round(case.rate * RECORDS))
    rate = size / RECORDS
    event = without_replacement_gaussian(records=RECORDS, batch_size=size, noise_multiplier=case.noise)
    inner = gaussian_epsilon(2 / case.noise, case.delta / rate) if case.delta < rate else 0.0
    exact = inner + math.log(rate + (1 - rate) * math.exp(-inner))
    price = Pld().epsilon(event, case.delta, REPLACE)
    assert exact * (1 - 1e-9) - 1e-12 <= price <= exact * (1 + 1e-6) + 1e-9
    assert Rdp().epsilon(event, case.delta, REPLACE) >= exact


# Clip norms that fall while the noise stays


def declared(bounds: BoundSchedule, case: Draw, sampler: batch_sampling.Sampler) -> DpEvent:
    """The event that a run with this schedule declares."""
    counts = batch_sampling.privacy_event_counts_of_run(
        sampler,
        step_counts_by_noise_factor(bounds, case.steps),
        records=RECORDS,
        noise_multiplier=case.noise,
        public=False,
    )
    return compose(repeat(event, count) for event, count in counts.items())


def noises_in_turn(bounds: Linear | Geometric, case: Draw) -> list[float]:
    """sigma C over C_t, step by step: the noise stays, and the clip norm C_t falls as the paper's formula says."""
    if isinstance(bounds, Linear):
        over = bounds.over or case.steps
        divisors = [min(1 / bounds.least, 1 + (1 / bounds.least - 1) * step / over) for step in range(case.steps)]
    else:
        divisors = [1 / max(bounds.least, (1 - bounds.rate) ** step) for step in range(case.steps)]
    return [case.noise * divisor for divisor in divisors]


KINDS, FEW_KINDS = 24, 10
"""The most noises that a bracket tells apart, and those for which it has more points."""


def grouped(noises: Sequence[float], kinds: int) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """The noises with their counts, at most `kinds` of them: each rounded down, and each rounded up."""
    if len(set(noises)) <= kinds:
        alike = [(noise, noises.count(noise)) for noise in sorted(set(noises))]
        return alike, alike
    ends = np.geomspace(min(noises), max(noises) * (1 + 1e-12), kinds + 1)
    places = np.clip(np.searchsorted(ends, noises, side="right") - 1, 0, kinds - 1)
    groups = [(int(place), int((places == place).sum())) for place in np.unique(places)]
    return [(float(ends[place]), count) for place, count in groups], [
        (float(ends[place + 1]), count) for place, count in groups
    ]


def assert_run_between(
    event: DpEvent, noises: Sequence[float], laws: Sequence[type], case: Draw, adjacency: Adjacency
) -> None:
    """As `assert_between`, with the floor of steps of a little more noise and the ceiling of steps of a little less."""
    dear, cheap = grouped(noises, KINDS)
    points = 2**16 if len(dear) <= FEW_KINDS else 2**13
    floors, ceilings = (
        [
            epsilons_between([(law(case.rate, noise), count) for noise, count in steps], case.delta, points)[end]
            for law in laws
        ]
        for end, steps in enumerate((cheap, dear))
    )
    prices = prices_of_event(event, case.delta, adjacency)
    assert min(prices) >= max(floors)
    if max(floors) < HUGE:
        assert min(prices) <= 1.02 * max(ceilings) + 1e-6
    assert max(ceilings) <= 1.15 * max(floors) + 1e-5, "the bracket is narrow"


FALLING = [
    (Linear(least=0.5), Draw(0.05, 1.2, 12, 1e-5)),
    (Geometric(rate=0.3, least=0.5), Draw(1e-3, 1.0, 2000, 1e-8)),
    (Linear(least=0.5, over=3), Draw(1e-5, 3.0, 20_000, 1e-6)),
]


SMALL_RATE = 1e-3
MANY_KINDS = [
    (Linear(least=0.5), Draw(0.01, 1.2, 3000, 1e-5)),
    (Geometric(rate=0.001, least=0.5), Draw(0.3, 20.0, 2000, 1e-2)),
]


def of_long_runs(case: object) -> object:
    return pytest.param(case, marks=pytest.mark.long)


def falling_draws(n: int, seed: int) -> list[object]:
    """Schedules of all kinds over all settings; at small rates such as have few kinds of step, which take minutes."""
    rng = np.random.Generator(np.random.Philox(seed))
    found: list[object] = []
    for place, case in enumerate(draws(n, seed)):
        least, over = float(rng.uniform(0.1, 0.9)), int(rng.integers(1, 9))
        bounds = (
            Linear(least=least),
            Linear(least=least, over=over),
            Geometric(rate=float(10 ** rng.uniform(-4, -0.5)), least=least),
        )[place % 3 if case.rate > SMALL_RATE else 1]
        found.append(pytest.param((bounds, case), marks=pytest.mark.long, id=str(place)))
    return found


@pytest.mark.parametrize("run", [*FALLING, *map(of_long_runs, MANY_KINDS), *falling_draws(30, 43)], ids=str)
def test_runs_with_falling_clip_norms_cost_the_sequence_of_their_steps(run: tuple[Linear | Geometric, Draw]) -> None:
    bounds, case = run
    size = max(1, round(case.rate * RECORDS))
    case = replace(case, rate=size / RECORDS)
    event = declared(bounds, case, batch_sampling.Poisson(batch_size=size))
    assert_run_between(event, noises_in_turn(bounds, case), (Removed, Added), case, ADD)


@pytest.mark.parametrize("run", [FALLING[1], *map(of_long_runs, MANY_KINDS), *falling_draws(15, 47)], ids=str)
def test_runs_with_falling_clip_norms_on_batches_of_a_fixed_size(run: tuple[Linear | Geometric, Draw]) -> None:
    bounds, case = run
    size = max(1, round(case.rate * RECORDS))
    case = replace(case, rate=size / RECORDS)
    event = declared(bounds, case, batch_sampling.FixedSize(batch_size=size))
    assert_run_between(event, noises_in_turn(bounds, case), (FixedSize,), case, REPLACE)


@pytest.mark.parametrize("case", draws(8, 44), ids=str)
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_falling_clip_norms_without_sampling_are_one_gaussian(case: Draw, adjacency: Adjacency) -> None:
    """1 / noise^2 adds up over the steps."""
    case = Draw(1.0, case.noise, min(case.steps, 500), case.delta)
    bounds = Linear(least=0.3)
    event = declared(bounds, case, batch_sampling.Poisson(batch_size=RECORDS))
    mu = math.sqrt(sum(noise**-2 for noise in noises_in_turn(bounds, case))) * (2 if adjacency is REPLACE else 1)
    exact = gaussian_epsilon(mu, case.delta)
    assert Pld().epsilon(event, case.delta, adjacency) == pytest.approx(exact, rel=1e-9, abs=1e-11)
    assert Rdp().epsilon(event, case.delta, adjacency) >= exact * (1 - 1e-12)


def test_noise_that_falls_with_the_clip_norm_leaves_all_steps_alike() -> None:
    bounds = Linear(least=0.5, noise="multiplier")  # type: ignore[arg-type]
    event = declared(bounds, Draw(0.01, 1.2, 200, 1e-5), batch_sampling.Poisson(batch_size=RECORDS // 100))
    assert_between(event, both_ways([(Draw(0.01, 1.2, 200, 1e-5), 200)]), 1e-5, ADD, loose=1.02)


# Several runs on the same subsamples


def delta_of_shared_step(rate: float, noises: Sequence[float], epsilon: float, law: Law) -> float:
    """The hockey-stick of one step of two runs, as an integral over the plane of both outputs."""
    axis = np.linspace(-10.0, 10.0, 801)
    x, y = np.meshgrid(axis, axis)
    plain = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi) * (axis[1] - axis[0]) ** 2
    moved = plain * np.exp(x / noises[0] + y / noises[1] - (noises[0] ** -2 + noises[1] ** -2) / 2)
    mixed = (1 - rate) * plain + rate * moved
    one, other = (mixed, plain) if isinstance(law, Removed) else (plain, mixed)
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("noises", [(1.0, 1.0), (0.8, 3.0)], ids=str)
@pytest.mark.parametrize("rate", [1e-3, 0.4])
def test_one_step_of_two_runs_on_a_shared_subsample_by_integration(rate: float, noises: tuple[float, float]) -> None:
    event = step_on_shared_subsample(sample_rate=rate, noise_multipliers=noises)
    for delta in (1e-2, 1e-4, 1e-6):
        price = Pld().epsilon(event, delta, ADD)
        exact = max(delta_of_shared_step(rate, noises, price, law(rate, 1.0)) for law in (Removed, Added))
        assert exact <= delta * (1 + 2e-3)
        assert price == 0 or exact >= delta * (1 - 2e-3)


SHARED = [
    (0.01, (1.2,) * 6, (300,) * 6, 1e-5),
    (1e-4, (2.0, 3.0, 6.0), (2000, 500, 100), 1e-9),
    (1e-5, (9.0,) * 35, (20_000,) * 35, 1e-7),
    (0.5, (40.0, 50.0), (4000, 1), 1e-12),
]


def shared_draws(n: int, seed: int) -> list[object]:
    rng = np.random.Generator(np.random.Philox(seed))
    found: list[object] = []
    for place, case in enumerate(draws(n, seed)):
        runs = int(rng.integers(2, 12))
        noises = tuple(float(case.noise * factor) for factor in rng.uniform(1, 4, runs))
        lengths = tuple(max(1, int(case.steps * share)) for share in rng.uniform(0, 1, runs))
        found.append(pytest.param((case.rate, noises, lengths, case.delta), marks=pytest.mark.long, id=str(place)))
    return found


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("case", [*SHARED, *shared_draws(100, 45)], ids=str)
def test_runs_on_shared_subsamples_cost_one_run_with_all_their_precision(
    case: tuple[float, tuple[float, ...], tuple[int, ...], float], adjacency: Adjacency
) -> None:
    """While several runs go on, a sampled record moves all of their sums: 1 / noise^2 adds up over the runs."""
    rate, noises, lengths, delta = case
    runs = [
        PlanEvent(training=repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), length))
        for noise, length in zip(noises, lengths, strict=True)
    ]
    (event,) = priced_events_of_runs(runs, shared=True)
    parts, before = [], 0
    for end in sorted(set(lengths)):
        alive = [noise for noise, length in zip(noises, lengths, strict=True) if length >= end]
        parts.append((Draw(rate, sum(noise**-2 for noise in alive) ** -0.5, 1, delta), end - before))
        before = end
    directions = (
        both_ways(parts) if adjacency is ADD else [[(Replaced(one.rate, one.noise), count) for one, count in parts]]
    )
    assert_between(event.training, directions, delta, adjacency, loose=1.02, points=2**14)


def test_runs_on_subsamples_of_their_own_would_cost_less() -> None:
    """What is charged for shared subsamples is not what independent ones cost: this comparison could fail."""
    runs = [repeat(poisson_gaussian(sample_rate=0.01, noise_multiplier=1.2), 300)] * 6
    (shared,) = priced_events_of_runs([PlanEvent(training=run) for run in runs], shared=True)
    apart = Pld().epsilon(compose(runs), 1e-5, ADD)
    assert apart < 0.5 * epsilons_between([(Removed(0.01, 1.2 / math.sqrt(6)), 300)], 1e-5, 2**14)[0]
    assert Pld().epsilon(shared.training, 1e-5, ADD) > 2 * apart


# The references themselves


@pytest.mark.parametrize("case", draws(8, 46), ids=str)
def test_the_bracket_holds_the_closed_form_of_unsampled_steps(case: Draw) -> None:
    exact = gaussian_epsilon(math.sqrt(case.steps) / case.noise, case.delta)
    least, most = epsilons_between([(Removed(1.0, case.noise), case.steps)], case.delta, 2**15)
    assert least <= exact <= most <= least * 1.02 + 1e-6


@pytest.mark.parametrize("law", [Removed, Added, Replaced, FixedSize])
def test_more_points_make_the_bracket_narrower(law: type) -> None:
    parts = [(law(0.01, 1.5), 400)]
    wide, narrow = epsilons_between(parts, 1e-6, 2**11), epsilons_between(parts, 1e-6, 2**15)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_bracket_is_of_mixed_steps_too() -> None:
    noises = [1.0, 2.0, 5.0]
    exact = gaussian_epsilon(math.sqrt(sum(40 / noise**2 for noise in noises)), 1e-7)
    least, most = epsilons_between([(Removed(1.0, noise), 40) for noise in noises], 1e-7, 2**14)
    assert least <= exact <= most
    assert exact == pytest.approx(
        Pld().epsilon(compose(repeat(gaussian(noise_multiplier=noise), 40) for noise in noises), 1e-7, ADD)
    )
