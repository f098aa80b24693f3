"""Small sampling rates at small deltas: claims and lower bounds against closed forms and a bracket of their own."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import fft, special

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import DpEvent, compose, poisson_gaussian, random_stopping, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.profiles.composition import Losses

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def dpsgd(rate: float, noise: float, steps: int) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)


# Brackets by a floor and a ceiling of every loss, for removal, and by an independent discretisation under replacement.
KNOWN = [
    (1e-4, 1.0, 10_000, 1e-10, ADD, 0.0793, 0.0804),
    (1e-4, 1.0, 10_000, 1e-10, REPLACE, 0.1185, 0.1196),
    (1e-5, 1.0, 20_000, 1e-10, ADD, 0.00966, 0.00974),
    (1e-3, 1.0, 1000, 1e-9, ADD, 0.4106, 0.4116),
    (1e-5, 1.0, 20_000, 1e-8, ADD, 0.00773, 0.0079),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "adjacency", "least", "most"), KNOWN)
def test_known_prices(
    rate: float, noise: float, steps: int, delta: float, adjacency: Adjacency, least: float, most: float
) -> None:
    event = dpsgd(rate, noise, steps)
    assert least <= Pld().epsilon(event, delta, adjacency) <= most
    assert 0.9 * least < forced_epsilon(event, delta, adjacency) <= most


@pytest.mark.parametrize(
    ("rate", "noise", "delta"), [(1e-5, 1.0, 1e-12), (1e-4, 1.0, 1e-12), (1e-3, 0.7, 1e-15), (3e-4, 1.3, 1e-9)]
)
def test_one_step_is_its_closed_form(rate: float, noise: float, delta: float) -> None:
    """q times the Gaussian's delta at ln(1 + (exp(epsilon) - 1) / q), by integration of its two tails."""
    claim, lower = Pld().epsilon(dpsgd(rate, noise, 1), delta, ADD), forced_epsilon(dpsgd(rate, noise, 1), delta, ADD)
    inner = math.log1p(math.expm1(claim) / rate)
    near, far = (special.log_ndtr(side / (2 * noise) - inner * noise) for side in (1, -1))
    assert rate * (math.exp(near) - math.exp(inner + far)) == pytest.approx(delta, rel=1e-6)
    assert claim * (1 - 1e-5) - 2e-9 < lower < claim <= Pld().epsilon(dpsgd(rate, noise, 1), delta, REPLACE)


def removed_bracket(rate: float, noise: float, steps: int, delta: float, interval: float) -> tuple[float, float]:
    """Bounds on the epsilon of removal: each loss moved down to the grid, and up; in 64 bits of mantissa, untilted.

    Losses of a mass of 1e-4 delta in all are 0 below, and infinite above.
    """
    cut = -special.ndtri(min(0.5, 1e-4 * delta / steps)) if rate == 1 else _cut(rate, noise, 1e-4 * delta / steps)
    edges = np.arange(math.floor(math.log1p(-rate) / interval) - 1, math.ceil(cut / interval) + 1) * interval
    with np.errstate(invalid="ignore", divide="ignore"):
        at = noise * (np.log(np.maximum(np.expm1(edges) + rate, 0.0)) - math.log(rate)) + 1 / (2 * noise)
    above = ((1 - rate) * special.ndtr(-at) + rate * special.ndtr(1 / noise - at)).astype(np.longdouble)
    above[np.isneginf(at)] = 1
    masses, beyond = -np.diff(above), float(above[-1]) * steps
    first = round(edges[0] / interval)
    results = []
    for shift, infinite in ((0, 0.0), (1, beyond)):
        size = 1 << 19
        grid = np.zeros(size, np.longdouble)
        np.add.at(grid, (np.arange(len(masses)) + first + shift) % size, masses)
        if not shift:
            grid[0] += above[-1]
        values, power, left = fft.rfft(grid), np.ones(1, np.clongdouble), steps
        while left:
            power = power * values if left % 2 else power
            values, left = values * values, left // 2
        composed = fft.irfft(power, size)
        at = interval * np.where(np.arange(size) < 3 * size // 4, np.arange(size), np.arange(size) - size)

        def excess(epsilon: float, composed: np.ndarray = composed, at: np.ndarray = at) -> float:
            return float(composed @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - at))))

        low, high = 0.0, 3.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) + infinite > delta else (low, middle)
        results.append(low)
    return results[0], results[1]


