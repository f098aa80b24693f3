"""Privacy losses of one step on a grid, a short summary of a composition of many steps, and its tilted Fourier
transform.

The transform comes with a bound on its error, and with the search for a tilt's theta. Arithmetic of arrays is done in
few new arrays: new pages of memory cost more than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from scipy import fft

LARGEST_EXPONENT = 300.0


def exp_in_place_with_limit(exponents: np.ndarray) -> np.ndarray:
    """exp of exponents up to `LARGEST_EXPONENT`, written over them."""
    np.minimum(exponents, LARGEST_EXPONENT, out=exponents)
    np.exp(exponents, out=exponents)
    return exponents


def norm_of_tilted_error_weights(theta: float, interval: float, points: int) -> float:
    """The Euclidean norm of exp(theta interval) (1 - exp(-x)) exp(-theta x) over so many grid points x, from the first.

    This is how much the errors of a tilted composition, at all larger losses, may change delta, by Cauchy-Schwarz.
    """
    grid = np.arange(1, points + 1, dtype=float)
    grid *= -interval
    shares = np.expm1(grid)
    grid *= theta
    shares *= np.exp(grid, out=grid)
    return float(np.linalg.norm(shares)) * math.exp(theta * interval)


def interval_of_good_points(good: np.ndarray, centre: int) -> tuple[int, int]:
    """First and last place of the interval of good points nearest to `centre`; `centre` alone if none is good."""
    places = np.flatnonzero(good)
    if len(places) == 0:
        return centre, centre
    anchor = int(places[np.abs(places - centre).argmin()])
    bad = np.flatnonzero(~good)
    place = int(np.searchsorted(bad, anchor))
    low = int(bad[place - 1]) + 1 if place else 0
    return low, int(bad[place]) - 1 if place < len(bad) else len(good) - 1


def sums_above(weights: np.ndarray) -> np.ndarray:
    """Sums over all later points; 0 at the last point."""
    sums = np.zeros(len(weights))
    np.cumsum(weights[:0:-1], out=sums[-2::-1])
    return sums


def fold_modulo(weights: np.ndarray, lowest: int, size: int) -> np.ndarray:
    """Weights summed modulo `size`, with the loss 0 at place 0."""
    start = lowest % size
    padded = np.zeros(math.ceil((start + len(weights)) / size) * size)
    padded[start : start + len(weights)] = weights
    return reduce(np.add, padded.reshape(-1, size))


def powers_by_squaring(values: np.ndarray, count: int) -> np.ndarray:
    """The power `count` of each value, by repeated squaring."""
    result = None
    while count:
        if count % 2:
            result = values.copy() if result is None else result * values
        count //= 2
        if count:
            values = values * values
    return np.ones(values.shape, dtype=complex) if result is None else result


_NEAR, _GROWTH = 64, 1.02
"""Grid points around 0 that are single groups in an outline, and the growth factor of the groups beyond."""

_SUM = 1e-9
"""More than the relative rounding of a sum of probabilities."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """A discrete privacy-loss distribution on a grid.

    `probabilities[i]` is the probability of the loss `interval * (lowest + i)`, `infinite` that of an infinite loss.
    """

    lowest: int
    interval: float
    probabilities: np.ndarray
    infinite: float

    @cached_property
    def values(self) -> np.ndarray:
        """The losses in nats."""
        return np.asarray(self.interval * (self.lowest + np.arange(len(self.probabilities))))

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.probabilities))

    @property
    def last_grid_point(self) -> int:
        """The last grid point."""
        return self.lowest + len(self.probabilities) - 1

    def with_largest_losses_infinite(self, mass: float) -> Losses:
        """These losses, with the largest ones counted as infinite: as many as have at most `mass` together.

        *Guarantee*: every delta is at least that of these losses, as a loss only grows.
        """
        sums = np.cumsum(self.probabilities[::-1])
        lost = min(int(np.searchsorted(sums, mass, side="right")), max(0, self.last_grid_point - 1))
        if lost == 0:
            return self
        return Losses(
            lowest=self.lowest,
            interval=self.interval,
            probabilities=self.probabilities[:-lost],
            infinite=self.infinite + float(sums[lost - 1]) * (1 + _SUM),
        )

    def tilted_probabilities_and_log_norm(self, theta: float) -> tuple[np.ndarray, float]:
        """Probabilities multiplied by exp(theta loss) and normalised, and the logarithm of the normaliser."""
        exponents = theta * self.values
        exponents += self.log_probabilities
        most = float(exponents.max())
        exponents -= most
        weights = np.exp(exponents, out=exponents)
        total = float(weights.sum())
        weights /= total
        return weights, most + math.log(total)

    def log_moment(self, theta: float) -> float:
        """ln of the mean of exp(theta loss) over finite losses."""
        exponents = theta * self.values + self.log_probabilities
        most = float(exponents.max())
        return most + math.log(float(np.exp(exponents - most).sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Outline:
    """Groups of neighbouring losses, narrow near 0: precise enough to choose a tilt and a window, not a bound."""

    counts: np.ndarray
    starts: np.ndarray
    logs: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    @classmethod
    def from_parts(cls, parts: Sequence[tuple[Losses, int]]) -> Outline:
        """The outline of a composition, from its losses and their multiplicities."""
        groups = [_log_mass_mean_variance_by_group(losses) for losses, _ in parts]
        starts = np.cumsum([0, *(len(logs) for logs, _, _ in groups)])[:-1]
        logs, means, variances = (np.concatenate(columns) for columns in zip(*groups, strict=True))
        counts = np.array([float(count) for _, count in parts])
        return cls(counts=counts, starts=starts, logs=logs, means=means, variances=variances)

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """The log-moment of the whole composition at theta, with its first two derivatives."""
        exponents = self.logs + theta * self.means + np.minimum(theta**2 * self.variances / 2, 50.0)
        sizes = np.diff(np.append(self.starts, len(exponents)))
        most = np.maximum.reduceat(exponents, self.starts)
        weights = np.exp(exponents - np.repeat(most, sizes))
        total = np.add.reduceat(weights, self.starts)
        mean = np.add.reduceat(weights * self.means, self.starts) / total
        squares = (self.means - np.repeat(mean, sizes)) ** 2 + self.variances
        variance = np.add.reduceat(weights * squares, self.starts) / total
        log = most + np.log(total)
        return float(self.counts @ log), float(self.counts @ mean), float(self.counts @ variance)

    def expected_number_of_largest_losses(self, mass: float, theta: float) -> float:
        """The expected number, when tilted by theta, of the largest losses that have at most `mass` together.

        Every kind of step has an equal share of that mass.
        """
        exponents = self.logs + theta * self.means + np.minimum(theta**2 * self.variances / 2, 50.0)
        expected = 0.0
        ends = np.append(self.starts[1:], len(exponents))
        for count, first, last in zip(self.counts, self.starts, ends, strict=True):
            sums = np.cumsum(np.exp(self.logs[first:last][::-1]))
            beyond = int(np.searchsorted(sums, mass / len(self.counts) / count, side="right"))
            weights = np.exp(exponents[first:last] - exponents[first:last].max())
            expected += float(count * weights[len(weights) - beyond :].sum() / weights.sum())
        return expected


def _log_mass_mean_variance_by_group(losses: Losses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The log-probability, mean and variance of the losses in each group of grid points."""
    far = max(abs(losses.lowest), abs(losses.last_grid_point), _NEAR) + 1
    growing = _NEAR * _GROWTH ** np.arange(math.ceil(math.log(far / _NEAR) / math.log(_GROWTH)) + 1)
    ahead = np.unique(np.concatenate([np.arange(_NEAR), growing.astype(np.int64)]))
    edges = np.concatenate([-ahead[:0:-1], ahead]) - losses.lowest
    edges = np.unique(np.concatenate([[0], edges[(edges > 0) & (edges < len(losses.probabilities))]]))
    masses = np.add.reduceat(losses.probabilities, edges)
    positive = masses > 0
    divisor = np.where(positive, masses, 1.0)
    means = np.add.reduceat(losses.probabilities * losses.values, edges) / divisor
    sizes = np.diff(np.append(edges, len(losses.probabilities)))
    squares = (losses.values - np.repeat(means, sizes)) ** 2
    variances = np.add.reduceat(losses.probabilities * squares, edges) / divisor
    return np.log(masses[positive]), means[positive], variances[positive]


