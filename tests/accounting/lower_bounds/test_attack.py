"""The attack reproduces what is known exactly, and no accountant ever claims less than it forces."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    above_threshold,
    best_of_tries,
    compose,
    gaussian,
    no_access,
    noisy_count,
    noisy_max,
    non_private,
    poisson_gaussian,
    poisson_sampled,
    random_stopping,
    repeat,
    truncated_poisson_gaussian,
    without_replacement_gaussian,
    worst_of_events,
)
from dpsweep.accounting.events.trial_counts import Capped, EachPoint, NegativeBinomial, Poisson, Stopping, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.likelihood_ratio import (
    CanarySteps,
    LatticePmf,
    distribution_of_likelihood_ratio_sum,
)
from dpsweep.accounting.lower_bounds.lower_bound import forced_epsilon, lower_bound, masses_of_first_good_try
from dpsweep.accounting.lower_bounds.selection_attack import epsilon_forced_by_two_cuts, generating_function_rise
from tests.accounting.finite import OUTCOMES, Law, Pairs, best, cases, first_good, probabilities

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
STOPPING = Stopping(gamma=0.15, limit=12)


def run(noise: float, steps: int = 5000, rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_gaussian_mechanism_is_attacked_as_well_as_possible(noise: float, adjacency: Adjacency) -> None:
    exact = Pld().epsilon(gaussian(noise_multiplier=noise), 1e-5, adjacency)
    assert exact * 0.997 - 1e-4 < lower_bound(gaussian(noise_multiplier=noise), 1e-5, adjacency) <= exact


@pytest.mark.parametrize(("noise", "exact"), [(3.6, 1.5687), (2.0, 3.2088), (1.2, 6.7561)])
def test_one_run_is_attacked_nearly_as_well_as_possible(noise: float, exact: float) -> None:
    assert exact * 0.995 < lower_bound(run(noise), 1e-5, ADD) <= exact


@pytest.mark.parametrize(("noise", "forced_"), [(3.6, 3.690), (2.0, 9.402), (1.2, 33.89)])
def test_samples_of_a_fixed_size_cost_more_than_poisson_samples_under_replacement(noise: float, forced_: float) -> None:
    step = without_replacement_gaussian(records=50_000, batch_size=1000, noise_multiplier=noise)
    assert lower_bound(repeat(step, 5000), 1e-5, REPLACE) == pytest.approx(forced_, rel=4e-3)
    assert lower_bound(repeat(step, 5000), 1e-5, REPLACE) <= forced_


@pytest.mark.parametrize(("noise", "exact"), [(3.6, 3.317), (1.2, 12.694)])
def test_replacement_is_attacked_nearly_as_well_as_possible(noise: float, exact: float) -> None:
    assert exact * 0.995 < lower_bound(run(noise), 1e-5, REPLACE) <= exact


def test_the_best_of_a_fixed_grid_of_ten_costs_more_than_private_selection_charges() -> None:
    """q=.01, noise 1.2, 2000 steps: ranked by the plain sum 4.087, by two cuts more; composition charges 6.67."""
    cells = distribution_of_likelihood_ratio_sum([CanarySteps(rate=0.01, noise_multiplier=1.2, count=2000)])
    assert cells is not None
    by_likelihood = epsilon_forced_by_two_cuts(cells, EachPoint(count=10), 1e-5)
    assert 4.087 < by_likelihood <= Pld().epsilon(run(1.2, 20_000, 0.01), 1e-5, ADD)
    geometric = best_of_tries(run(1.2, 2000, 0.01), NegativeBinomial.with_mean(eta=1, mean=10))
    assert by_likelihood > Rdp().epsilon(geometric, 1e-5, ADD)


@pytest.mark.parametrize(
    ("tries", "least"),
    [
        (NegativeBinomial.with_mean(eta=1, mean=10), 1.77),
        (NegativeBinomial.with_mean(eta=0, mean=10), 1.77),
        (Poisson(mean=10), 1.77),
    ],
)
def test_private_selection_costs_more_than_one_run(tries: NegativeBinomial | Poisson, least: float) -> None:
    assert (
        least
        < lower_bound(best_of_tries(run(3.6), tries), 1e-5, ADD)
        < Rdp().epsilon(best_of_tries(run(3.6), tries), 1e-5, ADD)
    )


@pytest.mark.parametrize("tries", [NegativeBinomial.with_mean(eta=1, mean=10), Poisson(mean=10)], ids=str)
def test_a_search_that_ends_after_one_try_costs_no_more_than_one_run(tries: NegativeBinomial | Poisson) -> None:
    assert lower_bound(best_of_tries(run(3.6), tries, limit=1), 1e-5, ADD) <= 1.5687


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("noise", [3.6, 2.0, 1.2])
def test_the_price_of_private_selection_is_within_2_percent_of_the_attack(noise: float, eta: float) -> None:
    for mean in (4.0, 35.0, 300.0):
        search = best_of_tries(run(noise), NegativeBinomial.with_mean(eta=eta, mean=mean))
        assert 1 <= Pld().epsilon(search, 1e-5, ADD) / lower_bound(search, 1e-5, ADD) < 1.02


def test_random_stopping_is_attacked_as_the_geometric_law_that_it_is() -> None:
    stopped = lower_bound(random_stopping(run(3.6), gamma=0.1, delta2=1e-20), 1e-5, ADD)
    assert stopped == pytest.approx(
        lower_bound(best_of_tries(run(3.6), NegativeBinomial(eta=1, gamma=0.1)), 1e-5, ADD), rel=1e-6
    )


def test_a_schedule_of_noise_is_attacked_as_a_whole() -> None:
    """Twenty kinds of step; the exact epsilon is .404515."""
    event = compose(
        [
            *(repeat(poisson_gaussian(sample_rate=0.01, noise_multiplier=1.2 * (1 + t / 20)), 10) for t in range(20)),
            run(2.4, 100, 0.01),
        ]
    )
    assert 0.40 < lower_bound(event, 1e-5, ADD) <= 0.404515


def test_cutting_large_samples_down_hides_the_canary_now_and_then() -> None:
    def cut(largest: int) -> DpEvent:
        return repeat(
            truncated_poisson_gaussian(records=200, sample_rate=0.1, largest_batch=largest, noise_multiplier=2.0), 300
        )

    kept = [lower_bound(cut(largest), 1e-5, ADD) for largest in (5, 15, 20, 200)]
    assert kept == sorted(kept)
    assert kept[0] < 0.5 * kept[3]
    assert kept[3] == pytest.approx(lower_bound(run(2.0, 300, 0.1), 1e-5, ADD), rel=1e-6)


def test_what_cannot_be_attacked_is_left_out() -> None:
    step = gaussian(noise_multiplier=1.0)
    for unknown in (
        noisy_max(noise_scale=1.0),
        worst_of_events([step, run(3.0)]),
        poisson_sampled(run(1.0), sample_rate=0.5),
    ):
        assert lower_bound(unknown, 1e-5, ADD) == 0
        assert lower_bound(best_of_tries(unknown, Poisson(mean=3.0)), 1e-5, ADD) == 0
        assert lower_bound(compose([unknown, step]), 1e-5, ADD) == lower_bound(step, 1e-5, ADD)
    assert lower_bound(no_access(), 1e-5, ADD) == 0
    assert lower_bound(non_private(), 1e-5, ADD) == math.inf


@pytest.mark.parametrize("instead", [0, -1])
def test_three_drawn_values_tell_the_neighbours_apart_as_often_as_the_masses_say(instead: int) -> None:
    rng = np.random.Generator(np.random.Philox(7))
    step = CanarySteps(rate=0.3, noise_multiplier=0.8, count=3, instead=instead)
    guessed = [
        np.mean(_more_likely(step, rng.normal(0, 0.8, (400_000, 3)) + moved * (rng.random((400_000, 3)) < 0.3)))
        for moved in (1, instead)
    ]
    cells = distribution_of_likelihood_ratio_sum([step])
    assert cells is not None
    assert cells.present.sum() == pytest.approx(1, abs=1e-9)
    assert cells.instead.sum() == pytest.approx(1, abs=1e-9)
    apart = float(np.abs(cells.present - cells.instead).sum() / 2)
    assert apart == pytest.approx(guessed[0] - guessed[1], abs=0.005)


def _more_likely(step: CanarySteps, values: np.ndarray) -> np.ndarray:
    """Whether the record is more likely to be there than its neighbour."""
    alone = stats.norm(0, step.noise_multiplier).pdf(values)
    both = [
        alone if moved == 0 else 0.7 * alone + 0.3 * stats.norm(moved, step.noise_multiplier).pdf(values)
        for moved in (step.present, step.instead)
    ]
    return np.asarray(np.prod(both[0] / both[1], axis=1) > 1)


@pytest.mark.parametrize(
    "law",
    [
        NegativeBinomial(eta=1.0, gamma=0.2),
        NegativeBinomial(eta=0.0, gamma=0.05),
        NegativeBinomial(eta=-0.7, gamma=0.3),
        NegativeBinomial(eta=2.5, gamma=0.4),
        NegativeBinomial(eta=1.0, gamma=1.0),
        Poisson(mean=4.0),
        Stopping(gamma=0.1, limit=25),
        Stopping(gamma=1.0, limit=3),
        Stopping(gamma=0.002, limit=2000),
        EachPoint(count=6),
        Capped(tries=Poisson(mean=4.0), limit=3),
        Capped(tries=NegativeBinomial(eta=0.0, gamma=0.05), limit=40),
    ],
    ids=str,
)
def test_the_rise_of_the_generating_function_keeps_its_digits(law: Tries) -> None:
    low, high = np.triu(np.ones((21, 21))).nonzero()
    low, high = low / 20, high / 20
    exactly = {EachPoint(count=6): 6, NegativeBinomial(eta=1.0, gamma=1.0): 1, Stopping(gamma=1.0, limit=3): 1}.get(law)
    chances = probabilities(law) if exactly is None else np.eye(7)[exactly]
    tries = np.arange(len(chances))
    exact = [chances @ (b**tries - a**tries) for a, b in zip(low, high, strict=True)]
    assert generating_function_rise(law, low, high - low) == pytest.approx(np.array(exact), abs=1e-12)
    for at in (0.2, 0.9, 1.0):
        tiny = generating_function_rise(law, np.full(2, at), np.array([1e-30, 2e-30]))
        slope = chances[1:] @ (tries[1:] * at ** (tries[1:] - 1.0))
        assert tiny / slope == pytest.approx(np.array([1e-30, 2e-30]), rel=1e-9)


@pytest.mark.parametrize(
    "law",
    [NegativeBinomial(eta=1.0, gamma=0.2), NegativeBinomial(eta=0.0, gamma=0.3), Poisson(mean=3.0), STOPPING],
    ids=str,
)
def test_two_cuts_force_no_more_than_the_best_order_of_the_outcomes(law: Law) -> None:
    """On five outcomes: nearly as much as the best of all their orders for most mechanisms, and never more."""
    pairs, delta, chances = cases(40, 30), 1e-3, probabilities(law)
    ordered = (Pairs(pairs.p[:, order], pairs.q[:, order]) for order in itertools.permutations(range(OUTCOMES)))
    best_of_all = np.max([best(one, chances).epsilon(delta) for one in ordered], axis=0)
    found = [
        epsilon_forced_by_two_cuts(LatticePmf(present=p, instead=q, lost=0.0), law, delta)
        for p, q in zip(pairs.p, pairs.q, strict=True)
    ]
    assert np.all(np.array(found) <= best_of_all * (1 + 1e-9) + 1e-9)
    assert np.median(np.array(found) / np.maximum(best_of_all, 1e-9)) > 0.9


@pytest.mark.parametrize("good", [1, 2, 4])
def test_the_first_good_tries_masses_are_those_summed_term_by_term(good: int) -> None:
    pairs = cases(40, 31)
    summed = first_good(pairs, STOPPING, good).p
    found = np.array([masses_of_first_good_try(masses, STOPPING, good) for masses in pairs.p])
    assert found == pytest.approx(summed, rel=1e-8, abs=1e-15)


def test_forced_is_the_inverse_of_the_hockey_stick() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    for _ in range(200):
        p, q = rng.dirichlet(np.ones(5) / 2, 2)
        delta = float(rng.uniform(0.001, 0.2))
        epsilon = forced_epsilon((p, q), delta, 0.0)

        def hockey(at: float, p: np.ndarray = p, q: np.ndarray = q) -> float:
            sides = (np.maximum(p - math.exp(at) * q, 0).sum(), np.maximum(q - math.exp(at) * p, 0).sum())
            return float(max(sides))

        assert epsilon == 0 or hockey(epsilon) >= delta
        assert hockey(epsilon + 1e-4) <= delta * (1 + 1e-3)


def test_slack_lowers_what_is_forced() -> None:
    masses = (np.array([0.6, 0.4]), np.array([0.4, 0.6]))
    assert forced_epsilon(masses, 0.01, 0.0) == pytest.approx(math.log(0.59 / 0.4), abs=1e-5)
    assert forced_epsilon(masses, 0.01, 0.01) == pytest.approx(math.log(0.58 / 0.41), abs=1e-5)
    assert forced_epsilon(masses, 0.01, 0.3) == 0


noises, rates, counts = st.floats(0.6, 8.0), st.floats(0.003, 0.5), st.integers(1, 300)
laws = st.one_of(
    st.builds(
        lambda eta, mean: NegativeBinomial.with_mean(eta=eta, mean=mean), st.floats(-0.8, 3.0), st.floats(1.0, 60.0)
    ),
    st.builds(lambda mean: Poisson(mean=mean), st.floats(0.5, 60.0)),
)


@st.composite
def runs(draw: st.DrawFn) -> DpEvent:
    parts = st.builds(lambda noise, steps, rate: run(noise, steps, rate), noises, counts, rates)
    return compose(draw(st.lists(parts, min_size=1, max_size=2)))


@st.composite
def searches(draw: st.DrawFn) -> DpEvent:
    inner, limit = draw(runs()), draw(st.sampled_from([None, 400]))
    return draw(
        st.sampled_from(
            [
                inner,
                repeat(inner, 7),
                best_of_tries(inner, draw(laws), limit),
                random_stopping(inner, gamma=draw(st.floats(0.02, 1.0)), delta2=1e-8),
                above_threshold(inner, gamma=draw(st.floats(0.02, 1.0)), limit=draw(st.integers(1, 3000))),
                compose([best_of_tries(inner, draw(laws)), inner]),
                noisy_count(noise_std=draw(noises)),
            ]
        )
    )


@pytest.mark.parametrize("mean", [1e-3, 1.0, 1000.0, 1e5])
def test_any_mean_number_of_tries_can_be_attacked(mean: float) -> None:
    search = best_of_tries(run(5.0, steps=500), Poisson(mean=mean))
    assert 0 <= lower_bound(search, 1e-5, ADD) <= Rdp().epsilon(search, 1e-5, ADD)


@settings(max_examples=25, deadline=None)
@given(event=searches(), delta=st.sampled_from([1e-3, 1e-5, 1e-7]))
@pytest.mark.parametrize("accountant", [Rdp(), Pld()], ids=lambda one: one.name)
def test_no_accountant_says_less_than_the_attack_forces(accountant: Accountant, event: DpEvent, delta: float) -> None:
    try:
        upper = accountant.epsilon(event, delta, ADD)
    except UnsupportedEvent:
        return
    assert lower_bound(event, delta, ADD) <= upper


@settings(max_examples=15, deadline=None)
@given(noise=noises, rate=rates, steps=counts)
def test_nor_does_one_say_less_under_replacement(noise: float, rate: float, steps: int) -> None:
    poisson = run(noise, steps, rate)
    fixed = repeat(
        without_replacement_gaussian(records=1000, batch_size=math.ceil(1000 * rate), noise_multiplier=noise), steps
    )
    assert lower_bound(poisson, 1e-5, REPLACE) <= Pld().epsilon(poisson, 1e-5, REPLACE)
    assert lower_bound(fixed, 1e-5, REPLACE) <= Rdp().epsilon(fixed, 1e-5, REPLACE)


def test_many_kinds_of_step_are_attacked_at_a_little_more_noise() -> None:
    """Three hundred kinds of step: nearly as much as the profile of all of them has."""
    event = compose([poisson_gaussian(sample_rate=0.02, noise_multiplier=1.0 + t / 100) for t in range(300)])
    exact = Pld().epsilon(event, 1e-5, ADD)
    assert 0.8 * exact < lower_bound(event, 1e-5, ADD) <= exact
