"""Small deltas: compositions against closed forms, transforms of twice the digits, and laws over random events."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import fft

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import (
    DpEvent,
    best_of_tries,
    compose,
    poisson_gaussian,
    repeat,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.profiles.composition import ComposedLosses, Losses
from dpsweep.accounting.profiles.privacy_profiles import REACH, GaussianProfile

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def dpsgd(sample_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=sample_rate, noise_multiplier=noise_multiplier), steps)


# Exact values by Laplace inversion of the moment generating function; the third by `twice_the_digits` below.
SMALL_DELTAS = [
    (1e-4, 0.6, 3_000_000, 1e-9, REPLACE, 6.0848),
    (1e-4, 0.6, 3_000_000, 1e-10, REPLACE, 6.5015),
    (1e-4, 0.5, 20_000, 1e-10, ADD, 5.3129),
    (0.01, 0.7, 20_000, 1e-10, ADD, 30.8802),
    (1e-3, 1.0, 100_000, 1e-10, REPLACE, 4.3404),
    (0.02, 1.2, 5_000_000, 1e-5, ADD, 1168.21),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "adjacency", "exact"), SMALL_DELTAS)
def test_small_deltas_are_answered_from_above(
    rate: float, noise: float, steps: int, delta: float, adjacency: Adjacency, exact: float
) -> None:
    event = dpsgd(rate, noise, steps)
    epsilon = Pld().epsilon(event, delta, adjacency)
    assert exact <= epsilon < 1.001 * exact
    assert 0.9 * exact - 0.2 < forced_epsilon(event, delta, adjacency) <= exact


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "tries"),
    [(0.0013, 1.64, 37, Poisson(mean=2.0)), (0.0016, 1.55, 28, NegativeBinomial.with_mean(eta=2, mean=3))],
)
def test_a_search_of_few_steps_with_small_batches_is_priced_near_its_lower_bound(
    rate: float, noise: float, steps: int, tries: Tries
) -> None:
    """Losses have two modes, one of a step with the record and one without, and no tilt covers the gap between them."""
    event = best_of_tries(dpsgd(rate, noise, steps), tries)
    epsilon = Pld().epsilon(event, 1e-5, ADD)
    assert lower_bound(event, 1e-5, ADD) <= epsilon < 1.05 * lower_bound(event, 1e-5, ADD)


def gaussian_losses(mu: float, interval: float) -> Losses:
    curve = GaussianProfile(mu=mu).delta(interval * np.arange(math.ceil((mu**2 / 2 + REACH * mu) / interval) + 1))
    return Losses.from_curves(curve, curve, interval)


@pytest.mark.parametrize("delta", [1e-3, 1e-10, 1e-20, 1e-29])
@pytest.mark.parametrize(("mu", "steps"), [(0.5, 1), (0.05, 400), (0.003, 1_000_000)])
def test_many_gaussians_are_one(mu: float, steps: int, delta: float) -> None:
    """Composed step by step and in closed form, at deltas that no transform without a tilt can tell from 0."""
    composed = ComposedLosses([(gaussian_losses(mu, min(1e-3, mu / 10)), steps)])
    exact = GaussianProfile(mu=mu * math.sqrt(steps))
    epsilon = composed.epsilon(delta)
    assert exact.epsilon(delta) * (1 - 1e-9) <= epsilon <= 1.002 * exact.epsilon(delta)
    at = np.linspace(0, epsilon, 40)
    assert (composed.delta(at) >= exact.delta(at) * (1 - 1e-9)).all()
    assert (composed.delta(at) <= 1.15 * exact.delta(at) + 1e-30).all()


def test_unlike_gaussians_are_one() -> None:
    parts = [(gaussian_losses(mu, 1e-3), count) for mu, count in ((0.1, 100), (0.3, 7), (2.0, 1))]
    exact = GaussianProfile(mu=math.sqrt(1 + 0.63 + 4))
    for delta in (1e-4, 1e-12, 1e-20):
        assert exact.epsilon(delta) * (1 - 1e-9) <= ComposedLosses(parts).epsilon(delta) <= 1.001 * exact.epsilon(delta)


def twice_the_digits(rate: float, noise: float, steps: int, epsilons: np.ndarray, interval: float) -> np.ndarray:
    """delta on removal, by a plain transform in long doubles of losses rounded to the grid so that their means stay."""
    x = np.linspace(-13 * noise, 13 * noise + 1, 400_001)
    middle = (x[1:] + x[:-1]) / 2
    density = (1 - rate) * np.exp(-((middle / noise) ** 2) / 2) + rate * np.exp(-(((middle - 1) / noise) ** 2) / 2)
    masses = (density / density.sum()).astype(np.longdouble)
    loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * middle - 1) / (2 * noise**2)) / interval
    below = np.floor(loss).astype(int)
    share = (loss - below).astype(np.longdouble)
    size = 1 << 19
    grid = np.zeros(size, np.longdouble)
    near = below < size // 2
    np.add.at(grid, below[near] % size, (masses * (1 - share))[near])
    np.add.at(grid, (below[near] + 1) % size, (masses * share)[near])
    values, power, left = fft.rfft(grid), np.ones(1, np.clongdouble), steps
    while left:
        power = power * values if left % 2 else power
        values, left = values * values, left // 2
    composed = fft.irfft(power, size)
    at = interval * np.where(np.arange(size) < 3 * size // 4, np.arange(size), np.arange(size) - size)
    return np.array([float(composed @ np.maximum(0.0, -np.expm1(np.minimum(0.0, one - at)))) for one in epsilons])


@pytest.mark.long
@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long doubles have no more digits here")
@pytest.mark.parametrize(("rate", "noise", "steps"), [(1e-4, 0.5, 20_000), (0.01, 1.0, 3000), (0.2, 3.0, 100)])
def test_a_transform_of_twice_the_digits_agrees(rate: float, noise: float, steps: int) -> None:
    profile = Pld().profile(dpsgd(rate, noise, steps), ADD)
    epsilons = np.array([profile.epsilon(delta) for delta in (1e-6, 1e-9, 1e-10, 1e-11)])
    exact = twice_the_digits(rate, noise, steps, epsilons, 0.2 * rate / noise if rate < 1e-3 else 1e-4)
    ours = profile.delta(epsilons)
    assert (ours >= exact * (1 - 1e-3)).all()
    assert (ours <= exact * (1 + 1e-2)).all()


def random_events(seed: int, count: int) -> list[tuple[float, float, int]]:
    """Rates, noises and numbers of steps up to three millions, log-uniform, of a price below 100."""
    rng = np.random.Generator(np.random.Philox(seed))
    kept: list[tuple[float, float, int]] = []
    while len(kept) < count:
        rate, noise, steps = np.exp(rng.uniform(np.log([1e-4, 0.5, 1]), np.log([0.3, 10.0, 3e6])))
        case = (float(rate), float(noise), int(steps))
        if 0.1 < Rdp().epsilon(dpsgd(*case), 1e-9, ADD) < 100:
            kept.append(case)
    return kept


CASES = random_events(17, 36)


@pytest.mark.parametrize("delta", [1e-9, 1e-10])
@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [*CASES[:6], *(pytest.param(*case, marks=pytest.mark.long) for case in CASES[6:])]
)
def test_laws_at_small_deltas(rate: float, noise: float, steps: int, delta: float) -> None:
    accountant, event = Pld(), dpsgd(rate, noise, steps)
    epsilon = accountant.epsilon(event, delta, ADD)
    assert accountant.epsilon(event, delta, REPLACE) >= epsilon
    assert accountant.epsilon(dpsgd(rate, 0.9 * noise, steps), delta, ADD) > epsilon * (1 - 1e-3)
    assert accountant.epsilon(dpsgd(rate, noise, 2 * steps), delta, ADD) > epsilon
    assert accountant.epsilon(event, delta / 10, ADD) > epsilon
    assert epsilon <= Rdp().epsilon(event, delta, ADD) * (1 + 1e-3)
    for adjacency in (ADD, REPLACE):
        assert forced_epsilon(event, delta, adjacency) <= accountant.epsilon(event, delta, adjacency)


def test_a_delta_of_1e_20_is_answered_below_renyi_and_under_replacement() -> None:
    event = dpsgd(0.02, 2.0, 5000)
    epsilon = Pld().epsilon(event, 1e-20, ADD)
    assert 0.85 * Rdp().epsilon(event, 1e-20, ADD) < epsilon < Rdp().epsilon(event, 1e-20, ADD)
    assert epsilon < Pld().epsilon(event, 1e-20, REPLACE) < 2.2 * epsilon


def test_steps_on_batches_of_a_fixed_size_get_a_fine_grid() -> None:
    """Its width follows their rate, so that a tenth of it changes little."""
    batches = repeat(without_replacement_gaussian(records=100_000, batch_size=100, noise_multiplier=2.0), 2000)
    event = compose([batches])
    whole, fine = Pld().epsilon(event, 1e-5, REPLACE), Pld(interval=1e-5).epsilon(event, 1e-5, REPLACE)
    assert fine * (1 - 1e-9) <= whole <= 1.02 * fine
