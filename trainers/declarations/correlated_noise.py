"""Noise that is correlated over the steps of a run by a banded matrix, so that much of it cancels in the weights.

The weights are sums of steps, each times its learning rate: with weighted prefix sums A, their noise is A inv(C) Z for
independent draws Z. C is lower triangular, Toeplitz, and has `bands` coefficients: row t of the noise is

    row_t = (Z_t - sum over 1 <= j < bands of coefficients[j] row_(t - j)) / coefficients[0].

*Guarantee*: the norm of each column of C is at most 1, by exact arithmetic. With `CyclicPoisson` of at least as many
parts as bands, a record's columns are then orthogonal, and T steps of b parts cost what T / b Poisson-sampled Gaussian
steps cost, whatever the later steps do with the outputs of earlier ones. The coefficients depend on public numbers
alone. They are part of the plan, rounded down to `DIGITS` digits so that machines agree, and a job compares them with
those that it computes.

A matrix that is no Toeplitz matrix would be a little better in the first and the last steps, and as long as the run.
Momentum and second moments are left out of A: the coefficients are those of plain steps.

*Proof.* Take a record of part i. It may take part in the steps t_s = i + s b, by coins p_s that are independent of
everything else. No other record changes its part, and divergences are jointly convex, so condition on the coins of the
others. From the outputs y compute q = C y, a public map that can be undone: q_t = sum over j < b of C[t, t-j] S_{t-j} +
Z_t. Each column has b entries and the t_s are b apart, so the record enters the rows t_s, ..., t_s + b - 1 by its
participation at t_s alone. Call these rows block s, and look at it given all outputs before. The record's bounded
gradient g at t_s is then fixed, and so is every other record's part of a sum, given the outputs so far, which are the
same on both sides. So block s is a fixed function, row after row, of the vector with the rows Z_t + p_s C[t, t_s] g: a
Gaussian mechanism of multiplier sigma, since the shift has norm |g| times that of a column of C, on a Poisson sample of
the record. Where the record is replaced, the other one has the same part and coin, and the pair is that of Poisson
sampling (`accounting/profiles/derived_profiles.py`). The blocks follow one another, T / b of them for each part, and
dominating pairs compose (Zhu, Dong, Wang 2022, Theorem 10). QED

*Resumes.* No row and no Z is stored: rows after a checkpoint would otherwise come out twice, with new draws Z for the
same earlier participation. A job that goes on begins with an empty history, so C has blocks, and the proof holds for
each. Checkpoints lie at the ends of cycles, and each cycle that runs, lost ones included, is one possible
participation: with R resumes, each of which may lose E steps, T / b + R E / b.

*Floating point.* The noisy number on the lattice is c_0 S_t - sum_j c_j row_{t-j} + Z_t, and a row is what was released
minus its exact sum, the rounding included. So, given the outputs so far, a step rounds (C S)_t, shifted by public
numbers, plus one fresh draw: the argument for independent noise holds for each step as it stands. Rows are float64:
that the same outputs give rows which differ by the record's gradient alone holds up to 2^-52 of each term, together at
most `bands` terms of 32 standard deviations, and less than 1e-11 of the bound for the sum itself. Coefficients are
scaled by 1 - 10^-DIGITS, which covers this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from dpsweep.accounting.codec import positive_int, require_finite_number
from dpsweep.trainers.declarations.batch_sampling import number_of_parts
from dpsweep.trainers.declarations.clip_schedules import Constant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpsweep.trainers.declarations.batch_sampling import Sampler
    from dpsweep.trainers.declarations.clip_schedules import BoundSchedule
    from dpsweep.trainers.declarations.lr_schedules import LearningRate

Floats = tuple[float, ...]

DIGITS = 6
"""Decimals of a coefficient: few enough that machines agree on them; the scale covers the rounding of float64 sums."""

AGREEMENT = 1e-5
"""The largest difference between coefficients that two machines compute."""

ITERATIONS, DECREASE = 100, 1e-13
"""Newton steps at most, and the relative decrease of the error at which they end."""


class CorrelatedNoise(Protocol):
    """The noise of a run: a banded Toeplitz matrix C with columns of norm at most 1."""

    bands: int
    """The coefficients of C, its first column; bands - 1 rows of noise are kept in memory for each model."""
    coefficients: Sequence[float] | None
    """The first column of C; None before planning has computed it."""

    def coefficients_for_run(self, schedule: LearningRate, steps: int) -> Floats:
        """The coefficients for a run with this learning rate schedule and number of steps."""


@dataclass(frozen=True, kw_only=True)
class _Bands:
    """The number of bands, and the coefficients once they are known, with the check of their norm."""

    bands: int
    coefficients: Sequence[float] | None = None

    def __post_init__(self) -> None:
        positive_int("bands", self.bands)
        if self.coefficients is None:
            return
        values = tuple(float(require_finite_number("coefficients", value)) for value in self.coefficients)
        object.__setattr__(self, "coefficients", values)
        if len(values) != self.bands or values[0] <= 0:
            raise ValueError(f"Expected coefficients={list(values)} to be bands={self.bands}, the first above 0.")
        if sum(Fraction(value) ** 2 for value in values) > 1:
            raise ValueError(f"Expected coefficients={list(values)} to have norm <= 1: the price holds for no other.")


@dataclass(frozen=True, kw_only=True)
class BandedSquareRoot(_Bands):
    """The first bands of the square root of the prefix sums, whatever the learning rate schedule.

    Source: Kalinin and Lampert 2024, with the columns scaled to norm 1.
    """

    works: ClassVar[tuple[str, ...]] = ("choquette2023amplified", "kalinin2024banded")

    def coefficients_for_run(self, schedule: LearningRate, steps: int) -> Floats:
        """The series of (1 - x)^(-1/2), scaled.

        >>> from dpsweep.trainers.declarations.lr_schedules import Constant
        >>> BandedSquareRoot(bands=3).coefficients_for_run(Constant(), 30)
        (0.847997, 0.423998, 0.317999)
        """
        series = np.cumprod(np.array([1.0, *((2 * j - 1) / (2 * j) for j in range(1, self.bands))]))
        return _scaled_to_norm_at_most_1(series)


@dataclass(frozen=True, kw_only=True)
class BandedFactorization(_Bands):
    """The bands with the least total squared error of the weights in a run with this learning rate schedule.

    Source: McKenna 2024, for Toeplitz matrices, whose autocorrelation makes the problem convex.
    """

    works: ClassVar[tuple[str, ...]] = ("choquette2023amplified", "mckenna2024scaling")

    def coefficients_for_run(self, schedule: LearningRate, steps: int) -> Floats:
        """The solution of the convex program, scaled."""
        factors = tuple(schedule.factor(step, steps) for step in range(steps))
        return _coefficients_of_least_error(factors, self.bands)


def check_noise_suits_sampler(noise: CorrelatedNoise, sampler: Sampler, bounds: BoundSchedule) -> None:
    """Raises ValueError unless a record's steps are at least `bands` apart, and all noise has one size."""
    parts = number_of_parts(sampler)
    if noise.bands > parts:
        raise ValueError(
            f"Expected noise.bands={noise.bands} <= {parts}, the least number of steps between two that a record takes "
            "part in: sampler=cyclic_poisson takes sampler.parts parts in turn, and no other sampler keeps steps apart."
        )
    if not isinstance(bounds, Constant):
        raise ValueError("Expected clip_schedule=constant with correlated noise: no other has a price.")


