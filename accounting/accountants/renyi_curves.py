"""Renyi curves of single mechanisms, order by order, with their changes under selection and sampling.

*Source*: Mironov, Talwar, Zhang 2019 (Renyi Differential Privacy of the Sampled Gaussian Mechanism), Theorem 4 and
section 3.3, for the sampled Gaussian; Zhu and Wang 2019 (Poisson Subsampled Renyi Differential Privacy), Theorem 5, for
any sampled mechanism; Papernot and Steinke 2022, Theorems 2 and 6, for selection.

We compute fractional orders ourselves. Orders below 2 determine the price of large grids, and there the coefficients of
the paper's series alternate in sign. dp-accounting drops the signs: a valid bound, but 3 % loose on a grid of 35 runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from functools import lru_cache

import numpy as np
from scipy import special

from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson

SMALLEST_NOISE = 1e-2
"""Below this noise the series loses its precision; the result is infinity, which is an upper bound."""

SMALLEST_INTEGRATED = 0.1
"""Below this noise the integral would need too many nodes: fractional orders use the chord between integers."""

LARGEST_SUMMED = 1024
"""Larger orders are integrated; they are infinite for mechanisms that are known only by sums over smaller orders."""

LARGEST_FIXED_SIZE = 65_536
STEEPEST = 4000.0
"""Orders above this times the squared noise are infinite: they matter only for an epsilon above 2000."""

REACH = 9.0
"""Standard deviations that an integral covers on each side; less than 1e-17 of it lies outside."""

GROUPS = 8
"""The number of groups of neighbouring orders; a group is integrated over the nodes that its largest order needs."""

FEWEST = 5
"""The smallest number of orders in a group; fewer orders form fewer groups."""

ROUNDING = 1e-14
"""Added to every log-moment, relative to the summands, so that floating point never rounds a bound down."""

CENTRAL_MOMENTS = 64
CENTRAL_DIGITS = 400
LARGEST_CENTRAL_NOISE = 1e5
"""Larger noise is replaced by this: the digits suffice for central moments of about noise^-64, not for smaller ones."""

Curve = np.ndarray
"""Divergences in nats, one for each order of an accountant."""


def pure_dp_curve(epsilon: float, orders: np.ndarray) -> Curve:
    """The curve of randomised response, the largest of all epsilon-private mechanisms."""
    if not math.isfinite(epsilon):
        return np.full(len(orders), np.inf)
    yes, no = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    moments = np.logaddexp(orders * yes + (1 - orders) * no, orders * no + (1 - orders) * yes)
    return np.asarray(np.clip((moments + ROUNDING) / (orders - 1), 0.0, epsilon))


def mixture_curve(curves: Sequence[Curve], weights: Sequence[float], orders: np.ndarray) -> Curve:
    """The curve of one of several mechanisms that is drawn with these probabilities and named by the output.

    Exact for each direction: the moment of the laws on pairs (draw, output) is the mean of the mechanisms' moments.
    """
    logs = [math.log(weight) + (orders - 1) * curve for curve, weight in zip(curves, weights, strict=True)]
    moments = np.logaddexp.reduce(logs, axis=0)
    return np.asarray(np.clip((moments + ROUNDING * (1 + np.abs(moments))) / (orders - 1), 0.0, np.max(curves, axis=0)))


def poisson_sampled_curve(rate: float, orders: np.ndarray, curve_at: Callable[[np.ndarray], Curve]) -> Curve:
    """The curve of any mechanism on a Poisson sample with sample rate `rate`.

    `curve_at` computes the mechanism's own curve at other orders.
    """
    if rate == 1:
        return curve_at(orders)
    near = orders <= LARGEST_SUMMED
    integers = np.arange(2, int(np.ceil(orders[near].max())) + 1)
    inner = (integers - 1) * curve_at(integers.astype(float))
    return _curve_with_infinity_outside_mask(
        near,
        _curve_from_integer_log_moments(orders[near], lambda order: _poisson_sampled_log_moment(rate, order, inner)),
    )


def _curve_with_infinity_outside_mask(near: np.ndarray, curve: Curve) -> Curve:
    """The curve at all orders: `curve` at the orders under the mask `near`, infinity at others."""
    whole = np.full(len(near), np.inf)
    whole[near] = curve
    return whole


def _poisson_sampled_log_moment(rate: float, order: int, inner: np.ndarray) -> float:
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


def negative_binomial_selection_curve(curve: Curve, orders: np.ndarray, tries: NegativeBinomial) -> Curve:
    """The best of K runs, K truncated negative binomial: each order a uses the best order b for the second term.

    b = 1 is allowed and costs ln(1 / gamma), for every finite divergence there.
    """
    if tries.gamma == 1:
        return curve
    second = (1 - 1 / orders) * curve - math.log(tries.gamma) / orders
    penalty = (1 + tries.eta) * min(-math.log(tries.gamma), float(second.min()))
    return np.asarray(curve + penalty + math.log(tries.mean) / (orders - 1))


def poisson_selection_curve(
    curve: Curve, orders: np.ndarray, tries: Poisson, delta_of: Callable[[np.ndarray], np.ndarray]
) -> Curve:
    """The best of K runs, K Poisson; `delta_of` is the run's own privacy profile.

    The code adds exp(-mean) to the theorem's moment, for the outcome without any run; this matters at small means.
    """
    moments = (orders - 1) * (curve + tries.mean * delta_of(np.log1p(1 / (orders - 1)))) + math.log(tries.mean)
    return np.asarray(np.logaddexp(moments, -tries.mean) / (orders - 1))


@lru_cache(maxsize=4096)
def without_replacement_gaussian_curve(rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> Curve:
    """A Gaussian step on a fixed-size sample, replace one; `noise_multiplier` is the noise over the sensitivity.

    Cached, because a page asks for the curve of every run.

    *Source*: Wang, Balle, Kasiviswanathan 2019 (Subsampled Renyi Differential Privacy and Analytical Moments
    Accountant), Theorem 9.
    """
    if noise_multiplier < SMALLEST_NOISE:
        return np.full(len(orders), np.inf)
    if rate == 1:
        return np.array(orders) / (2 * noise_multiplier**2)
    noise, at = min(noise_multiplier, LARGEST_CENTRAL_NOISE), np.array(orders)
    near = at <= max(LARGEST_SUMMED, min(LARGEST_FIXED_SIZE, STEEPEST * noise**2))
    return _curve_with_infinity_outside_mask(
        near, _curve_from_integer_log_moments(at[near], lambda order: _fixed_size_sample_log_moment(rate, noise, order))
    )


def _curve_from_integer_log_moments(orders: np.ndarray, moment: Callable[[int], float]) -> Curve:
    """A curve from its log-moments at integers; the chord between them is above, because log-moments are convex."""
    below, above = np.floor(orders).astype(int), np.ceil(orders).astype(int)
    at = {order: moment(order) if order > 1 else 0.0 for order in {*below.tolist(), *above.tolist()}}
    low, high = np.array([at[order] for order in below]), np.array([at[order] for order in above])
    rise = np.subtract(high, low, out=np.zeros(len(orders)), where=np.isfinite(high))
    return np.asarray(np.where(np.isfinite(high), low + (orders - below) * rise, np.inf) / (orders - 1))


def _fixed_size_sample_log_moment(rate: float, noise: float, order: int) -> float:
    """The log-moment at an integer order; each term uses the smaller of two bounds on E|p/q - 1|^j."""
    j = np.arange(2, order + 1)
    loose = math.log(2) + (j - 1) * j / (2 * noise**2)
    central = _log_central_moments(noise)
    tight = np.full(len(j), np.inf)
    for place, power in enumerate(j[: len(central) - 2].tolist()):
        low, high = 2 * (power // 2), 2 * ((power + 1) // 2)
        tight[place] = math.log(4) + (central[low] + central[high]) / 2
    terms = j * math.log(rate) + _log_binomial(order, j) + np.minimum(loose, tight)
    return float(special.logsumexp(np.append(terms, 0.0))) + ROUNDING


@lru_cache(maxsize=64)
def _log_central_moments(noise: float) -> tuple[float, ...]:
    """ln E_q[(p/q - 1)^j] of a Gaussian mechanism for even j, 0 for odd j; alternating sums need many digits."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = CENTRAL_DIGITS, MAX_EMAX, MIN_EMIN
        exact = [(Decimal(i * (i - 1)) / (2 * Decimal(noise) ** 2)).exp() for i in range(CENTRAL_MOMENTS + 1)]
        sums = [
            sum(((-1) ** (j - i) * math.comb(j, i) * exact[i] for i in range(j + 1)), Decimal(0))
            for j in range(0, CENTRAL_MOMENTS + 1, 2)
        ]
        logs = [float(total.ln()) if total > 0 else math.inf for total in sums]
    return tuple(logs[j // 2] if j % 2 == 0 else 0.0 for j in range(CENTRAL_MOMENTS + 1))


@lru_cache(maxsize=4096)
def sampled_gaussian_curve(sample_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> Curve:
    """Renyi divergences of one Poisson-sampled Gaussian step; cached, because grids price the same steps many times.

    >>> sampled_gaussian_curve(1.0, 2.0, (8.0, 32.0)).tolist()
    [1.0, 4.0]
    """
    curve = _compute_sampled_gaussian_curve(sample_rate, noise_multiplier, orders)
    curve.setflags(write=False)
    return curve


def _compute_sampled_gaussian_curve(rate: float, noise: float, orders: tuple[float, ...]) -> Curve:
    at = np.array(orders)
    if rate == 1:
        return at / (2 * noise**2)
    if noise < SMALLEST_NOISE:
        return np.full(len(at), np.inf)
    near = at <= LARGEST_SUMMED
    if noise < SMALLEST_INTEGRATED:
        integers = tuple(float(order) for order in range(2, math.ceil(at[near].max()) + 1))
        moments = _binomial_log_moments(rate, noise, integers)
        return _curve_with_infinity_outside_mask(
            near, _curve_from_integer_log_moments(at[near], lambda order: float(moments[order - 2]))
        )
    moments = np.full(len(at), np.inf)
    whole = near & (at == np.floor(at))
    if whole.any():
        moments[whole] = _binomial_log_moments(rate, noise, tuple(at[whole]))
    for mask in (near & ~whole, ~near & (at <= STEEPEST * noise**2)):
        groups = np.array_split(at[mask], max(1, min(GROUPS, int(mask.sum()) // FEWEST)))
        moments[mask] = np.concatenate([_integrated_log_moments(rate, noise, group) for group in groups])
    return np.asarray(moments / (at - 1))


def _binomial_log_moments(rate: float, noise: float, orders: tuple[float, ...]) -> np.ndarray:
    """Log-moments at integer orders, with the sums of all orders in one array.

    *Source*: Mironov, Talwar, Zhang 2019, section 3.3, equation for integer orders.
    """
    terms = _order_dependent_binomial_terms(orders)
    logs = (
        terms.log_binomial
        + terms.successes * math.log(rate)
        + terms.failures * math.log1p(-rate)
        + terms.pairs / noise**2
    )
    largest = np.maximum.reduceat(logs, terms.starts)
    sums = np.add.reduceat(np.exp(logs - np.repeat(largest, terms.sizes)), terms.starts)
    return _log_moments_plus_rounding_error(largest + np.log(sums), rate, np.array(orders))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Terms:
    """The parts of the binomial sums of several orders, concatenated, that depend only on the orders."""

    starts: np.ndarray
    sizes: np.ndarray
    successes: np.ndarray
    failures: np.ndarray
    pairs: np.ndarray
    log_binomial: np.ndarray


@lru_cache(maxsize=8)
def _order_dependent_binomial_terms(orders: tuple[float, ...]) -> _Terms:
    sizes = np.array(orders).astype(int) + 1
    successes = np.concatenate([np.arange(size, dtype=float) for size in sizes])
    order = np.repeat(np.array(orders), sizes)
    return _Terms(
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        successes=successes,
        failures=order - successes,
        pairs=successes * (successes - 1) / 2,
        log_binomial=_log_binomial(order, successes),
    )


def _integrated_log_moments(rate: float, noise: float, orders: np.ndarray) -> np.ndarray:
    """Log-moments at any orders: the integral of the likelihood ratio to each order, by the trapezoidal rule.

    *Guarantee*: relative error below 1e-15 before rounding. The integrand is analytic up to a distance d = pi noise^2
    from the real line, where it is at most exp(d^2 / (2 noise^2)) times as large. So with nodes at distance h the error
    of the rule is at most 2 exp(d^2 / (2 noise^2) - 2 pi d / h) for each d of this kind; the best d gives the exponent
    -36. Left of 0 and right of the order the integrand falls at least as fast as the Gaussian.
    *Source*: Trefethen and Weideman 2014 (The Exponentially Convergent Trapezoidal Rule), Theorem 5.1.
    """
    if len(orders) == 0:
        return np.zeros(0)
    spacing = 0.74 * noise if noise > 2.7 else 1 / (1.83 / noise**2 + 0.25)
    nodes = np.arange(-REACH * noise, orders.max() + REACH * noise + spacing, spacing)
    losses = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * nodes - 1) / (2 * noise**2))
    weights = -(nodes**2) / (2 * noise**2) + math.log(spacing / (noise * math.sqrt(2 * math.pi)))
    logs = np.multiply.outer(orders, losses) + weights
    largest = logs.max(axis=1)
    return _log_moments_plus_rounding_error(largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1)), rate, orders)


def _log_moments_plus_rounding_error(moments: np.ndarray, rate: float, orders: np.ndarray) -> np.ndarray:
    """Log-moments plus an upper bound on the rounding error of their summands."""
    largest_summand = np.abs(moments) + orders * max(-math.log(rate), -math.log1p(-rate))
    return np.asarray(np.maximum(0.0, moments) + ROUNDING * (1 + largest_summand))


def _log_binomial(order: float | np.ndarray, i: np.ndarray) -> np.ndarray:
    return np.asarray(special.gammaln(order + 1) - special.gammaln(i + 1) - special.gammaln(order - i + 1))