def _cut(rate: float, noise: float, mass: float) -> float:
    """The loss above which a step has at most this mass."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = (1 - rate) * special.ndtr(-middle) + rate * special.ndtr(1 / noise - middle)
        low, high = (middle, high) if tail > mass else (low, middle)
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + high / noise - 1 / (2 * noise**2)))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long doubles have no more digits here")
@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), [(1e-4, 1.0, 10_000, 1e-10), (3e-4, 1.3, 300, 1e-12)])
def test_claims_and_lower_bounds_agree_with_a_floor_and_a_ceiling(
    rate: float, noise: float, steps: int, delta: float
) -> None:
    event = dpsgd(rate, noise, steps)
    least, most = removed_bracket(rate, noise, steps, delta, 0.02 * rate / noise if steps > 1000 else 0.1 * rate)
    claim, lower = Pld().epsilon(event, delta, ADD), forced_epsilon(event, delta, ADD)
    assert least <= claim <= 1.02 * most
    assert 0 < lower <= most
    assert lower <= claim


GRID = list(itertools.product((1e-5, 1e-4, 3e-4, 1e-3), (1e-9, 1e-12, 1e-15), (1, 10, 300, 20_000)))
FEW = GRID[5::11]


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize(
    ("rate", "delta", "steps"), [pytest.param(*case, marks=() if case in FEW else pytest.mark.long) for case in GRID]
)
def test_claims_are_in_order(rate: float, delta: float, steps: int, adjacency: Adjacency) -> None:
    """At most the Renyi bound and the price of all steps in one; at least one step; and never below its lower bound."""
    event, accountant = dpsgd(rate, 1.0, steps), Pld()
    claim, lower = accountant.epsilon(event, delta, adjacency), forced_epsilon(event, delta, adjacency)
    assert forced_epsilon(dpsgd(rate, 1.0, 1), delta, adjacency) <= claim
    assert lower <= claim
    assert lower <= accountant.epsilon(dpsgd(rate, 1.0, 1), delta / steps, adjacency) * steps
    if adjacency is ADD:
        renyi = Rdp().epsilon(event, delta, ADD)
        assert lower <= renyi
        assert claim <= renyi * (1 + 1e-3)


def test_unlike_steps_are_cut_each_by_their_own_number() -> None:
    rare, often = dpsgd(1e-3, 1.0, 10), dpsgd(1e-4, 1.0, 10_000)
    both = compose([rare, often])
    apart = [Pld().epsilon(event, 0.5e-10, ADD) for event in (rare, often)]
    claim = Pld().epsilon(both, 1e-10, ADD)
    assert max(forced_epsilon(event, 1e-10, ADD) for event in (rare, often)) <= claim <= sum(apart)
    assert 0 <= forced_epsilon(both, 1e-10, ADD) <= claim


def test_random_stopping_reaches_the_same_deltas() -> None:
    search = random_stopping(dpsgd(1e-3, 1.45, 4000), gamma=0.1, delta2=1e-8)
    claim = Pld().epsilon(search, 1e-5, ADD)
    assert claim <= Rdp().epsilon(search, 1e-5, ADD)


def test_a_cut_only_moves_mass_to_infinity() -> None:
    losses = Losses(lowest=-1, interval=0.1, probabilities=np.array([0.5, 0.3, 0.15, 0.04, 0.01]), infinite=1e-3)
    cut = losses.with_largest_losses_infinite(0.02)
    assert (len(cut.probabilities), cut.infinite) == (4, pytest.approx(0.011, rel=1e-8))
    assert cut.infinite >= 0.011
    assert losses.with_largest_losses_infinite(0.0) is losses
    assert losses.with_largest_losses_infinite(1.0).highest >= 0