def check_coefficients_belong_to_run(noise: CorrelatedNoise, schedule: LearningRate, steps: int) -> None:
    """Raises ValueError unless the coefficients are those of a run with this schedule and number of steps."""
    if noise.bands > steps:
        raise ValueError(f"Expected noise.bands={noise.bands} <= steps={steps}.")
    own = noise.coefficients_for_run(schedule, steps)
    if noise.coefficients is None or not np.allclose(noise.coefficients, own, rtol=0, atol=AGREEMENT):
        raise ValueError("Expected noise.coefficients to be left out: they follow from the schedule and the steps.")


@lru_cache(maxsize=16)
def row_stds(coefficients: Floats, steps: int) -> NDArray[np.float64]:
    """The standard deviation [steps] of each row of the noise, in units of that of the independent draws."""
    inverse = np.zeros(steps)
    inverse[0] = 1 / coefficients[0]
    others = np.array(coefficients[1:])
    for step in range(1, steps if len(others) else 1):
        last = inverse[max(0, step - len(others)) : step][::-1]
        inverse[step] = -(others[: len(last)] @ last) / coefficients[0]
    stds: NDArray[np.float64] = np.sqrt(np.cumsum(inverse**2))
    return stds


def _scaled_to_norm_at_most_1(values: NDArray[np.float64]) -> Floats:
    """The values divided by their norm and rounded towards 0; a single value is 1."""
    if len(values) == 1:
        return (1.0,)
    scaled = values / np.linalg.norm(values) * (1 - 10.0**-DIGITS)
    return tuple(math.copysign(math.floor(abs(value) * 10**DIGITS) / 10**DIGITS, value) for value in scaled.tolist())


