"""The lecture's accountant: a bound, a loose one, and made of theorems that are checked one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    best_of_tries,
    black_box,
    compose,
    gaussian,
    no_access,
    noisy_count,
    noisy_max,
    non_private,
    poisson_gaussian,
    random_stopping,
    repeat,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.trial_counts import Poisson
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile
from dpsweep.reports.reproduction.classical import SHARES, Classical, dp_sgd_noise_std_by_lecture_theorem

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
CLASSICAL = Classical()


def dpsgd(steps: int, noise_multiplier: float = 1.2, sample_rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


@pytest.mark.parametrize("steps", [1, 10, 300])
@pytest.mark.parametrize("sample_rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("noise_multiplier", [0.7, 2.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_it_is_never_below_the_tight_accountant(
    steps: int, sample_rate: float, noise_multiplier: float, delta: float
) -> None:
    """The tight one rounds up by up to a thousandth, which shows where a single step is exact here."""
    run = dpsgd(steps, noise_multiplier, sample_rate)
    classical, tight = CLASSICAL.epsilon(run, delta, ADD), Pld().epsilon(run, delta, ADD)
    assert classical >= tight - 1e-3 - 1e-3 * tight
    assert classical >= forced_epsilon(run, delta, ADD)


def test_one_step_is_exact() -> None:
    """Amplification and the Gaussian mechanism are tight, so nothing is lost before something is composed."""
    for sample_rate in (0.1, 1.0):
        step = poisson_gaussian(sample_rate=sample_rate, noise_multiplier=1.5)
        assert CLASSICAL.epsilon(step, 1e-5, ADD) == pytest.approx(Pld().epsilon(step, 1e-5, ADD), rel=1e-3)


def test_the_theorems_by_hand() -> None:
    """100 steps at rate .1: what each theorem says, written out, at an even split of delta."""
    steps, rate, noise, delta = 100, 0.1, 2.0, 1e-5
    inner = GaussianProfile(mu=1 / noise).epsilon(delta / 2 / steps / rate)
    assert float(GaussianProfile(mu=1 / noise).delta(np.array([inner]))[0]) == pytest.approx(delta / 2 / steps / rate)
    one = math.log(1 + rate * (math.exp(inner) - 1))
    mean = steps * one * (math.exp(one) - 1) / (math.exp(one) + 1)
    advanced = mean + math.sqrt(2 * steps * math.log(2 / delta)) * one
    assert Classical(shares=(0.5,)).epsilon(dpsgd(steps, noise, rate), delta, ADD) == pytest.approx(advanced)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_composition_holds_for_randomised_response(share: float) -> None:
    """The worst epsilon-private mechanism, composed exactly: 200 times at epsilon .1, against the formula alone."""
    steps, one, slack = 200, 0.1, 1e-6 * share
    yes = math.exp(one) / (1 + math.exp(one))
    bound = steps * one * math.tanh(one / 2) + math.sqrt(2 * steps * math.log(1 / slack)) * one
    heads = np.arange(steps + 1)
    chance = np.exp(
        [math.lgamma(steps + 1) - math.lgamma(k + 1) - math.lgamma(steps - k + 1) for k in heads.tolist()]
        + heads * math.log(yes)
        + (steps - heads) * math.log1p(-yes)
    )
    losses = (2 * heads - steps) * one
    assert float(np.sum(chance * np.maximum(0, 1 - np.exp(bound - losses)))) <= slack


def test_a_better_split_of_delta_never_costs_more() -> None:
    run = dpsgd(1000)
    each = [Classical(shares=(share,)).epsilon(run, 1e-5, ADD) for share in SHARES]
    assert CLASSICAL.epsilon(run, 1e-5, ADD) == min(each)
    assert min(each) < each[SHARES.index(0.5)], "an even split is not the best one here"


def test_few_steps_are_added_and_many_composed() -> None:
    few = CLASSICAL.epsilon(dpsgd(2, 4.0, 1.0), 1e-5, ADD)
    assert few == pytest.approx(2 * GaussianProfile(mu=0.25).epsilon(0.5e-5))
    many = dpsgd(10_000, 4.0, 0.001)
    assert CLASSICAL.epsilon(many, 1e-5, ADD) < 10_000 * CLASSICAL.epsilon(dpsgd(1, 4.0, 0.001), 1e-9, ADD) / 5


def test_unequal_steps_are_composed_together() -> None:
    together = CLASSICAL.epsilon(compose([dpsgd(500, 1.2), dpsgd(500, 2.4)]), 1e-5, ADD)
    assert CLASSICAL.epsilon(dpsgd(1000, 2.4), 1e-5, ADD) < together < CLASSICAL.epsilon(dpsgd(1000, 1.2), 1e-5, ADD)


def test_many_kinds_of_step_are_rounded_to_less_noise() -> None:
    ramp = compose(dpsgd(3, 1.2 + step / 1000) for step in range(600))
    price = CLASSICAL.epsilon(ramp, 1e-5, ADD)
    assert CLASSICAL.epsilon(dpsgd(1800, 1.8), 1e-5, ADD) < price < CLASSICAL.epsilon(dpsgd(1800, 1.2), 1e-5, ADD)


def test_nothing_costs_nothing_and_no_noise_infinity() -> None:
    for event in (no_access(), dpsgd(0), compose([])):
        assert CLASSICAL.epsilon(event, 1e-5, ADD) == 0
    for leak in (non_private(), gaussian(noise_multiplier=0.0), compose([dpsgd(10), non_private()])):
        assert CLASSICAL.epsilon(leak, 1e-5, ADD) == math.inf


def test_merging_splitting_and_order_change_nothing() -> None:
    parts = [dpsgd(50, 1.0), dpsgd(30, 2.0), gaussian(noise_multiplier=5.0)]
    price = CLASSICAL.epsilon(compose(parts), 1e-5, ADD)
    assert CLASSICAL.epsilon(compose(reversed(parts)), 1e-5, ADD) == price
    assert CLASSICAL.epsilon(compose([dpsgd(20, 1.0), *parts[1:], dpsgd(30, 1.0)]), 1e-5, ADD) == price


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(1, 20_000),
    sample_rate=st.floats(1e-4, 0.9),
    noise_multiplier=st.floats(0.3, 50),
    delta=st.floats(1e-20, 0.1),
)
def test_the_price_is_monotone(steps: int, sample_rate: float, noise_multiplier: float, delta: float) -> None:
    base = CLASSICAL.epsilon(dpsgd(steps, noise_multiplier, sample_rate), delta, ADD)
    less = base * (1 - 1e-9)
    assert 0 <= base < math.inf
    assert CLASSICAL.epsilon(dpsgd(2 * steps, noise_multiplier, sample_rate), delta, ADD) >= less
    assert CLASSICAL.epsilon(dpsgd(steps, noise_multiplier / 1.2, sample_rate), delta, ADD) >= less
    assert CLASSICAL.epsilon(dpsgd(steps, noise_multiplier, sample_rate * 1.1), delta, ADD) >= less
    assert CLASSICAL.epsilon(dpsgd(steps, noise_multiplier, sample_rate), delta / 10, ADD) >= less


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (dpsgd(10), REPLACE),
        (without_replacement_gaussian(records=100, batch_size=10, noise_multiplier=1.0), ADD),
        (truncated_poisson_gaussian(records=100, sample_rate=0.1, largest_batch=20, noise_multiplier=1.0), ADD),
        (black_box(epsilon=1.0, delta=0.0, adjacency=ADD), ADD),
        (noisy_max(noise_scale=2.0), ADD),
        (best_of_tries(dpsgd(10), Poisson(mean=3.0)), ADD),
        (random_stopping(dpsgd(10), gamma=0.1, delta2=1e-9), ADD),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_lecture_does_not_cover_is_refused(event: DpEvent, adjacency: Adjacency) -> None:
    for wrapped in (event, repeat(event, 3), compose([gaussian(noise_multiplier=9.0), repeat(compose([event]), 2)])):
        with pytest.raises(UnsupportedEvent, match="no proven bound"):
            CLASSICAL.epsilon(wrapped, 1e-5, adjacency)


def fixed(steps: int, noise_multiplier: float, size: int, records: int = 1000) -> DpEvent:
    step = without_replacement_gaussian(records=records, batch_size=size, noise_multiplier=noise_multiplier)
    return repeat(step, steps)


@pytest.mark.parametrize(("steps", "size"), [(1, 1), (1, 1000), (100, 1), (300, 20), (30, 300)])
@pytest.mark.parametrize("noise_multiplier", [1.4, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_lectures_own_sampling_is_never_below_the_tight_accountant(
    steps: int, size: int, noise_multiplier: float, delta: float
) -> None:
    """Of so many records, drawn uniformly without replacement, where one record is replaced; one step is exact."""
    run = fixed(steps, noise_multiplier, size)
    classical, tight = CLASSICAL.epsilon(run, delta, REPLACE), Pld().epsilon(run, delta, REPLACE)
    assert classical >= tight - 1e-3 - 1e-3 * tight
    assert classical >= forced_epsilon(run, delta, REPLACE)
    if steps == 1:
        assert classical == pytest.approx(tight, rel=1e-3, abs=1e-3)


def test_a_replaced_record_moves_a_sum_by_twice_the_bound() -> None:
    """At equal rates a fixed batch costs what a Poisson sample with half the noise does, and a count likewise."""
    sampled = CLASSICAL.epsilon(dpsgd(100, 2.0, 0.02), 1e-5, ADD)  # its coin has the next larger of 2^53 rates
    assert CLASSICAL.epsilon(fixed(100, 4.0, 20), 1e-5, REPLACE) == pytest.approx(sampled, rel=1e-13)
    count = gaussian(noise_multiplier=20.0)
    assert CLASSICAL.epsilon(count, 1e-5, REPLACE) == CLASSICAL.epsilon(gaussian(noise_multiplier=10.0), 1e-5, ADD)
    both = compose([fixed(100, 4.0, 20), count])
    assert CLASSICAL.epsilon(both, 1e-5, REPLACE) > CLASSICAL.epsilon(fixed(100, 4.0, 20), 1e-5, REPLACE)
    assert CLASSICAL.epsilon(fixed(100, 0.0, 20), 1e-5, REPLACE) == math.inf


def test_the_lectures_theorem_holds_by_its_own_accountant() -> None:
    """Steps on one record each at the theorem's noise, in units of the Lipschitz bound, cost less than it says."""
    records, steps, delta = 1000, 10**6, 1e-5
    noise = dp_sgd_noise_std_by_lecture_theorem(records=records, steps=steps, epsilon=1.0, delta=delta)
    assert (
        Pld().epsilon(fixed(steps, noise, 1), delta, REPLACE)
        < CLASSICAL.epsilon(fixed(steps, noise, 1), delta, REPLACE)
        < 1
    )


