"""The Renyi curve of an epoch in which every record takes part in one step, drawn uniformly for each record.

Let t be the number of steps and s the noise multiplier. A record that is added changes the mean of one step, by a
vector of norm at most 1 that may depend on earlier outputs. So an epoch is post-processing of one of two laws on t
numbers: Q, where all are N(0, s^2), and P, where 1 is added to one of them, drawn uniformly: an output is its number
times the vector, plus the noise that is missing in other directions, or because the vector is shorter than 1. Under Q
the ratio X = P / Q is the mean of t independent lognormal Y with E[Y^j] = exp(j (j - 1) / (2 s^2)). At order a

* P diverges from Q by ln E[X^a] / (a - 1). For a whole a, E[X^a] is a! / t^a times the coefficient of z^a in the t-th
  power of sum_j E[Y^j] z^j / j!, whose terms are positive; between whole numbers ln E[X^a] is convex in a.
* Q diverges from P by ln E[X^-b] / b with b = a - 1. Here E[X^-b] is 1 / Gamma(b + 1) times the integral over u > 0 of
  -u^b d/du E[exp(-u X)], and E[exp(-u X)] = E[exp(-u Y / t)]^t.

*Source*: Feldman and Shenfeld 2025 (Privacy amplification by random allocation) show that this pair dominates, and
bound both directions; the formulas here are derived above.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

LARGEST_ORDER = 256
"""Larger orders have no bound here but that of a Gaussian mechanism: they matter only for a small epsilon."""

SMALLEST_NOISE = 0.2
"""Below this noise, where an epoch is hardly private, the bound is that of a Gaussian mechanism too."""

NODES = 0.05
"""The distance of the integral's nodes, in ln u. The integrand is analytic, at the largest order as narrow as a normal
density of standard deviation 1/16: the trapezoidal rule has a relative error below 1e-12."""

FARTHEST = 30.0
"""Standard deviations that the integrals over Y cover on each side. All else is bounded by `BEYOND`."""

BEYOND = math.log(1e-196)
"""The logarithm of more than the normal mass beyond `FARTHEST` on both sides, which is below 1e-196."""

NORMAL_NODES = 0.04
"""The distance of these integrals' nodes."""

MARGIN = 1e-12
"""Added to every log-moment, relative to the summands: far above the errors of sums and integrals."""

NEGLIGIBLE = math.log(1e-18)


def random_allocation_renyi_curve(steps: int, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """Upper bounds on the Renyi divergence of one epoch, in both directions, shape [len(orders)].

    Never above the curve of one Gaussian mechanism, which an epoch is for every fixed assignment of records to steps.
    """
    if noise_multiplier == 0:
        return np.full(len(orders), np.inf)
    return _cached_renyi_curve(steps, noise_multiplier, orders)


@lru_cache(maxsize=64)
def _cached_renyi_curve(steps: int, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    at = np.array(orders)
    gaussian = at / (2 * noise_multiplier**2)
    if steps == 1 or noise_multiplier < SMALLEST_NOISE:
        return gaussian
    near = at <= LARGEST_ORDER
    if not near.any():
        return gaussian
    moments = np.maximum(
        _log_moment_for_removed_record(steps, noise_multiplier, at[near]),
        _log_moment_for_added_record(steps, noise_multiplier, at[near]),
    )
    bound = (moments + MARGIN * _magnitude_of_log_moment_summands(steps, noise_multiplier, at[near])) / (at[near] - 1)
    gaussian[near] = np.minimum(gaussian[near], np.maximum(bound, 0.0))
    return gaussian


def _magnitude_of_log_moment_summands(steps: int, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """The size of the logarithms that a log-moment is the sum of."""
    return np.asarray(1 + orders * math.log(steps) + gammaln(orders + 1) + (orders / noise_multiplier) ** 2)


def _log_moment_for_removed_record(steps: int, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """ln E[X^order], by chords between integers."""
    powers = np.arange(math.ceil(orders.max()) + 1)
    one = powers * (powers - 1) / (2 * noise_multiplier**2) - gammaln(powers + 1)
    coefficients = _log_coefficients_of_power(one, steps)
    moments = coefficients + gammaln(powers + 1) - powers * math.log(steps)
    moments[:2] = 0.0
    return np.asarray(np.interp(orders, powers, moments))


def _log_coefficients_of_power(series: np.ndarray, exponent: int) -> np.ndarray:
    """Logarithms of the coefficients of a power of a series with positive coefficients, given by their logarithms."""
    result = np.full(len(series), -np.inf)
    result[0] = 0.0
    while exponent:
        if exponent % 2:
            result = _log_coefficients_of_product(result, series)
        exponent //= 2
        if exponent:
            series = _log_coefficients_of_product(series, series)
    return result


def _log_coefficients_of_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Logarithms of the coefficients of a product of two series, up to their length."""
    place = np.arange(len(left))
    apart = place[:, None] - place[None, :]
    terms = np.where(apart >= 0, left[None, :] + right[np.maximum(apart, 0)], -np.inf)
    return np.asarray(logsumexp(terms, axis=1))


def _log_moment_for_added_record(steps: int, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """ln E[X^(1 - order)], from above; infinity where the nodes, or the bounds beyond them, do not decide it."""
    logs = np.arange(-60.0, 40.0 + math.log(steps), NODES)
    decay, slope = _log_laplace_transform_and_slope(logs - math.log(steps), noise_multiplier)
    density = logs + (steps - 1) * decay + slope
    inner = (orders - 1)[:, None] * logs + density
    integral = logsumexp(inner, axis=1) + math.log(NODES)
    covered = np.maximum(inner[:, 0], inner[:, -1]) < integral + NEGLIGIBLE
    return np.where(covered, integral - gammaln(orders), np.inf)


def _log_laplace_transform_and_slope(logs: np.ndarray, noise_multiplier: float) -> tuple[np.ndarray, np.ndarray]:
    """ln E[exp(-v Y)] and ln E[Y exp(-v Y)] at v = exp(logs), from above.

    Beyond the nodes exp(-v Y) is at most 1, and Y there has at most the mean `BEYOND`: its density times Y is a normal
    density moved by 1 / s, which the nodes cover too.
    """
    normals = np.arange(-FARTHEST, FARTHEST + 1 / noise_multiplier + NORMAL_NODES, NORMAL_NODES)
    log_y = normals / noise_multiplier - 1 / (2 * noise_multiplier**2)
    weights = -(normals**2) / 2 - logsumexp(-(normals**2) / 2)
    exponent = -np.exp(np.minimum(logs[:, None] + log_y, 700.0))
    decay = logsumexp(exponent + weights, axis=1)
    small = logs < 0  # where the expectation is near 1, its distance from 1 is what counts
    decay[small] = np.log1p(np.expm1(exponent[small]) @ np.exp(weights))
    return np.logaddexp(decay, BEYOND), np.logaddexp(logsumexp(exponent + log_y + weights, axis=1), BEYOND)
