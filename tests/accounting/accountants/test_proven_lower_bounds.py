"""PLD's lower bounds against closed forms: never above the true epsilon, and near it; and beside the attack's.

An epsilon is no more than the true one if the exact delta there is at least the given delta.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld, composed_losses
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    compose,
    gaussian,
    poisson_gaussian,
    random_allocation,
    repeat,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_by_losses, forced_epsilon
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.pricing.panel import ATTACK, Panel
from dpsweep.accounting.profiles.privacy_profiles import poisson_step

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
BOTH = (ADD, REPLACE)


def dpsgd(rate: float, noise: float, steps: int) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)


def exact_gaussian_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang 2018, Theorem 8, with 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def exact_delta_of_sampled_step(rate: float, noise: float, epsilon: float, adjacency: Adjacency) -> mpmath.mpf:
    """By the output at which the likelihood ratio of both mixtures is exp(epsilon), with 60 digits."""
    with mpmath.workdps(60):
        rate, noise, epsilon = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.mpf(epsilon)

        def above(output: mpmath.mpf, shift: int) -> mpmath.mpf:
            return (1 - rate) * mpmath.ncdf(-output / noise) + rate * mpmath.ncdf((shift - output) / noise)

        def density(output: mpmath.mpf, shift: int) -> mpmath.mpf:
            return 1 - rate + rate * mpmath.exp((2 * output * shift - shift**2) / (2 * noise**2))

        def hockey_stick(first: int, second: int) -> mpmath.mpf:
            low, high = -mpmath.mpf(10) * (1 + 60 * noise), mpmath.mpf(10) * (1 + 60 * noise)
            for _ in range(150):
                middle = (low + high) / 2
                larger = mpmath.log(density(middle, first) / density(middle, second)) > epsilon
                low, high = (low, middle) if larger is (first > second) else (middle, high)
            if first > second:
                return above(low, first) - mpmath.exp(epsilon) * above(low, second)
            return 1 - above(low, first) - mpmath.exp(epsilon) * (1 - above(low, second))

        return hockey_stick(1, -1) if adjacency is REPLACE else max(hockey_stick(1, 0), hockey_stick(0, 1))


def exact_delta_of_two_steps(one: tuple[float, float], other: tuple[float, float], epsilon: float) -> float:
    """The first step's outputs by the trapezoidal rule, the second step in closed form, removal and addition."""
    rate, noise = one
    x = np.linspace(-15 * noise, 1 + 15 * noise, 40_001)
    ratio = np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))
    plain = np.exp(-(x**2) / (2 * noise**2)) / math.sqrt(2 * math.pi) / noise
    removed, added = poisson_step(*other)
    return max(
        np.trapezoid(plain * np.exp(ratio) * removed.curve(epsilon - ratio), x),
        np.trapezoid(plain * added.curve(epsilon + ratio), x),
    )


CASES = list(itertools.product((0.3, 1.0, 7.0, 50.0), (1, 20, 1000, 20_000), (1e-12, 1e-5, 1e-2), BOTH))


@pytest.mark.parametrize(("noise", "steps", "delta", "adjacency"), CASES)
def test_a_composition_of_gaussians_is_its_closed_form(
    noise: float, steps: int, delta: float, adjacency: Adjacency
) -> None:
    lower = forced_epsilon(repeat(gaussian(noise_multiplier=noise), steps), delta, adjacency)
    mu = (2 if adjacency is REPLACE else 1) * math.sqrt(steps) / noise
    if lower == 0:
        assert exact_gaussian_delta(mu, 2e-9) < delta or exact_gaussian_delta(mu, 8000) > delta
    else:
        assert exact_gaussian_delta(mu, lower) >= delta > exact_gaussian_delta(mu, lower * (1 + 1e-7) + 2e-9)


@pytest.mark.parametrize(
    ("noise", "steps", "delta", "interval"),
    [
        (0.3, 40, 1e-5, 1e-2),
        (1.0, 2, 1e-12, 1e-3),
        (1.0, 1000, 1e-2, 1e-3),
        (7.0, 20_000, 1e-5, 1e-4),
        (7.0, 300, 1e-25, 1e-3),
        (50.0, 1000, 1e-9, 1e-4),
        (50.0, 20_000, 1e-12, 1e-4),
    ],
)
def test_the_grid_forces_no_more_than_the_closed_form(noise: float, steps: int, delta: float, interval: float) -> None:
    """Gaussian steps put on a grid one by one, as sampled steps are."""
    (losses,), mu = composed_losses([(poisson_step(1.0, noise), steps)], interval), math.sqrt(steps) / noise
    lower, upper = forced_by_losses(losses, delta), losses.epsilon(delta)
    assert exact_gaussian_delta(mu, lower) >= delta >= exact_gaussian_delta(mu, upper)
    assert 0.97 * upper < lower


@pytest.mark.parametrize("adjacency", BOTH)
@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
def test_one_sampled_step_is_its_closed_form(noise: float, delta: float, adjacency: Adjacency) -> None:
    for rate in (1e-5, 1e-3, 0.05, 0.5, 0.99):
        lower = forced_epsilon(dpsgd(rate, noise, 1), delta, adjacency)
        above = exact_delta_of_sampled_step(rate, noise, lower * (1 + 1e-7) + 2e-9, adjacency)
        assert above < delta, rate
        assert lower == 0 or exact_delta_of_sampled_step(rate, noise, lower, adjacency) >= delta, rate