def test_a_count_is_a_gaussian_step() -> None:
    counts = repeat(noisy_count(noise_std=10.0), 3)
    assert CLASSICAL.epsilon(counts, 1e-5, ADD) == CLASSICAL.epsilon(dpsgd(3, 10.0, 1.0), 1e-5, ADD)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=r"Expected (0 < )?delta="):
        CLASSICAL.epsilon(dpsgd(1), delta, ADD)


@pytest.mark.parametrize("shares", [(), (0.0,), (1.0,), (0.5, math.nan)])
def test_shares_of_delta_are_proper(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="Expected shares"):
        Classical(shares=shares)


def test_the_lectures_noise_gives_each_step_what_its_proof_says() -> None:
    """n eps / (4 sqrt(2 T ln(2 / delta))) at delta n / (2 T), by the textbook noise at sensitivity 2 l."""
    records, steps, delta = 1000, 10**6, 1e-5
    noise = dp_sgd_noise_std_by_lecture_theorem(records=records, steps=steps, epsilon=1.0, delta=delta, lipschitz=3.0)
    one = records / (4 * math.sqrt(2 * steps * math.log(2 / delta)))
    assert math.sqrt(2 * math.log(1.25 / (delta * records / (2 * steps)))) * 6.0 / one == pytest.approx(noise)
    assert (
        dp_sgd_noise_std_by_lecture_theorem(records=records, steps=steps, epsilon=0.5, delta=delta, lipschitz=3.0)
        == 2 * noise
    )


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 1.5}, {"epsilon": 0.0}, {"steps": 0}, {"records": -1}, {"lipschitz": math.inf}, {"steps": 100}],
)
def test_the_lectures_noise_is_refused_where_its_proof_stops(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"Expected {next(iter(wrong))}"):
        dp_sgd_noise_std_by_lecture_theorem(
            **({"records": 1000, "steps": 10**6, "epsilon": 1.0, "delta": 1e-5} | wrong)
        )
