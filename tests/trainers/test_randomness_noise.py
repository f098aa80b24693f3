"""Noise on a lattice: its law, its support, the attack on float32 noise that it ends, and what remains of it."""

from __future__ import annotations

import doctest
import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from dpsweep.trainers import randomness as noise
from dpsweep.trainers.randomness import (
    FINE,
    Lattices,
    add_gaussian_noise_on_lattice,
    lattice_spacing,
    reproducible_streams,
    secret_streams,
    standard_normal,
)
from dpsweep.trainers.training.batch_and_noise import BatchAndNoise
from tests.margins import FALSE_ALARM
from tests.trainers.support_attack import SIGMA, Release, right_guesses

TIMES = 80
AT_MOST = stats.norm.cdf(1 / (2 * SIGMA))
"""How often any attacker is right at most, about one step whose sum a record moves by 1 of SIGMA."""

each_rate = pytest.mark.parametrize("lr", [1.0, 4.0, 128.0, 1024.0])


def threshold() -> int:
    """The least number of right guesses that nobody reaches by chance."""
    limit = int(stats.binom.isf(FALSE_ALARM, 2 * TIMES, AT_MOST)) + 1
    assert stats.binom.sf(limit - 1, 2 * TIMES, AT_MOST) < FALSE_ALARM
    assert limit < 2 * TIMES
    return limit


seeded = partial(reproducible_streams, 17)
"""Streams for what is no statement about secret noise: a planted mistake, a support, a law."""


@pytest.mark.randomized(
    draws="secret noise of 160 runs of one step",
    bound="binomial tail of 160 guesses, each right with the probability of the best attacker on exact noise",
    false_alarm=FALSE_ALARM,
)
@each_rate
def test_the_values_of_a_noisy_sum_tell_nobody_who_was_there(lr: float) -> None:
    """Guesses about both halves are right with AT_MOST on average: the tail is at most this (Hoeffding 1956)."""
    assert right_guesses(lr, TIMES, lambda name: secret_streams()) < threshold()


