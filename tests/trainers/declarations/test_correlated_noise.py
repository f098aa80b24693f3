"""Banded matrices: columns within the norm that is priced, less error than independent noise, and the least error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import solve_triangular, toeplitz
from scipy.optimize import minimize

from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson, FixedSize, Poisson, RandomAllocation, Shuffle
from dpsweep.trainers.declarations.clip_schedules import CONSTANT, Geometric, Linear
from dpsweep.trainers.declarations.correlated_noise import (
    BandedFactorization,
    BandedSquareRoot,
    _coefficients_of_least_error,
    check_coefficients_belong_to_run,
    check_noise_suits_sampler,
    row_stds,
)
from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine, Cyclic, LearningRate, StepDecay, WarmUp

SCHEDULES: list[LearningRate] = [
    Constant(),
    Cosine(final=0.05),
    StepDecay(milestones=[0.5, 0.75], factors=[0.1, 0.01]),
    Cyclic(lowest=0.1, highest=1.0, cycles=3),
    WarmUp(share=0.2, then=Constant()),
]
KINDS = (BandedFactorization, BandedSquareRoot)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)


def matrix_of(coefficients: tuple[float, ...], steps: int) -> NDArray[np.float64]:
    column = np.zeros(steps)
    column[: len(coefficients)] = coefficients[:steps]
    return np.tril(toeplitz(column))


def error_of(coefficients: tuple[float, ...], schedule: LearningRate, steps: int) -> float:
    """The root mean square, over the steps, of the noise in the weights, with columns scaled to norm 1."""
    prefix_sums = np.tril(np.ones((steps, steps))) * [schedule.factor(step, steps) for step in range(steps)]
    scaled = np.array(coefficients) / np.linalg.norm(coefficients)
    noise = solve_triangular(matrix_of(tuple(scaled), steps).T, prefix_sums.T, lower=False)
    return float(np.sqrt((noise**2).sum() / steps))


@each_kind
@each_schedule
@pytest.mark.parametrize("bands", [1, 2, 3, 8, 64])
def test_columns_have_norm_at_most_1_by_exact_arithmetic(kind, schedule: LearningRate, bands: int) -> None:
    values = kind(bands=bands).coefficients_for_run(schedule, 200)
    norm = sum(Fraction(value) ** 2 for value in values)
    assert len(values) == bands
    assert values[0] > 0
    assert 1 - Fraction(1, 10**4) < norm <= 1
    kind(bands=bands, coefficients=list(values))


@each_kind
def test_one_band_is_independent_noise(kind) -> None:
    assert kind(bands=1).coefficients_for_run(Constant(), 50) == (1.0,)
    assert row_stds((1.0,), 5).tolist() == [1.0] * 5


@each_kind
@each_schedule
def test_more_bands_have_less_error_than_fewer(kind, schedule: LearningRate) -> None:
    errors = [error_of(kind(bands=b).coefficients_for_run(schedule, 256), schedule, 256) for b in (1, 2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]


@each_schedule
@pytest.mark.parametrize("bands", [2, 3, 5])
def test_the_convex_program_finds_what_a_search_over_all_coefficients_finds(schedule: LearningRate, bands: int) -> None:
    steps = 200
    ours = BandedFactorization(bands=bands).coefficients_for_run(schedule, steps)
    start = np.array(BandedSquareRoot(bands=bands).coefficients_for_run(schedule, steps))
    best = minimize(
        lambda c: error_of(tuple(c), schedule, steps), start, method="Nelder-Mead", options={"maxiter": 400}
    )
    assert error_of(ours, schedule, steps) < 1.02 * best.fun


@pytest.mark.parametrize("steps", [500, 1000])
@pytest.mark.parametrize("bands", [2, 8, 32])
def test_coefficients_for_the_schedule_beat_those_in_closed_form(steps: int, bands: int) -> None:
    for schedule in SCHEDULES:
        solved, closed = (kind(bands=bands).coefficients_for_run(schedule, steps) for kind in KINDS)
        assert error_of(solved, schedule, steps) < error_of(closed, schedule, steps)


def test_the_program_gives_the_same_numbers_again() -> None:
    first = BandedFactorization(bands=8).coefficients_for_run(Cosine(final=0.1), 300)
    _coefficients_of_least_error.cache_clear()
    assert BandedFactorization(bands=8).coefficients_for_run(Cosine(final=0.1), 300) == first


@each_kind
def test_the_std_of_a_row_is_the_norm_of_a_row_of_the_inverse(kind) -> None:
    values = kind(bands=4).coefficients_for_run(Constant(), 30)
    inverse = np.linalg.inv(matrix_of(values, 30))
    assert row_stds(values, 30) == pytest.approx(np.linalg.norm(inverse, axis=1), rel=1e-12)


@each_kind
@pytest.mark.parametrize(
    "coefficients", [[1.0, 0.1], [0.5], [-0.5, 0.5], [0.0, 0.5], [0.5, float("nan")], [0.8, 0.6000001]]
)
def test_a_matrix_that_the_price_does_not_hold_for_is_refused(kind, coefficients: list[float]) -> None:
    with pytest.raises(ValueError, match=r"Expected coefficients"):
        kind(bands=2, coefficients=coefficients)


@each_kind
def test_coefficients_of_another_run_are_refused(kind) -> None:
    run = Cosine(final=0.1), 300
    own = kind(bands=8).coefficients_for_run(*run)
    check_coefficients_belong_to_run(kind(bands=8, coefficients=own), *run)
    check_coefficients_belong_to_run(kind(bands=8, coefficients=[value * (1 - 1e-6) for value in own]), *run)
    for wrong in (None, [value * 0.999 for value in own]):
        with pytest.raises(ValueError, match=r"Expected noise.coefficients to be left out"):
            check_coefficients_belong_to_run(kind(bands=8, coefficients=wrong), *run)
    with pytest.raises(ValueError, match=r"Expected noise.bands=8 <= steps=4"):
        check_coefficients_belong_to_run(kind(bands=8, coefficients=own), Constant(), 4)


@pytest.mark.parametrize(
    "sampler",
    [
        *(Poisson(batch_size=5), FixedSize(batch_size=5), Shuffle(batch_size=5), RandomAllocation(batch_size=5)),
        CyclicPoisson(batch_size=5, parts=3),
    ],
    ids=str,
)
def test_a_record_that_may_come_again_within_the_bands_is_refused(sampler) -> None:
    with pytest.raises(ValueError, match=r"Expected noise.bands=4 <= [13],"):
        check_noise_suits_sampler(BandedSquareRoot(bands=4), sampler, CONSTANT)


@pytest.mark.parametrize("bounds", [Linear(least=0.5), Geometric(rate=0.1, least=0.5)], ids=str)
def test_a_falling_clip_norm_is_refused(bounds) -> None:
    sampler = CyclicPoisson(batch_size=5, parts=4)
    check_noise_suits_sampler(BandedSquareRoot(bands=4), sampler, CONSTANT)
    check_noise_suits_sampler(BandedSquareRoot(bands=3), sampler, CONSTANT)
    with pytest.raises(ValueError, match=r"Expected clip_schedule=constant"):
        check_noise_suits_sampler(BandedSquareRoot(bands=4), sampler, bounds)