UNIT = 2.0**-53
LEVEL = 16 * UNIT
"""The relative rounding error of one level of a transform."""

ONE_STEP = 1e-13

NEGLIGIBLE = 80.0
"""Minus the logarithm of a transform's values that count as 0."""


def tilted_composition_with_error_bound(
    parts: Sequence[tuple[Losses, int]], theta: float, size: int
) -> tuple[np.ndarray, float, float]:
    """The tilted composition modulo `size`, its log-moment, and a bound on the Euclidean norm of its error."""
    level = LEVEL * (math.log2(size) + 4)
    total, relative, alive = 0.0, 4 * UNIT * len(parts), None
    product = envelope = np.ones(0)
    for losses, count in parts:
        weights, log = losses.tilted_probabilities_and_log_norm(theta)
        total += count * log
        tilting = float(
            weights @ (np.abs(theta * losses.values) + np.abs(np.maximum(losses.log_probabilities, -800.0)))
        )
        values = fft.rfft(fold_modulo(weights, losses.lowest, size))
        one_step = level + 2 * UNIT * (tilting + abs(log) + len(weights) // size + 8) + ONE_STEP
        relative += 2 * count * one_step
        if alive is not None:
            values = values[alive]
        squares = np.maximum(values.real**2 + values.imag**2, 0.25)
        if alive is None:
            alive = np.flatnonzero(squares > math.exp(-2 * NEGLIGIBLE / count))
            values, squares = values[alive], squares[alive]
            product, envelope = np.ones(len(alive), dtype=complex), np.ones(len(alive))
        product = product * powers_by_squaring(values, count)
        envelope = envelope * np.exp(count / 2 * np.log(squares))
    spectrum = np.zeros(size // 2 + 1, dtype=complex)
    spectrum[alive] = product
    factor = math.expm1(min(50.0, relative))
    norm = factor * math.sqrt(2 * float(envelope @ envelope)) + math.sqrt(size) * 2 * math.exp(-NEGLIGIBLE)
    masses = fft.irfft(spectrum, size)
    error = norm / math.sqrt(size) + 2 * level * float(np.linalg.norm(masses))
    return masses, total, error


def zero_of_decreasing(excess: Callable[[float], float], steepest: float) -> float:
    """The zero of a decreasing function of theta, to a relative 1e-3, between 0 and `steepest`."""
    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, min(1.0, steepest)
    while excess(high) > 0:
        if high >= steepest:
            return steepest
        low, high = high, min(4 * high, steepest)
    while high - low > 1e-3 * high and high > 1e-6:
        middle = math.sqrt(low * high) if low > high / 100 else high / 8
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high