@each_rate
def test_the_values_of_float32_noise_tell_who_was_there(lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: numpy's float32 noise, added in float32."""
    monkeypatch.setattr(
        BatchAndNoise,
        "draw_standard_normal_noise",
        lambda self, like: torch.from_numpy(
            np.concatenate([one.noise.standard_normal((rows, like.shape[1]), np.float32) for one, rows in self.streams])
        ),
    )
    monkeypatch.setattr(
        Lattices, "add_noise_to_sums", lambda self, sums, drawn: sums.float() + drawn * self.stds.float()
    )
    assert right_guesses(lr, TIMES, seeded) >= threshold()


@each_rate
@pytest.mark.parametrize("present", [False, True])
def test_whoever_is_there_the_noisy_sum_is_on_one_lattice(lr: float, present: bool) -> None:
    places = Release(lr, present, 3, seeded).noisy_sums() / (lattice_spacing(SIGMA) / SIGMA)
    assert np.array_equal(places, np.rint(places))
    assert len(np.unique(places)) > 100


@pytest.mark.parametrize("std", [1.0, 0.99, 8.0, 1e-30, 3e20, 0.7 * 0.3])
def test_the_spacing_is_a_power_of_two_that_the_noise_alone_fixes(std: float) -> None:
    assert math.frexp(lattice_spacing(std))[0] == 0.5
    assert std * 2.0**-5 < lattice_spacing(std) <= std * 2.0**-4
    assert lattice_spacing(std, FINE) == lattice_spacing(std) / 32, "counts, whose intervals take the noise as normal"


@pytest.mark.parametrize("std", [1e-300, 5e-324, 1e300, math.inf, math.nan, -1.0])
def test_noise_that_has_no_lattice_is_refused(std: float) -> None:
    """A lattice that underflowed would round all noise away."""
    with pytest.raises(ValueError, match="^" + re.escape(f"Expected noise_std={std} to be 0, or in ")):
        lattice_spacing(std)


def test_each_row_has_its_own_lattice_and_none_without_noise() -> None:
    generator = torch.Generator().manual_seed(1)
    sums, stds = torch.randn(3, 500, generator=generator), [0.7, 0.0, 90.0]
    drawn = torch.randn(3, 500, generator=generator, dtype=torch.float64)
    noisy = Lattices.from_noise_stds(stds, "cpu").add_noise_to_sums(sums, drawn.clone())
    assert noisy.dtype == torch.float64
    assert torch.equal(noisy[1], sums[1].double())
    for row, std in ((0, 0.7), (2, 90.0)):
        exact = sums[row].double() + std * drawn[row]
        places = noisy[row] / lattice_spacing(std)
        assert torch.equal(places, places.round())
        assert float((noisy[row] - exact).abs().max()) <= lattice_spacing(std) / 2 * (1 + 1e-9)


def test_sums_are_left_as_they_are() -> None:
    sums = torch.ones(1, 4, dtype=torch.float64)
    Lattices.from_noise_stds([1.0], "cpu").add_noise_to_sums(sums, torch.ones(1, 4, dtype=torch.float64))
    assert torch.equal(sums, torch.ones(1, 4, dtype=torch.float64))


def test_a_few_numbers_are_noised_and_rounded_alike() -> None:
    rng = seeded("score").score
    noisy = np.array([add_gaussian_noise_on_lattice(np.array([3.3, -7.0]), 2.0, rng) for _ in range(4000)])
    places = noisy / lattice_spacing(2.0)
    assert np.array_equal(places, np.rint(places))
    assert np.abs(noisy.mean(axis=0) - [3.3, -7.0]).max() < 7 * 2 / math.sqrt(4000)
    assert np.abs(noisy.std(axis=0) - 2).max() < 7 * 2 / math.sqrt(8000)


def test_noise_is_normal_in_the_body_and_in_the_tail() -> None:
    """The second is the law of what is drawn again."""
    rng = seeded("noise").noise
    assert stats.kstest(standard_normal(rng, 10**6), "norm").pvalue > FALSE_ALARM
    far = noise._draw_normal_tail_magnitudes(rng, 10**6)
    assert far.min() >= noise._R
    assert stats.kstest(far, lambda x: 1 - stats.norm.sf(x) / stats.norm.sf(noise._R)).pvalue > FALSE_ALARM
    assert 5.7 < far.max() < 10


def test_rounding_adds_a_known_part_of_the_variance_and_no_bias() -> None:
    """h^2 / 12, wherever the exact number lies in its cell."""
    rng, std = seeded("noise").noise, 1.9
    exact = rng.random(10**6)
    added = add_gaussian_noise_on_lattice(exact, std, rng) - exact
    drawn = math.sqrt(std**2 + lattice_spacing(std) ** 2 / 12)
    assert lattice_spacing(std) ** 2 / 12 / std**2 < 3.3e-4
    assert abs(added.mean()) < 7 * std / 1000
    assert abs(added.std() - drawn) < 7 * std / math.sqrt(2 * 10**6)


def test_what_is_drawn_again_is_exponential_however_far_it_goes() -> None:
    rng = seeded("noise").noise
    drawn = noise._draw_exponential(rng, 10**6)
    assert stats.kstest(drawn, "expon").pvalue > FALSE_ALARM
    assert drawn.min() > 0


def test_about_every_thousandth_number_of_numpys_lies_in_the_tail_and_is_drawn_again() -> None:
    ours, theirs = (reproducible_streams(1, "a").noise for _ in range(2))
    drawn, plain = standard_normal(ours, (3, 10**5)), theirs.standard_normal((3, 10**5))
    changed = drawn != plain
    assert np.array_equal(changed, np.abs(plain) >= noise._R)
    assert 30 < changed.sum() < 150
    assert np.array_equal(np.sign(drawn), np.sign(plain))


def test_examples_hold() -> None:
    assert doctest.testmod(noise).failed == 0