STEPS = [(1e-4, 1.0), (1e-3, 0.5), (0.02, 1.0), (0.2, 4.0), (0.9, 0.6)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(one, other, marks=() if one == STEPS[2] else pytest.mark.long)
        for one, other in itertools.combinations_with_replacement(STEPS, 2)
    ],
)
def test_two_sampled_steps_by_quadrature(one: tuple[float, float], other: tuple[float, float]) -> None:
    event = compose([dpsgd(*one, 1), dpsgd(*other, 1)])
    for delta in (1e-9, 1e-6, 1e-3):
        lower, upper = forced_epsilon(event, delta, ADD), Pld().epsilon(event, delta, ADD)
        assert lower == 0 or exact_delta_of_two_steps(one, other, lower) >= delta * (1 - 1e-6)
        assert exact_delta_of_two_steps(one, other, upper) <= delta * (1 + 1e-6)
        assert lower == 0 or 0.97 * upper - 2e-4 < lower, delta


SWEEP = list(itertools.product((1e-5, 1e-3, 0.02, 0.3, 0.9), (0.3, 1.0, 4.0, 50.0), (2, 50, 20_000), BOTH))


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "adjacency"),
    [
        pytest.param(*case, marks=() if place % 29 == 9 and case[0] > 1e-5 else pytest.mark.long)
        for place, case in enumerate(SWEEP)
    ],
)
def test_lower_bounds_are_below_claims_and_near_them(
    rate: float, noise: float, steps: int, adjacency: Adjacency
) -> None:
    event = dpsgd(rate, noise, steps)
    for delta in (1e-12, 1e-5, 1e-2):
        lower = forced_epsilon(event, delta, adjacency)
        try:
            upper = Pld().epsilon(event, delta, adjacency)
        except UnsupportedEvent:
            continue
        assert lower <= upper
        assert lower <= Rdp().epsilon(event, delta, adjacency) if adjacency is ADD else True
        assert lower == 0 or lower >= 0.95 * upper - 2e-3, (lower, upper)


def test_where_samples_are_small_or_epsilon_is_large_it_is_far_above_the_attack() -> None:
    """The first setting's true epsilon lies between .4106 and .4116."""
    small, large = dpsgd(1e-3, 1.0, 1000), dpsgd(0.5, 0.5, 3710)
    assert 0.408 < forced_epsilon(small, 1e-9, ADD) < 0.4116
    assert lower_bound(small, 1e-9, ADD) == pytest.approx(0.285, abs=1e-3)
    assert 2850 < forced_epsilon(large, 1e-5, ADD) < Pld().epsilon(large, 1e-5, ADD) < 2900
    assert lower_bound(large, 1e-5, ADD) == pytest.approx(106, abs=5)


def test_no_lower_bound_without_a_proof() -> None:
    step = dpsgd(0.02, 1.0, 10)
    for other in (random_allocation(epochs=1, steps=5, noise_multiplier=2.0), gaussian(noise_multiplier=0.0)):
        assert forced_epsilon(compose([step, other]), 1e-5, ADD) == 0
    fixed = without_replacement_gaussian(records=100, batch_size=5, noise_multiplier=1.0)
    assert forced_epsilon(repeat(fixed, 10), 1e-5, REPLACE) == 0


PANEL = Panel(claimants=(Pld(), Rdp()))


def test_a_quote_names_what_proves_its_lower_bound() -> None:
    quote = PANEL.quote(PlanEvent(training=dpsgd(1e-3, 1.0, 1000)), 1e-9, ADD)
    assert quote.lower_by == "PLD"
    assert 0.28 < quote.attack < 0.29 < 0.4 < quote.lower < quote.epsilon
    epochs = PANEL.quote(PlanEvent(training=random_allocation(epochs=2, steps=20, noise_multiplier=2.0)), 1e-5, ADD)
    assert epochs.lower_by == ATTACK
    assert 0 < epochs.lower == epochs.attack < epochs.epsilon


def test_the_lower_bound_of_the_whole_is_the_largest_of_its_populations() -> None:
    run, scores = dpsgd(0.02, 2.0, 500), gaussian(noise_multiplier=8.0)
    apart = [PANEL.quote(PlanEvent(training=event), 1e-5, ADD) for event in (run, scores)]
    both = PANEL.quote(PlanEvent(training=run, validation=scores), 1e-5, ADD)
    assert both.lower == max(one.lower for one in apart)
    assert both.attack == max(one.attack for one in apart)
    # PLD bounds the scores from below, also where it bounds the epochs by no more than the attack does
    epochs = random_allocation(epochs=1, steps=100, noise_multiplier=20.0)
    mixed = PANEL.quote(PlanEvent(training=epochs, validation=scores), 1e-5, ADD)
    assert (mixed.lower, mixed.lower_by) == (apart[1].lower, "PLD")


def test_a_lower_bound_whose_rounding_nobody_counted_is_not_told() -> None:
    quote = Panel(claimants=(Prv(),)).quote(PlanEvent(training=dpsgd(0.2, 4.0, 10)), 1e-5, ADD)
    assert quote.lower_by == ATTACK
    assert quote.lower == quote.attack > 0
