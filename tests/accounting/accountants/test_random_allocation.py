"""Epochs with random allocation: curves of small epochs by quadrature, known prices, and sampled likelihood ratios."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    as_epoch,
    compose,
    from_json,
    gaussian,
    leaves_with_counts,
    number_of_steps,
    poisson_gaussian,
    random_allocation,
    repeat,
    to_json,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.accounting.profiles.random_allocation import GridLaw, _law_of_sum, directions_of_allocated_epoch

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


PACKAGE = {
    (50, 2.0, 100, 1e-5): 3.42820,
    (50, 3.6, 100, 1e-5): 1.69594,
    (50, 1.2, 100, 1e-5): 7.11048,
    (10, 1.0, 1, 1e-6): 3.03605,
    (10, 4.0, 20, 1e-5): 1.50255,
    (100, 1.0, 1, 1e-6): 1.45386,
    (1000, 0.8, 1, 1e-6): 1.50576,
    (5, 3.0, 5, 1e-4): 1.22724,
    (500, 1.5, 50, 1e-5): 0.99042,
    (1000, 2.0, 10, 1e-8): 0.36445,
}
"""Epsilon by steps, noise multiplier, epochs and delta: the direct method of the package random-allocation 1.0.5, with
the orders 2 to 60, which are too few for the last two."""


@pytest.mark.parametrize(("setting", "package"), PACKAGE.items(), ids=str)
def test_prices_are_lower_than_those_of_the_package(setting: tuple[int, float, int, float], package: float) -> None:
    steps, noise, epochs, delta = setting
    event = random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise)
    assert lower_bound(event, delta, ADD) < Pld().epsilon(event, delta, ADD) < package


def test_by_renyi_curves_an_epoch_is_one_gaussian_step() -> None:
    epochs, steps = (
        random_allocation(epochs=3, steps=20, noise_multiplier=4.0),
        repeat(gaussian(noise_multiplier=4.0), 3),
    )
    for adjacency in (ADD, REPLACE):
        assert Rdp().epsilon(epochs, 1e-5, adjacency) == Rdp().epsilon(steps, 1e-5, adjacency)


def test_others_give_no_bound() -> None:
    event = random_allocation(epochs=3, steps=20, noise_multiplier=4.0)
    with pytest.raises(UnsupportedEvent, match="no bound for RandomAllocation"):
        Pld().epsilon(event, 1e-5, REPLACE)
    with pytest.raises(UnsupportedEvent, match="no proven bound for RandomAllocation"):
        Prv().epsilon(event, 1e-5, ADD)


EXACT = {
    (10, 1.0, 1, 1e-5): 2.189,
    (100, 1.0, 1, 1e-5): 0.6209,
    (600, 1.0, 10, 1e-6): 0.7151,
    (50, 3.6, 1, 1e-5): 0.1258,
    (50, 3.6, 100, 1e-5): 1.557,
    (50, 2.0, 100, 1e-5): 3.163,
    (50, 1.2, 100, 1e-5): 6.588,
}
"""Epsilon by steps, noise multiplier, epochs and delta, to four digits: the law of one epoch as a sum of lognormal
variables by the Fourier transform, epochs composed, in both directions, confirmed by 6 million samples."""


@pytest.mark.parametrize(("setting", "exact"), EXACT.items(), ids=str)
def test_by_losses_prices_are_exact_within_a_percent_and_never_below(
    setting: tuple[int, float, int, float], exact: float
) -> None:
    steps, noise, epochs, delta = setting
    price = Pld().epsilon(random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise), delta, ADD)
    digits = 10.0 ** (math.floor(math.log10(exact)) - 3)
    assert exact - digits / 2 <= price <= exact * 1.004
    assert price < Rdp().epsilon(random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise), delta, ADD)


BETWEEN = {
    (10, 1.0, 1, 1e-5): (2.16616, 2.20896),
    (4, 0.4, 1, 1e-5): (11.79323, 11.83716),
    (50, 2.0, 100, 1e-5): (3.11815, 3.21074),
    (1000, 0.4, 1, 1e-6): (7.53582, 7.55676),
}
"""Epsilon from below and from above by the package pld-accounting 2.0, of the authors of the theorem."""


@pytest.mark.parametrize(("setting", "bounds"), BETWEEN.items(), ids=str)
def test_by_losses_prices_lie_between_the_bounds_of_the_package(
    setting: tuple[int, float, int, float], bounds: tuple[float, float]
) -> None:
    steps, noise, epochs, delta = setting
    price = Pld().epsilon(random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise), delta, ADD)
    assert bounds[0] < price < bounds[1]


@pytest.mark.parametrize(("steps", "noise"), [(50, 3.6), (50, 2.0), (50, 1.2)])
def test_a_hundred_epochs_of_paper_a_cost_less_than_poisson_samples(steps: int, noise: float) -> None:
    allocated = random_allocation(epochs=100, steps=steps, noise_multiplier=noise)
    poisson = repeat(poisson_gaussian(sample_rate=1 / steps, noise_multiplier=noise), 100 * steps)
    assert Pld().epsilon(allocated, 1e-5, ADD) < Pld().epsilon(poisson, 1e-5, ADD)


@pytest.mark.parametrize("noise", [0.4, 1.0, 4.0])
@pytest.mark.parametrize("steps", [2, 3])
def test_both_curves_of_a_small_epoch_are_those_of_quadrature(steps: int, noise: float) -> None:
    """A sum over a fine lattice of both or all three numbers of an epoch."""
    spacing = {2: 0.01, 3: 0.1}[steps]
    z = np.arange(-10.0, 10.0 + spacing / 2, spacing)
    weights = np.exp(-(z**2) / 2) * spacing / math.sqrt(2 * math.pi)
    x, mass = np.zeros(1), np.ones(1)
    for _ in range(steps):
        x = (x[:, None] + np.exp(z / noise - 1 / (2 * noise**2)) / steps).ravel()
        mass = (mass[:, None] * weights).ravel()
    ahead, behind = directions_of_allocated_epoch(steps, noise)
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        at, odds = np.array([epsilon]), math.exp(epsilon)
        for direction, values in ((ahead, x - odds), (behind, 1 - odds * x)):
            exact = float(mass @ np.maximum(values, 0.0))
            if exact > 1e-9:
                assert exact * (1 - 2e-3) <= float(direction.delta(at)[0]) <= exact * 1.01 + 1e-9


@pytest.mark.parametrize(("steps", "noise"), [(1, 1.0), (2, 0.1), (7, 0.5), (64, 2.0), (1000, 10.0), (4097, 0.7)])
def test_a_spread_law_keeps_its_mass_and_its_mean(steps: int, noise: float) -> None:
    law, step = _law_of_sum(steps, noise)
    assert law.zero + law.masses.sum() == pytest.approx(1, abs=1e-9)
    assert law.lost + law.masses @ law.points(step) == pytest.approx(steps, rel=1e-9)
    assert min(law.masses.min(), law.zero, law.lost) >= 0
    variance = law.masses @ (law.points(step) - steps) ** 2 / steps
    exact = math.expm1(1 / noise**2)
    if noise >= 0.5:
        assert exact * (1 - 1e-6) <= variance <= exact * 1.02, "spreading raises the variance, by little"


def test_rounding_down_in_place_of_spreading_is_found() -> None:
    """The same law with each point moved down has lost some of its mean, and is below the exact price."""
    law, step = _law_of_sum(10, 1.0)
    down = GridLaw(first=law.first - 1, masses=law.masses, zero=law.zero, lost=law.lost)
    assert down.masses @ down.points(step) < 10 * (1 - 1e-3)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3, 1.0, 30.0, 1e4])
def test_by_losses_more_steps_and_more_noise_cost_less(noise: float) -> None:
    def price(steps: int, noise: float, delta: float) -> float:
        return Pld().epsilon(random_allocation(epochs=1, steps=steps, noise_multiplier=noise), delta, ADD)

    for delta in (1e-12, 1e-5):
        prices = [price(steps, noise, delta) for steps in (1, 2, 40, 5000)]
        assert all(more <= fewer * (1 + 1e-6) for fewer, more in itertools.pairwise(prices))
        assert price(40, 1.5 * noise, delta) <= prices[2]
    one = price(1, noise, 1e-6)
    assert one == pytest.approx(Pld().epsilon(gaussian(noise_multiplier=noise), 1e-6, ADD))


def test_by_losses_without_noise_nothing_is_private() -> None:
    assert Pld().epsilon(random_allocation(epochs=2, steps=5, noise_multiplier=0.0), 1e-5, ADD) == math.inf


@pytest.mark.parametrize(("steps", "noise", "epochs"), [(1000, 0.8, 5), (50, 2.0, 100), (20, 4.0, 3)])
def test_by_losses_epochs_cost_at_least_what_an_attack_forces(steps: int, noise: float, epochs: int) -> None:
    event = random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise)
    price, one = (Pld().epsilon(each, 1e-6, ADD) for each in (event, repeat(event, 2)))
    assert lower_bound(event, 1e-6, ADD) < price < one
    assert math.isfinite(one)


def test_epochs_compose_with_other_steps() -> None:
    epochs = random_allocation(epochs=3, steps=20, noise_multiplier=2.0)
    step = gaussian(noise_multiplier=3.0)
    both = Pld().epsilon(compose([epochs, step]), 1e-5, ADD)
    assert (
        max(Pld().epsilon(one, 1e-5, ADD) for one in (epochs, step))
        < both
        < Rdp().epsilon(compose([epochs, step]), 1e-5, ADD)
    )


def test_the_event_counts_its_steps_and_keeps_its_form() -> None:
    epochs = random_allocation(epochs=3, steps=20, noise_multiplier=4.0)
    assert number_of_steps(epochs) == 60
    ((leaf, count),) = leaves_with_counts(epochs)
    assert (as_epoch(leaf), count) == ((20, 4.0), 3)
    assert from_json(to_json(epochs)) == epochs


def test_a_guess_at_the_canary_finds_no_more_than_the_price() -> None:
    """A likelihood-ratio test on simulated epochs: delta at some epsilons, estimated from below."""
    rng, steps, noise, epochs, trials = np.random.default_rng(1), 10, 1.0, 2, 200_000
    event = random_allocation(epochs=epochs, steps=steps, noise_multiplier=noise)

    def ratios(*, present: bool) -> np.ndarray:
        total = np.zeros(trials)
        for _ in range(epochs):
            x = rng.normal(scale=noise, size=(trials, steps))
            if present:
                x[np.arange(trials), rng.integers(steps, size=trials)] += 1
            total += np.log(np.exp((2 * x - 1) / (2 * noise**2)).mean(axis=1))
        return total

    logs = ratios(present=True)
    for epsilon in (0.5, 1.0, 2.0):
        values = np.maximum(0.0, 1 - np.exp(epsilon - logs))
        delta = values.mean() - 4 * values.std() / math.sqrt(trials)
        assert float(Pld().profile(event, ADD).delta(np.array([epsilon]))[0]) > delta


def likelihood_ratios_of_allocation(
    steps: int, times: int, noise: float, *, present: bool, rng: np.random.Generator, draws: int
) -> np.ndarray:
    """Draws of the ratio for a record in `times` of `steps` steps: the mean over subsets of products of lognormals.

    By symmetry a record that is present may be in the first steps.
    """
    sums = [np.ones(draws), *(np.zeros(draws) for _ in range(times))]
    for step in range(steps):
        number = noise * rng.standard_normal(draws) + (1 if present and step < times else 0)
        factor = np.exp((2 * number - 1) / (2 * noise**2))
        for size in range(times, 0, -1):
            sums[size] += factor * sums[size - 1]
    return sums[times] / math.comb(steps, times)


@pytest.mark.parametrize(
    ("steps", "times", "noise"),
    [
        (10, 3, 1.0),
        pytest.param(12, 3, 1.0, marks=pytest.mark.long),
        pytest.param(10, 3, 1.5, marks=pytest.mark.long),
        pytest.param(24, 6, 2.0, marks=pytest.mark.long),
        pytest.param(9, 2, 0.6, marks=pytest.mark.long),
    ],
)
def test_epochs_of_one_step_bound_several_steps_of_one_epoch(steps: int, times: int, noise: float) -> None:
    """k of t steps are never dearer than k epochs of floor(t / k): a floor on delta, 5 deviations below its mean.

    Proof: split the t steps at random into k parts of floor(t / k) or one more, then draw one step of each; all
    k-subsets are equally likely. Given the parts, which nothing depends on, this is k epochs; divergences are jointly
    convex, and a longer epoch has a law that is smaller in the convex order (Feldman and Shenfeld 2025).
    """
    rng, draws = np.random.default_rng(5), 1_000_000
    ahead, behind = (
        likelihood_ratios_of_allocation(steps, times, noise, present=present, rng=rng, draws=draws)
        for present in (True, False)
    )
    bound = random_allocation(epochs=times, steps=steps // times, noise_multiplier=noise)
    for epsilon in (0.25, 0.5, 1.0, 2.0):
        removed = np.maximum(0.0, 1 - math.exp(epsilon) / ahead)
        added = np.maximum(0.0, 1 - math.exp(epsilon) * behind)
        floor = max(float(delta.mean() - 5 * delta.std() / math.sqrt(draws)) for delta in (removed, added))
        assert floor > 1e-4
        assert epsilon <= Pld().epsilon(bound, floor, ADD) < 1.7 * epsilon + 0.1
