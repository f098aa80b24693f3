"""Renyi divergences of single mechanisms, order by order, and what selection and sampling make of a curve.

*Source*: Mironov, Talwar, Zhang 2019 (Renyi Differential Privacy of the Sampled Gaussian Mechanism), section 3.3 for
the sampled Gaussian at integer and fractional orders; Zhu and Wang 2019 (Poisson Subsampled Renyi Differential
Privacy), Theorem 5, for any sampled mechanism; Papernot and Steinke 2022, Theorems 2 and 6, for selection.

The series is our own because orders below 2 decide the price of large grids, and there the binomial coefficients
alternate in sign: dp-accounting drops the signs, a valid bound that is 3 % loose on a grid of 35 runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from scipy import special

from accounting.tries import NegativeBinomial, Poisson

SMALLEST_NOISE = 1e-2
"""Below this the series loses its digits; the answer is infinity, which is an upper bound."""

ROUNDING = 1e-14
"""Added to every log-moment, so that floating point never rounds a bound down."""


CENTRAL_MOMENTS = 64
CENTRAL_DIGITS = 400

Curve = np.ndarray
"""Divergences in nats, one for each order of an accountant."""


def pure(epsilon: float, orders: np.ndarray) -> Curve:
    """The curve of randomised response, which no epsilon-private mechanism exceeds."""
    if not math.isfinite(epsilon):
        return np.full(len(orders), np.inf)
    yes, no = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    moments = np.logaddexp(orders * yes + (1 - orders) * no, orders * no + (1 - orders) * yes)
    return np.asarray(np.clip((moments + ROUNDING) / (orders - 1), 0.0, epsilon))


def sampled(rate: float, orders: np.ndarray, curve_at: Callable[[np.ndarray], Curve]) -> Curve:
    """Any mechanism on records that take part independently at `rate`.

    `curve_at` gives the mechanism's own curve at other orders.
    """
    if rate == 1:
        return curve_at(orders)
    integers = np.arange(2, int(np.ceil(orders.max())) + 1)
    inner = (integers - 1) * curve_at(integers.astype(float))
    return _between_integers(orders, lambda order: _sampled_moment(rate, order, inner))


def _sampled_moment(rate: float, order: int, inner: np.ndarray) -> float:
    """The log-moment at an integer order; `inner[l - 2]` is (l - 1) times the divergence at order l."""
    runs = np.arange(2, order + 1)
    weights = np.where(runs == 2, 0.0, math.log(3))
    terms = (
        _log_binomial(order, runs)
        + (order - runs) * math.log1p(-rate)
        + runs * math.log(rate)
        + inner[: order - 1]
        + weights
    )
    first = (order - 1) * math.log1p(-rate) + math.log1p(rate * (order - 1))
    return max(0.0, float(special.logsumexp(np.append(terms, first)))) + ROUNDING


def selected(curve: Curve, orders: np.ndarray, tries: NegativeBinomial) -> Curve:
    """The best of K runs, K truncated negative binomial: each order a takes the best b for its second term."""
    if tries.gamma == 1:
        return curve
    penalty = (1 + tries.eta) * np.min((1 - 1 / orders) * curve - math.log(tries.gamma) / orders)
    return np.asarray(curve + penalty + math.log(tries.mean) / (orders - 1))


def selected_poisson(curve: Curve, orders: np.ndarray, tries: Poisson, delta_of: Callable[[float], float]) -> Curve:
    """The best of K runs, K Poisson; `delta_of` is the run's own privacy profile."""
    deltas = np.array([delta_of(float(np.log1p(1 / (order - 1)))) for order in orders])
    return np.asarray(np.maximum(0, curve + tries.mean * deltas + math.log(tries.mean) / (orders - 1)))


