"""Tests of released noise: never too many false alarms, and each kind of wrong noise is found, with a stated power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from dpsweep.accounting.audit_record import NoiseTest
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout, sample_sizes_per_tensor

LAYOUT = TensorLayout(names=("weight", "bias"), sizes=(640, 10))
Change = Callable[[NDArray[np.float64]], Any]
FALSE_ALARM = 1e-4


def outcomes(noise: NDArray[np.float64], known: NDArray[np.bool_] | None = None) -> dict[NoiseTest, float]:
    """The p-value of each test on noise [steps, 650]."""
    seen = ReleasedNoise(layout=LAYOUT)
    for step, row in enumerate(noise):
        seen.add_step_noise(row, np.ones(len(row)) if known is None else known[step])
    return {finding.test: finding.p_value for finding in seen.findings(FALSE_ALARM)}


def drawn(seed: int, steps: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.Philox(seed)).standard_normal((steps, LAYOUT.vector_length))


@pytest.mark.parametrize("steps", [2, 9, 40])
@pytest.mark.parametrize("partly", [False, True], ids=["all", "known in part"])
def test_p_values_of_right_noise_are_small_no_more_often_than_they_say(steps: int, partly: bool) -> None:
    rng, audits = np.random.Generator(np.random.Philox(7)), 100
    found = {(test, level): 0 for test in NoiseTest for level in (0.02, 0.2)}
    for seed in range(audits):
        known = rng.random((steps, LAYOUT.vector_length)) < 0.5 if partly else None
        p_values = outcomes(drawn(seed, steps), known)
        for test, level in found:
            found[test, level] += p_values[test] < level
    for (_, level), count in found.items():
        assert count <= binom.isf(1e-6, audits, level)


ALL, LAST_TEN = slice(None), (slice(None), slice(-10, None))


@pytest.mark.parametrize(
    ("test", "place", "change"),
    [
        (NoiseTest.NUMBERS, LAST_TEN, lambda noise: noise[LAST_TEN] / 2),
        (NoiseTest.TENSORS, LAST_TEN, lambda noise: noise[LAST_TEN] * 0.75),
        (NoiseTest.TENSORS, (ALL, slice(640)), lambda noise: noise[:, :640] * 0.97),
        (NoiseTest.NUMBERS, (ALL, 3), lambda noise: 0.0),
        (NoiseTest.STEPS, (ALL, 3), lambda noise: noise[:, 3] + 2),
        (NoiseTest.STEPS, slice(1, None, 2), lambda noise: noise[::2]),
        (NoiseTest.STEPS, slice(1, None, 2), lambda noise: -noise[::2]),
        (NoiseTest.STEPS, LAST_TEN, lambda noise: noise[0, -10:]),
        (NoiseTest.PAIRS, (ALL, -1), lambda noise: noise[:, 0]),
        (NoiseTest.PAIRS, (ALL, 400), lambda noise: -noise[:, 401]),
    ],
    ids=["half in ten", "75 % in ten", "97 % in 640", "none", "mean", "twice", "both signs", "ten", "same", "negative"],
)
def test_wrong_noise_is_found(test: NoiseTest, place: Any, change: Change) -> None:
    noise = drawn(1, 100)
    assert min(outcomes(noise).values()) > FALSE_ALARM
    noise[place] = change(noise)
    assert outcomes(noise)[test] < FALSE_ALARM


@pytest.mark.parametrize("steps", [20, 30, 60])
def test_the_stated_power_is_that_of_half_the_noise_in_one_number(steps: int) -> None:
    found, stated, times = 0, 0.0, 100
    for seed in range(times):
        noise, seen = drawn(seed, steps), ReleasedNoise(layout=LAYOUT)
        noise[:, -1] /= 2
        for row in noise:
            seen.add_step_noise(row, np.ones(len(row)))
        finding = seen.findings(FALSE_ALARM)[0]
        found, stated = found + finding.refutes_declared_noise(FALSE_ALARM), finding.halved_seen or 0.0
    assert found / times == pytest.approx(stated, abs=0.2)


def test_numbers_are_taken_from_every_tensor() -> None:
    assert sample_sizes_per_tensor((640, 10), 100) == (90, 10)
    assert sample_sizes_per_tensor((1, 10**6, 5, 10**6), 106) == (1, 50, 5, 50)
    assert sample_sizes_per_tensor((640, 10), 10**9) == (640, 10)
    assert sum(sample_sizes_per_tensor((3, 1000, 999, 7), 500)) == 500
    assert sum(sample_sizes_per_tensor((5,) * 40, 12)) == 12
    layout = TensorLayout(names=("a", "b"), sizes=(7, 4))
    assert layout.spaced_places(11).tolist() == list(range(11))
    assert layout.spaced_places(4).tolist() == [0, 6, 7, 10]
    assert layout.leading_places(4).tolist() == [0, 1, 7, 8]
    assert [layout.tensor_name_and_index_text(place) for place in (0, 6, 7, 10)] == ["a[0]", "a[6]", "b[0]", "b[3]"]
