"""Which two neighbouring data sets a Poisson-sampled Gaussian step tells apart best, one record replaced by another.

Both records' clipped gradients lie in a ball. A search over pairs of them in the plane they span finds none that is
told apart better than two opposite ones of full length, which is what `replaced_step` prices.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special

from dpsweep.accounting.profiles.derived_profiles import replaced_step
from dpsweep.accounting.profiles.privacy_profiles import CLOSED_FORM

NODES = 4001
CLOSE = 1e-6


def price(rate: float, noise: float, epsilon: float) -> float:
    (replaced,) = replaced_step(rate, noise)
    return float(replaced.curve(np.array([epsilon]))[0])


def divergence(rate: float, noise: float, epsilon: float, one: complex, other: complex) -> float:
    """The hockey-stick divergence at epsilon >= 0 of a sum with `one` sampled in from the sum with `other`.

    Both lie in the plane, `one` on its real axis. Across that axis the integral is closed, along it numerical.
    """
    along, odds = one.real, math.exp(epsilon)
    x = np.linspace(-10 * noise + min(0.0, along), 10 * noise + max(0.0, along), NODES)
    density = np.exp(-((x / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    left = rate * np.exp((along * x - along**2 / 2) / noise**2) - (1 - rate) * (odds - 1)
    right = odds * rate * np.exp((other.real * x - other.real**2 / 2) / noise**2)
    if abs(other.imag) < 1e-9:
        inner = np.maximum(0.0, left - right)
    else:
        across = abs(other.imag)
        with np.errstate(divide="ignore"):
            edge = (np.log(np.maximum(left, 0.0)) - np.log(right)) * noise**2 / across + across / 2
        inner = np.maximum(left, 0.0) * special.ndtr(edge / noise) - right * special.ndtr((edge - across) / noise)
    return float(integrate.simpson(density * inner, x=x))


def random_pairs(seed: int, count: int, radius: float) -> list[tuple[float, float, float, complex, complex]]:
    rng = np.random.Generator(np.random.Philox(seed))
    rates, noises = np.exp(rng.uniform(np.log(1e-3), np.log(0.9), count)), np.exp(rng.uniform(-1, 2, count))
    epsilons = rng.uniform(0, 3, count) / noises
    sizes = radius * rng.uniform(0, 1, (2, count)) ** 0.25
    angles = rng.uniform(0, math.pi, count)
    return [
        (float(rate), float(noise), float(epsilon), complex(one), complex(other * np.exp(1j * angle)))
        for rate, noise, epsilon, one, other, angle in zip(rates, noises, epsilons, *sizes, angles, strict=True)
    ]


def worse(pairs: list[tuple[float, float, float, complex, complex]]) -> int:
    """How many pairs are told apart better than the price says."""
    return sum(
        divergence(rate, noise, epsilon, one, other) > price(rate, noise, epsilon) * (1 + CLOSE) + 1e-9
        for rate, noise, epsilon, one, other in pairs
    )


def test_no_pair_of_records_is_told_apart_better_than_opposite_ones() -> None:
    assert worse(random_pairs(5, 3000, radius=1.0)) == 0


def test_records_beyond_the_clip_norm_would_be() -> None:
    assert worse(random_pairs(5, 300, radius=1.3)) > 0


@pytest.mark.parametrize("angle", [0.5, 2.0, 3.0])
def test_a_wider_angle_and_a_longer_gradient_are_told_apart_better(angle: float) -> None:
    rate, noise, epsilon = 0.1, 1.0, 0.3
    here = divergence(rate, noise, epsilon, 1 + 0j, complex(np.exp(1j * angle)))
    assert divergence(rate, noise, epsilon, 1 + 0j, complex(np.exp(1j * (angle + 0.1)))) > here
    assert divergence(rate, noise, epsilon, 0.9 + 0j, complex(np.exp(1j * angle))) < here


def test_opposite_records_are_told_apart_as_priced() -> None:
    for rate, noise, epsilon, _, _ in random_pairs(6, 100, radius=1.0):
        assert divergence(rate, noise, epsilon, 1 + 0j, -1 + 0j) == pytest.approx(
            price(rate, noise, epsilon), rel=1e-5, abs=1e-7
        )


@pytest.mark.parametrize(
    ("rate", "noise", "epsilon", "delta"),
    [
        (2e-6, 21.2, 1e-10, 7.5194234976066698e-8),
        (1e-8, 100.0, 1e-10, 3.9558431346571038e-11),
        (1e-8, 1000.0, 1e-10, 1.0693520494930649e-18),
        (1e-4, 1.0, 0.01, 3.5953226565372727e-10),
        (0.3, 2.0, 0.5, 0.0074575466618879802),
        (1e-5, 0.5, 8.0, 1.841556975599871e-24),
    ],
)
def test_the_closed_form_has_its_digits_at_tiny_rates(rate: float, noise: float, epsilon: float, delta: float) -> None:
    """By 60 digits of mpmath. A difference of logarithms lost up to 5e-5 of a delta at a rate of 1e-8."""
    computed = price(rate, noise, epsilon)
    assert delta <= computed * (1 + CLOSED_FORM)
    assert computed == pytest.approx(delta, rel=CLOSED_FORM)
