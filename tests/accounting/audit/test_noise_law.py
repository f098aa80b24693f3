"""Tests of released noise: right noise seldom fails, and each kind of wrong noise is found by its test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from dpsweep.accounting.audit.noise_law import ReleasedNoise

Numbers = NDArray[np.float64]
STEPS, NAMES, SIZES = 80, ("weight", "bias"), (90, 10)


def p_values(change: Callable[[Numbers], object], seed: int = 0) -> dict[str, tuple[float, str]]:
    """The p-value and the place of each test of standard normal noise [STEPS, 100] after this change."""
    rng = np.random.Generator(np.random.Philox(seed))
    rows, sums = rng.standard_normal((STEPS, sum(SIZES))), rng.standard_normal((STEPS, sum(SIZES)))
    change(rows)
    noise = ReleasedNoise(kind="noise", names=NAMES, sizes=SIZES)
    for row, exact in zip(rows, sums, strict=True):
        noise.add(row, {"the sums": exact})
    return {one.name.removeprefix("noise "): (one.p_value or 0.0, one.place) for one in noise.tests()}


@pytest.mark.parametrize(
    ("change", "test", "place"),
    [
        (lambda rows: np.multiply(rows[:, 7], 0, out=rows[:, 7]), "of each number", "weight[7]"),
        (lambda rows: np.multiply(rows[:, 90:], 0.8, out=rows[:, 90:]), "of each tensor", "bias"),
        (lambda rows: np.multiply(rows, 1.1, out=rows), "of each tensor", "weight"),
        (lambda rows: np.copyto(rows[1::2], rows[::2]), "repeated over steps", "weight"),
        (lambda rows: np.copyto(rows[:, 99], rows[:, 0]), "of pairs", "weight[0] and bias[9]"),
    ],
)
def test_wrong_noise_is_found_at_its_place(change: Callable[[Numbers], object], test: str, place: str) -> None:
    p_value, found = p_values(change)[test]
    assert (p_value < 1e-6, found) == (True, place)


def test_noise_that_follows_the_sums_is_found() -> None:
    noise, rng = ReleasedNoise(kind="noise", names=NAMES, sizes=SIZES), np.random.Generator(np.random.Philox(2))
    for _ in range(STEPS):
        exact = 5 * rng.standard_normal(100)
        noise.add(rng.standard_normal(100) + 0.05 * exact, {"the sums": exact})
    (along,) = (one for one in noise.tests() if one.name == "noise along the sums")
    assert along.p_value is not None
    assert along.p_value < 1e-6


def test_right_noise_fails_no_more_often_than_the_p_values_say() -> None:
    times, level = 60, 0.05
    drawn = [p_values(lambda rows: None, seed) for seed in range(times)]
    for test in drawn[0]:
        assert sum(one[test][0] < level for one in drawn) <= binom.isf(1e-6, times, level)


def test_without_noise_there_is_no_test() -> None:
    assert not list(ReleasedNoise(kind="noise", names=NAMES, sizes=SIZES).tests())