def without_replacement(rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> Curve:
    """A Gaussian step on a fixed-size sample, replace one; `noise_multiplier` is the noise over the sensitivity.

    *Source*: Wang, Balle, Kasiviswanathan 2019 (Subsampled Renyi Differential Privacy and Analytical Moments
    Accountant), Theorem 9.
    """
    if noise_multiplier == 0:
        return np.full(len(orders), np.inf)
    if rate == 1:
        return np.array(orders) / (2 * noise_multiplier**2)
    return _between_integers(np.array(orders), lambda order: _fixed_size_moment(rate, noise_multiplier, order))


def _between_integers(orders: np.ndarray, moment: Callable[[int], float]) -> Curve:
    """A curve from its log-moments at integers: between them the chord is above, since log-moments are convex."""
    below = np.floor(orders).astype(int)
    at = {order: moment(order) if order > 1 else 0.0 for order in {*below.tolist(), *(below + 1).tolist()}}
    low, high = np.array([at[order] for order in below]), np.array([at[order + 1] for order in below])
    return np.asarray(np.where(orders == below, low, low + (orders - below) * (high - low)) / (orders - 1))


def _fixed_size_moment(rate: float, noise: float, order: int) -> float:
    """The log-moment at an integer order; each term takes the smaller of two bounds on E|p/q - 1|^j."""
    j = np.arange(2, order + 1)
    loose = math.log(2) + (j - 1) * j / (2 * noise**2)
    central = _central_moments(noise)
    tight = np.full(len(j), np.inf)
    for place, power in enumerate(j[: len(central) - 2].tolist()):
        low, high = 2 * (power // 2), 2 * ((power + 1) // 2)
        tight[place] = math.log(4) + (central[low] + central[high]) / 2
    terms = j * math.log(rate) + _log_binomial(order, j) + np.minimum(loose, tight)
    return float(special.logsumexp(np.append(terms, 0.0))) + ROUNDING


@lru_cache(maxsize=64)
def _central_moments(noise: float) -> tuple[float, ...]:
    """ln E_q[(p/q - 1)^j] of a Gaussian mechanism for even j, elsewhere 0: alternating sums, hence the many digits."""
    with localcontext() as context:
        context.prec = CENTRAL_DIGITS
        exact = [(Decimal(i * (i - 1)) / (2 * Decimal(noise) ** 2)).exp() for i in range(CENTRAL_MOMENTS + 1)]
        sums = [
            sum(((-1) ** (j - i) * math.comb(j, i) * exact[i] for i in range(j + 1)), Decimal(0))
            for j in range(0, CENTRAL_MOMENTS + 1, 2)
        ]
        logs = [float(total.ln()) if total > 0 else -math.inf for total in sums]
    return tuple(logs[j // 2] if j % 2 == 0 else 0.0 for j in range(CENTRAL_MOMENTS + 1))


@lru_cache(maxsize=4096)
def sampled_gaussian_curve(sample_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> Curve:
    """`sampled_gaussian` at each order, kept, since grids ask for the same steps again and again."""
    curve = np.array([sampled_gaussian(sample_rate, noise_multiplier, order) for order in orders])
    curve.setflags(write=False)
    return curve


@lru_cache(maxsize=65536)
def sampled_gaussian(sample_rate: float, noise_multiplier: float, order: float) -> float:
    """Renyi divergence of one Poisson-sampled Gaussian step at `order` > 1, in nats, add or remove one.

    >>> round(sampled_gaussian(1.0, 2.0, 8.0), 9)
    1.0
    """
    if sample_rate == 1:
        return order / (2 * noise_multiplier**2)
    if noise_multiplier < SMALLEST_NOISE:
        return math.inf
    moment = _integer_moment if order == int(order) else _fractional_moment
    return max(0.0, moment(sample_rate, noise_multiplier, order) + ROUNDING) / (order - 1)


def _integer_moment(q: float, sigma: float, order: float) -> float:
    i = np.arange(int(order) + 1)
    terms = _log_binomial(order, i) + i * math.log(q) + (order - i) * math.log1p(-q) + (i * i - i) / (2 * sigma**2)
    return float(special.logsumexp(terms))


def _fractional_moment(q: float, sigma: float, order: float) -> float:
    """Both halves of the series of section 3.3, with the signs of the generalised binomial coefficients.

    Beyond i = order the terms alternate and fall in size, so the sum of the first terms up to a positive one errs
    upwards: the series is cut there.
    """
    split = sigma**2 * math.log(1 / q - 1) + 0.5
    i = np.arange(_fractional_terms(order))
    j = order - i
    signs = special.gammasgn(order - i + 1)
    size = _log_binomial(order, i)
    lower = size + i * math.log(q) + j * math.log1p(-q) + (i * i - i) / (2 * sigma**2)
    lower = lower + _log_half_erfc((i - split) / (math.sqrt(2) * sigma))
    upper = size + j * math.log(q) + i * math.log1p(-q) + (j * j - j) / (2 * sigma**2)
    upper = upper + _log_half_erfc((split - j) / (math.sqrt(2) * sigma))
    total, sign = special.logsumexp(np.concatenate([lower, upper]), b=np.concatenate([signs, signs]), return_sign=True)
    return float(total) if sign > 0 and math.isfinite(total) else math.inf


def _fractional_terms(order: float) -> int:
    """Far past `order`, and the last term is positive: the sign of term i is that of Gamma(order - i + 1)."""
    return int(order) + 300


def _log_binomial(order: float, i: np.ndarray) -> np.ndarray:
    return np.asarray(special.gammaln(order + 1) - special.gammaln(i + 1) - special.gammaln(order - i + 1))


def _log_half_erfc(x: np.ndarray) -> np.ndarray:
    """log(erfc(x) / 2), without underflow."""
    return np.asarray(special.log_ndtr(-x * math.sqrt(2)))