@lru_cache(maxsize=64)
def _coefficients_of_least_error(factors: Floats, bands: int) -> Floats:
    """The coefficients with the least squared error of the weights after all steps, summed over the steps.

    The squared error is the trace of A^T A inv(C^T C). For a long run C^T C is Toeplitz with the symbol
    f(x) = 1 + 2 sum_j r_j cos(j x), where r is the autocorrelation of the coefficients, and the trace is the mean of
    w / f, where the cosine series of w has the sums of the diagonals of A^T A. It is convex in r. Newton's method
    starts at independent noise; the coefficients are then the spectral factor of f.
    """
    steps = len(factors)
    if bands == 1:
        return (1.0,)
    size = 1 << max(12, (4 * steps - 1).bit_length(), (16 * bands - 1).bit_length())
    weights = np.array(factors)
    later = weights * np.arange(steps, 0, -1)
    diagonals = np.fft.irfft(np.fft.rfft(weights, size).conj() * np.fft.rfft(later, size), size)[:steps]
    symbol = 2 * np.fft.rfft(diagonals, size).real - diagonals[0]
    symbol = np.maximum(symbol, 1e-12 * symbol.max())

    def cosine_series(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.fft.irfft(values, size)[: 2 * bands]

    def symbol_of(autocorrelation: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 + 2 * np.fft.rfft(np.concatenate([[0.0], autocorrelation]), size).real

    places = np.arange(1, bands)
    apart, together = np.abs(places[:, None] - places), places[:, None] + places
    autocorrelation = np.zeros(bands - 1)
    f = symbol_of(autocorrelation)
    error = float(cosine_series(symbol / f)[0])
    for _ in range(ITERATIONS):
        gradient = -2 * cosine_series(symbol / f**2)[1:bands]
        third = cosine_series(symbol / f**3)
        direction = np.linalg.solve(4 * (third[apart] + third[together]), -gradient)
        length, slope = 1.0, float(gradient @ direction)
        while True:
            following = symbol_of(autocorrelation + length * direction)
            least = float(following.min())
            next_error = float(cosine_series(symbol / following)[0]) if least > 0 else math.inf
            if next_error <= error + 0.25 * length * slope or length < DECREASE:
                break
            length /= 2
        if next_error > error:
            break
        gain, f, error = error - next_error, following, next_error
        autocorrelation = autocorrelation + length * direction
        if gain < DECREASE * error:
            break
    return _scaled_to_norm_at_most_1(_spectral_factor(f, size)[:bands])


def _spectral_factor(symbol: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The series c with |c(exp(i x))|^2 = symbol(x) that has no zero in the unit disc (Kolmogorov's method)."""
    cepstrum = np.fft.irfft(np.log(symbol), size)
    folded = np.concatenate([[cepstrum[0] / 2], cepstrum[1 : size // 2], [cepstrum[size // 2] / 2]])
    factor: NDArray[np.float64] = np.fft.irfft(np.exp(np.fft.rfft(folded, size)), size)
    return factor
