"""Recomputes the price that a release of dpsweep claims: `python price_check.py [FOLDER]`.

Needs Python and numpy, and nothing of dpsweep. In the order of this file: losses of Gaussian steps on a lattice, the
best of several tries, the price of an event, and the verdicts on a release. How to read them stands before the last.
"""

from __future__ import annotations

"""Upper bounds on delta for compositions of Gaussian steps, by their losses on a lattice."""



import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

REACH, DEGREE, MOST_CELLS, MOST_POINTS = 14.0, 4, 200_000, 1 << 23
"""Standard deviations of outputs that cells cover, nodes of a cell, and the largest numbers of cells and places."""
BEYOND, FLOOR, FARTHEST = 2e-44, 1e-36, 600.0
"""The normal mass outside of the cells; smaller deltas and larger epsilons are not told apart."""
LEVEL, MARGIN = 32 * 2.0**-53, 1e-14
"""The rounding of a level of a Fourier transform, and of a mass."""

TOO_FAR = "losses that spread too far for this program's lattice"

Array = np.ndarray
Curve = Callable[[Array], Array]
"""Upper bounds on delta at any real epsilons [n], in one direction P against Q of a pair of neighbours' outputs."""
Steps = tuple[str, float, float, int]
"""Gaussian steps: the kind of their pair, the sampling rate, sensitivity over noise, and their number."""


class NotRecomputed(Exception):
    """An event for which this program has no tight bound."""


def gaussian_delta_curve(mu: float) -> Curve:
    """A Gaussian mechanism of sensitivity over noise `mu`. Balle and Wang 2018, Theorem 8."""

    def curve(epsilons: Array) -> Array:
        near, far = (_normal_cdf(sign * mu / 2 - epsilons / mu) for sign in (1, -1))
        scaled = np.exp(np.minimum(epsilons, FARTHEST)) * far
        return np.asarray(np.clip(near - scaled + 1e-13 * (near + scaled) + 1e-300, 0.0, 1.0))

    return curve


def delta_curve_of_one_sampled_step(rate: float, mu: float, direction: int) -> Curve:
    """One Poisson-sampled Gaussian step with a rate below 1, in closed form from the Gaussian mechanism's curve G.

    With t = exp(e), u = 1 + (t - 1) / rate, a mixture with the record against none has delta(e) = rate G(ln u), and
    1 - t where u <= 0: Balle, Barthe, Gaboardi 2018, Theorem 2. None against the mixture is its mirror image by
    delta(e) = 1 - t + t delta'(-e), G(e) = 1 - exp(e) + exp(e) G(-e): (1 - t (1 - rate)) G(-ln u'), u' at -e, or 0.
    """
    whole = gaussian_delta_curve(mu)

    def deltas_with_record_present(points: Array) -> Array:
        deltas = -np.expm1(np.minimum(points, 0.0)) + 1e-15
        mixed = np.expm1(points) > -rate
        with np.errstate(over="ignore"):
            deltas[mixed] = rate * whole(np.log1p(np.expm1(points[mixed]) / rate)) * (1 + MARGIN)
        return np.asarray(np.minimum(1.0, deltas))

    def deltas_with_record_absent(points: Array) -> Array:
        deltas, mixed = np.zeros(len(points)), np.expm1(-points) > -rate
        at = points[mixed]
        deltas[mixed] = -np.expm1(at + math.log1p(-rate)) * whole(-np.log1p(np.expm1(-at) / rate)) + 1e-15
        return np.asarray(np.clip(deltas, 0.0, 1.0))

    return deltas_with_record_present if direction == 0 else deltas_with_record_absent


def step_losses_and_masses(kind: str, rate: float, mu: float, direction: int, width: float) -> tuple[Array, Array]:
    """Losses ln dP/dQ at the nodes and both ends of cells of outputs, [cells, DEGREE + 2], and the nodes' P-masses.

    The record is in P in direction 0, in Q in direction 1. Poisson-sampled pairs: Zhu, Dong, Wang 2022, Theorem 11.
    `fixed` is a batch of fixed size under replacement: the curve of Balle, Barthe, Gaboardi 2018, Theorem 9, is that of
    the sampled pair's losses above 0, of their mirror image below, and of the rest at 0.
    """
    start = mu / 2 if kind == "fixed" else -REACH
    edges = np.linspace(start, REACH + mu, math.ceil((REACH + mu - start) / width) + 1)
    nodes, shares = np.polynomial.legendre.leggauss(DEGREE)
    half = (edges[1] - edges[0]) / 2
    outputs = np.column_stack([(edges[:-1] + half)[:, None] + half * nodes, edges[:-1], edges[1:]])
    areas = shares * half / math.sqrt(2 * math.pi)
    without, present = (np.exp(-((outputs[:, :-2] - centre) ** 2) / 2) * areas for centre in (0.0, mu))
    ratio, mirrored = (
        np.logaddexp(np.log1p(-rate) if rate < 1 else -np.inf, math.log(rate) + mu * at - mu**2 / 2)
        for at in (outputs, -outputs)
    )
    inside = (1 - rate) * without + rate * present
    if kind == "replaced":
        return ratio - mirrored, inside
    if kind == "sampled":
        return (ratio, inside) if direction == 0 else (-ratio, without)
    rest = np.zeros((1, DEGREE))
    rest[0, 0] = max(0.0, 1 - float(inside.sum() + without.sum()))
    return np.vstack([ratio, -ratio, np.zeros((1, DEGREE + 2))]), np.vstack([inside, without, rest])


@dataclass(frozen=True)
class Tilt:
    """Losses weighted by exp(theta loss): log-moment, mean, deviation, the curve, and the epsilons that it is for."""

    theta: float
    log: float
    mean: float
    deviation: float
    low: float
    high: float
    delta: Curve

    @property
    def chernoff_bound_at_mean(self) -> float:
        """Chernoff's bound at the mean."""
        return math.exp(min(0.0, self.log - self.theta * self.mean))


class LossLattice:
    """The curve of a composition in one direction, by the sum of its independent losses on a lattice.

    Each cell of outputs is moved to two points of the lattice around its losses, with its mass under P and under Q
    kept: exp(-loss) spreads and keeps its mean, so E (1 - exp(e - loss))_+ grows (Doroshenko et al. 2022). The sum is
    taken after weighting by exp(theta loss): with K the log-moment at theta, delta(e) = exp(K) E' exp(-theta loss)
    (1 - exp(e - loss))_+ under the weighted law, so that rounding stays small beside delta (saddle point). An entry's
    error is at most the mean error of the transform's values; losses above the window are bounded by Chernoff.
    """

    def __init__(self, steps: Sequence[Steps], direction: int) -> None:
        self.count = sum(step[3] for step in steps)
        self.infinite = BEYOND * self.count
        spread = sum(_variance(*step_losses_and_masses(*step[:3], direction, 0.05)) * step[3] for step in steps)
        if not 0 < spread < math.inf:
            raise NotRecomputed(TOO_FAR)
        deviation = math.sqrt(spread)
        added = min(6e-4 / (1 + 10 / deviation), 1e-3 * spread)  # the variance that the lattice adds
        self.step = max(math.sqrt(added / self.count), 60 * deviation / MOST_POINTS)
        self.parts = [
            (
                *self._first_index_and_masses_on_lattice(
                    *step_losses_and_masses(kind, rate, mu, direction, self._output_cell_width(mu))
                ),
                count,
            )
            for kind, rate, mu, count in steps
        ]
        self.tilts = [self._tilt_at_theta(0.0)]

    def delta(self, epsilons: Array) -> Array:
        """Upper bounds at any real epsilons [n]: the least over a sequence of tilts, and over Chernoff's bounds."""
        while self.tilts[-1].mean < epsilons.max(initial=-math.inf) and self.tilts[-1].chernoff_bound_at_mean > FLOOR:
            following = self._next_larger_tilt_or_none(self.tilts[-1])
            if following is None:
                break
            self.tilts.append(following)
        bounds = np.ones(len(epsilons))
        for tilt in self.tilts:
            inside = np.flatnonzero((epsilons >= tilt.low) & (epsilons <= tilt.high))
            bounds[inside] = np.minimum(bounds[inside], tilt.delta(epsilons[inside]))
            bounds = np.minimum(bounds, np.exp(np.minimum(0.0, tilt.log - tilt.theta * epsilons)) + self.infinite)
        return bounds

    def _next_larger_tilt_or_none(self, tilt: Tilt) -> Tilt | None:
        """The tilt from which this one has a relative entropy of 3 to 6; None if it would be beyond all losses."""
        shortest, longest, shift = 0.0, math.inf, 3 / tilt.deviation
        for _ in range(60):
            log, mean, _ = self._log_moment_and_derivatives(tilt.theta + shift)
            entropy = tilt.log - log + shift * mean
            if 3 <= entropy <= 6:
                return self._tilt_at_theta(tilt.theta + shift)
            shortest, longest = (shortest, shift) if entropy > 6 else (shift, longest)
            shift = 2 * shift if longest == math.inf else (shortest + longest) / 2
            if shift * tilt.deviation > 1e4:
                break
        return None

    def _output_cell_width(self, mu: float) -> float:
        return min(0.01, max(self.step / mu, 2 * (REACH + mu) / MOST_CELLS))

    def _first_index_and_masses_on_lattice(self, at: Array, weights: Array) -> tuple[int, Array]:
        """The first place on the lattice, and the masses from there on."""
        low = np.floor(at[:, -2:].min(axis=1) / self.step)
        high = np.maximum(np.ceil(at[:, -2:].max(axis=1) / self.step), low + 1)
        mass = weights.sum(axis=1)
        above = -(weights * np.expm1((low * self.step)[:, None] - at[:, :-2])).sum(axis=1)
        up = np.clip(above / np.maximum(-mass * np.expm1((low - high) * self.step), 1e-300) * (1 + 1e-13) + 1e-14, 0, 1)
        if not high.max() - low.min() <= 2 * MOST_POINTS:
            raise NotRecomputed(TOO_FAR)
        first = int(low.min())
        places = np.concatenate([low, high]).astype(np.int64) - first
        return first, np.bincount(places, np.concatenate([mass * (1 - up), mass * up]))

    def _weighted_losses_and_log_moment(self, first: int, masses: Array, theta: float) -> tuple[Array, Array, float]:
        """Losses, weighted probabilities and the log-moment of one step."""
        at = self.step * (first + np.arange(len(masses)))
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + theta * at
        weights = np.exp(logs - logs.max())
        return at, weights / weights.sum(), float(logs.max()) + math.log(weights.sum())

    def _log_moment_and_derivatives(self, theta: float) -> tuple[float, float, float]:
        """The log-moment of all steps at theta, and its first two derivatives."""
        log = mean = variance = 0.0
        for first, masses, count in self.parts:
            at, weights, one = self._weighted_losses_and_log_moment(first, masses, theta)
            centre = float(at @ weights)
            log, mean = log + count * one, mean + count * centre
            variance += count * float((at - centre) ** 2 @ weights)
        return log, mean, variance

    def _tilt_at_theta(self, theta: float) -> Tilt:
        log, mean, variance = self._log_moment_and_derivatives(theta)
        if not 0 < variance < math.inf:
            raise NotRecomputed(TOO_FAR)
        shifts = [scale / math.sqrt(variance) for scale in (0.5, 1, 2, 4, 8)]
        ahead = {
            theta + shift: (self._log_moment_and_derivatives(theta + shift)[0] - log + 40) / shift for shift in shifts
        }
        far = min(ahead, key=ahead.__getitem__)
        behind = min((self._log_moment_and_derivatives(theta - shift)[0] - log + 40) / shift for shift in shifts)
        if not (ahead[far] + behind) / self.step < 2 * MOST_POINTS:
            raise NotRecomputed(TOO_FAR)
        first, last = math.floor(-behind / self.step), math.ceil(ahead[far] / self.step)
        size = 1 << max(8, (last - first).bit_length())
        if size > 2 * MOST_POINTS or log - theta * mean > FARTHEST:
            raise NotRecomputed(TOO_FAR)
        level, product = LEVEL * (math.log2(size) + 4), np.zeros(size // 2 + 1, dtype=complex)
        modulus, larger = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
        for start, masses, count in self.parts:
            weights = self._weighted_losses_and_log_moment(start, masses, theta)[1]
            values = np.fft.rfft(np.bincount((start + np.arange(len(masses))) % size, weights, minlength=size))
            values = np.where(np.abs(values) < 1e-30, 1e-30, values)
            product, modulus = product + count * np.log(values), modulus + count * np.log(np.abs(values))
            larger = larger + count * np.log(np.abs(values) + level)
        entry = float(np.mean(np.exp(larger) - np.exp(modulus)) + level * np.mean(np.exp(modulus))) + 1e-25
        masses = np.roll(np.maximum(np.fft.irfft(np.exp(product), size), 0.0), -(first % size))
        at = self.step * (first + np.arange(size))
        near = theta * np.abs(at - mean) < 500
        at, masses = at[near], masses[near]
        missed = math.exp(min(0.0, self._log_moment_and_derivatives(far)[0] - far * at[-1])) + self.infinite
        weights = masses * np.exp(-theta * (at - mean))
        sums = [
            np.append(np.cumsum(part[::-1])[::-1], 0.0)
            for part in (weights, weights * np.exp(np.minimum(mean - at, FARTHEST)))
        ]
        scale = math.exp(log - theta * mean)
        rounding = scale * entry * (min(size, 1 / (self.step * theta * (theta + 1)) if theta else size) + 1)
        steepest = max(
            float(np.abs(self.step * (start + np.array([0, len(one)]))).max()) for start, one, _ in self.parts
        )
        growth = math.exp(self.count * MARGIN * (2 + theta * steepest))

        def delta_curve(points: Array) -> Array:
            places = np.searchsorted(at, points, side="right")
            mass = scale * sums[0][places]
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.maximum(0.0, mass - scale * np.exp(points - mean) * sums[1][places])
                return np.asarray(
                    growth * (values + rounding * np.exp(-theta * (points - mean)) + 1e-12 * mass + missed)
                )

        return Tilt(theta, log, mean, math.sqrt(variance), float(at[0]), float(at[-1]), delta_curve)


def _variance(at: Array, weights: Array) -> float:
    mean = float((at[:, :-2] * weights).sum())
    return float(((at[:, :-2] - mean) ** 2 * weights).sum())


def _normal_cdf(at: Array) -> Array:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in at])

"""Upper bounds on epsilon by Renyi divergences, for events whose claim by RDP is below the bound by losses."""



import math
from collections.abc import Callable, Sequence

import numpy as np



SPACING, BEYOND_NODES, FARTHEST_NODE, MOST_ORDERS_STEPS = 0.25, 10.0, 20_000.0, 200
"""Distance of nodes and how far they reach, in standard deviations, the farthest, and the most kinds of step."""
COARSE, REFINED, SMALLEST_ORDER, LARGEST_ORDER = 160, 24, 1.005, 1e6
"""Orders of the first search and of the following ones, and their range."""
ROUNDING = 1e-13
"""How much a log-moment is raised, relative to its summands."""

Divergence = Callable[[Array], Array]
"""Upper bounds on the Renyi divergence at orders above 1 [n], for both directions of a pair."""


def divergence_of_gaussian_steps(steps: Sequence[tuple[str, float, float, int]]) -> Divergence:
    """Gaussian steps together. Mironov 2017, Corollary 3; Mironov, Talwar, Zhang 2019, Theorem 4, where sampled."""
    if len(steps) > MOST_ORDERS_STEPS or not {kind for kind, *_ in steps} <= {"plain", "sampled"}:
        raise NotRecomputed("no Renyi bound for these steps")

    def divergence(orders: Array) -> Array:
        total = np.zeros(len(orders))
        for kind, rate, mu, count in steps:
            plain = orders * mu**2 / 2
            sampled = kind == "sampled" and rate < 1
            total += count * (np.minimum(plain, _sampled_step_divergence(rate, mu, orders)) if sampled else plain)
        return total * (1 + ROUNDING)

    return divergence


def _sampled_step_divergence(rate: float, mu: float, orders: Array) -> Array:
    """One sampled step: the log-moment of the likelihood ratio by the trapezoidal rule, whose error is below 1e-15.

    The integrand is analytic up to pi / mu from the real line: Trefethen and Weideman 2014, Theorem 5.1.
    """
    spacing, divergences = SPACING * min(1.0, 1 / mu), np.full(len(orders), np.inf)
    for place, order in enumerate(orders):
        if order * mu > FARTHEST_NODE:
            continue
        nodes = np.arange(-BEYOND_NODES, order * mu + BEYOND_NODES + spacing, spacing)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + mu * nodes - mu**2 / 2)
        logs = order * ratio - nodes**2 / 2 + math.log(spacing / math.sqrt(2 * math.pi))
        moment = float(np.logaddexp.reduce(logs))
        size = abs(moment) + order * max(-math.log(rate), -math.log1p(-rate))
        divergences[place] = (max(0.0, moment) + ROUNDING * (1 + size)) / (order - 1)
    return divergences


def pure_divergence(epsilon: float) -> Divergence:
    """Randomised response, the largest of all epsilon-private mechanisms."""
    yes, no = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))

    def divergence(orders: Array) -> Array:
        moments = np.logaddexp(orders * yes + (1 - orders) * no, orders * no + (1 - orders) * yes)
        return np.asarray(np.minimum(epsilon, (np.maximum(0.0, moments) + ROUNDING * (1 + orders)) / (orders - 1)))

    return divergence


def negative_binomial_search_divergence(inner: Divergence, eta: float, gamma: float, mean: float) -> Divergence:
    """The best of K runs, K truncated negative binomial. Papernot and Steinke 2022, Theorem 2."""
    second = least_over_orders(lambda orders: (1 - 1 / orders) * inner(orders) - math.log(gamma) / orders)
    penalty = (1 + eta) * min(-math.log(gamma), second)
    return lambda orders: inner(orders) + penalty + math.log(mean) / (orders - 1)


def poisson_search_divergence(inner: Divergence, mean: float, delta_at: Callable[[Array], Array]) -> Divergence:
    """The best of K runs, K Poisson; `delta_at` bounds a run's delta. Papernot and Steinke 2022, Theorem 6.

    The outcome without any run has probability exp(-mean) on both sides, which is added to the moment.
    """

    def divergence(orders: Array) -> Array:
        moments = (orders - 1) * (inner(orders) + mean * delta_at(np.log1p(1 / (orders - 1)))) + math.log(mean)
        return np.asarray(np.logaddexp(moments, -mean) / (orders - 1))

    return divergence


def renyi_epsilon(divergence: Divergence, delta: float) -> float:
    """Epsilon at delta by the best order. Balle, Barthe, Gaboardi, Hsu, Sato 2020, Theorem 21."""

    def epsilon_at_orders(orders: Array) -> Array:
        logs = (math.log(delta) + np.log(orders)) / (orders - 1)
        return np.asarray(divergence(orders) + np.log1p(-1 / orders) - logs)

    return max(0.0, least_over_orders(epsilon_at_orders))


def least_over_orders(values: Callable[[Array], Array]) -> float:
    """The least value at orders on a grid, which is refined around the best one; each order gives a bound."""
    logs = np.linspace(math.log(SMALLEST_ORDER - 1), math.log(LARGEST_ORDER - 1), COARSE)
    least = math.inf
    for _ in range(4):
        with np.errstate(invalid="ignore"):
            found = np.nan_to_num(values(1 + np.exp(logs)), nan=np.inf)
        best = int(found.argmin())
        least = min(least, float(found[best]))
        logs = np.linspace(logs[max(0, best - 1)], logs[min(len(logs) - 1, best + 1)], REFINED)
    return least

"""Upper bounds on delta for the best of several tries, of which the winner alone is shown."""



import numpy as np



CELLS, LINES, GROWTH = 400_000, 8000, 2e-4
"""Cells of u, tangents to the trade-off curve, and the growth of ln f'(T(u)) + ln f'(u) in a cell that is kept."""


def delta_curve_of_best_try(side: Curve, slope: Curve, each: bool) -> Curve:
    """The best of K independent tries, of which the winner alone is shown; `slope` is f', E[x^K] is f.

    With T(u) the least of exp(e) u + delta(e) over e, and h(x) = sup_u (x f'(T(u)) - f'(u))_+ = sum D_i (x - x_i)_+, it
    has delta(e) <= sum D_i delta(e + ln x_i): dpsweep's docs/accounting.md, "The envelope bound". Where `each` of K
    points runs once, T is replaced by a log-concave curve above it, and ranks below the first cell are left out.
    """
    ends = np.append(1 / (1 + np.exp(-np.linspace(-75, 45, CELLS)[:-1])), 1.0)
    tops, missed = _trade_off_upper_bounds(side, ends), 0.0
    if each:
        missed = float(slope(np.ones(1))[0] * tops[0])
        x, y = np.append(np.log(ends[:-1]), 0.0), np.append(np.log(np.maximum(tops[1:], 1e-300)), 0.0)
        hull = _indices_of_lower_hull(x, -y)
        tops = np.append(np.minimum(1.0, np.exp(np.interp(np.log(ends), x[hull], y[hull]) + 1e-11))[:-1], 1.0)
    rises = np.maximum.accumulate(slope(tops)) * (1 + 1e-10)
    falls = slope(ends * (1 - MARGIN)) * (1 - 1e-10)
    growth = np.floor(np.log(np.maximum(rises, 1e-40) * np.maximum(falls, 1e-40)) / GROWTH)
    kept = np.append(np.flatnonzero(np.diff(growth) > 0), CELLS - 1)
    rises, falls = (
        np.append(0.0, rises[kept]),
        np.concatenate([[0.0], slope(np.zeros(1)) * (1 - 1e-10), falls[kept[:-1]]]),
    )
    hull = _indices_of_lower_hull(rises, falls)
    weights, gaps = np.diff(rises[hull]), np.diff(falls[hull]) - 1e-15 * falls[hull][1:]
    with np.errstate(divide="ignore"):
        shifts = np.log(np.maximum(0.0, gaps) / weights) - 1e-10
    return lambda at: np.minimum(1, np.array([side(one + shifts) @ weights for one in at]) * (1 + 1e-10) + missed)


def _trade_off_upper_bounds(side: Curve, ends: Array) -> Array:
    """Upper bounds on T at ascending ends, each by a tangent; every tangent is an upper bound."""
    reach, least = 1.0, 2 * float(side(np.array([FARTHEST / 8]))[0]) + 1e-34
    while reach < FARTHEST / 8 and float(side(np.array([reach]))[0]) > least:
        reach *= 1.25
    grid = np.linspace(-reach, reach, LINES)
    slopes, starts = np.exp(grid), side(grid)
    crossings = np.maximum.accumulate(((starts[:-1] - starts[1:]) / np.diff(slopes))[::-1])[::-1]
    nearest, tops = np.searchsorted(-crossings, -ends, side="right"), np.ones(len(ends))
    for shift in (-1, 0, 1):
        line = np.clip(nearest + shift, 0, LINES - 1)
        tops = np.minimum(tops, (slopes[line] * ends + starts[line]) * (1 + MARGIN))
    return tops


def _indices_of_lower_hull(x: Array, y: Array) -> Array:
    """Indices of the lower convex hull of points with ascending x; of points with equal x the first stays."""
    places = np.concatenate([[0], 1 + np.flatnonzero(x[1:] > np.maximum.accumulate(x)[:-1])])
    xs, ys, hull = x.tolist(), y.tolist(), [int(places[0])]
    for new in places[1:].tolist():
        while len(hull) > 1:
            last, before = hull[-1], hull[-2]
            if (ys[last] - ys[before]) * (xs[new] - xs[last]) < (ys[new] - ys[last]) * (xs[last] - xs[before]):
                break
            hull.pop()
        hull.append(new)
    return np.array(hull)


def extend_curve_to_negative_epsilon(one: Curve, other: Curve) -> Curve:
    """A direction's curve; below 0 by the other direction's: delta(-e) = 1 - exp(-e) + exp(-e) delta'(e)."""

    def extended_curve(points: Array) -> Array:
        deltas, below = np.empty(len(points)), points < 0
        deltas[~below] = one(points[~below])
        opposite = other(np.minimum(-points[below], FARTHEST))
        deltas[below] = np.exp(points[below]) * opposite - np.expm1(points[below])
        return deltas

    return extended_curve

"""The price of an event as `price.json` has it: an upper bound on epsilon at a delta."""



import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np






















REPLACE, MOST_KINDS, LEAST_NOISE = "replace_one", 2000, 1e-3
"""The adjacency under which a record is replaced, the most kinds of step in a composition, and the least noise."""

NUMBER, LOG_RATIO, TAIL = "RoundedNumberDpEvent", 2.0**-41, 1e-36
"""A rounded number, the log-ratio of its law to that of exact noise, and a tail."""

Event = Mapping[str, Any]


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


POSSIBLE: Mapping[str, Callable[[Any], bool]] = {
    "count": _is_positive_integer,
    "counts": lambda values: bool(values) and all(map(_is_positive_integer, values)),
    "limit": lambda value: value is None or _is_positive_integer(value),
    "steps": _is_positive_integer,
    "sample_size": _is_positive_integer,
    "source_dataset_size": _is_positive_integer,
    "sampling_probability": lambda value: 0 < value <= 1,
    "noise_multiplier": lambda value: 0 <= value < math.inf,
    "noise_scale": lambda value: 0 < value < math.inf,
    "mean": lambda value: 0 < value < math.inf,
    "eta": lambda value: -1 < value < math.inf,
    "gamma": lambda value: 0 < value <= 1,
    "delta2": lambda value: 0 < value < 1,
}
"""Which values a field of an event, or of a law of the number of tries, can have; nan is none of them."""


def _require_possible_numbers(event: Event) -> None:
    """Raises ValueError for a number that no mechanism has, in an event, its law, or what it samples or repeats."""
    for form in (event, event.get("tries", {}), event.get("event", {})):
        for name in form.keys() & POSSIBLE.keys():
            if isinstance(form[name], bool) or not POSSIBLE[name](form[name]):
                raise ValueError(f"Expected {name}={form[name]!r} to be that of a mechanism.")
    if "sample_size" in event and event["sample_size"] > event["source_dataset_size"]:
        raise ValueError(f"Expected sample_size={event['sample_size']} <= {event['source_dataset_size']}.")


def leaf_events_with_counts(event: Event, times: int = 1) -> list[tuple[Event, int]]:
    """The leaves of a composition with their multiplicities; raises ValueError for numbers that no mechanism has."""
    _require_possible_numbers(event)
    kind = event["type"]
    if kind == "NoOpDpEvent":
        return []
    if kind == "SelfComposedDpEvent":
        return leaf_events_with_counts(event["event"], times * event["count"])
    if kind == "ComposedDpEvent":
        return [leaf for inner in event["events"] for leaf in leaf_events_with_counts(inner, times)]
    return [(event, times)]


def _log_ratio(numbers: int, tail: float) -> float:
    """The log-ratio of so many rounded numbers except with probability d. Dwork, Rothblum, Vadhan 2010, Theorem III.3.

    (1 + exp(e)) d is at most 2 `tail` at every e <= FARTHEST.
    """
    every = numbers * LOG_RATIO
    return min(every, LOG_RATIO * math.sqrt(2 * numbers * (FARTHEST - math.log(tail))) + every * math.expm1(LOG_RATIO))


def _mechanisms_and_numbers(event: Event) -> tuple[list[tuple[Event, int]], int]:
    """The mechanisms of a composition with their multiplicities, and the rounded numbers beside them."""
    parts = leaf_events_with_counts(event)
    mechanisms = [(leaf, count) for leaf, count in parts if leaf["type"] != NUMBER]
    return mechanisms, sum(count for leaf, count in parts if leaf["type"] == NUMBER)


def delta_curves_of_event(event: Event, adjacency: str) -> list[Curve]:
    """The curve of each direction of a mechanism, or one for both: with the rounding of noise."""
    parts, numbers = _mechanisms_and_numbers(event)
    sides = _delta_curves_of_mechanisms(parts, adjacency)
    return [_rounded_curve(*pair, _log_ratio(numbers, TAIL)) for pair in zip(sides, sides[::-1], strict=True)]


def _rounded_curve(one: Curve, other: Curve, x: float) -> Curve:
    """delta(e) becomes exp(x) delta(e - 2 x), and the tail of the log-ratio."""
    extended = extend_curve_to_negative_epsilon(one, other)
    return (lambda points: np.minimum(1.0, math.exp(x) * extended(points - 2 * x) + 2 * TAIL)) if x else one


def _delta_curves_of_mechanisms(parts: Sequence[tuple[Event, int]], adjacency: str) -> list[Curve]:
    steps = [_gaussian_steps_of_leaf(leaf, count, adjacency) for leaf, count in parts]
    if all(step is not None for step in steps):
        return _curves_of_composed_steps([step for step in steps if step is not None])
    if len(parts) > 1 or parts[0][1] > 1 or parts[0][0]["type"] not in _CURVES:
        raise NotRecomputed(f"no tight bound for {' with '.join(sorted({str(leaf['type']) for leaf, _ in parts}))}")
    return _CURVES[parts[0][0]["type"]](parts[0][0], adjacency)


def _gaussian_steps_of_leaf(leaf: Event, count: int, adjacency: str) -> Steps | None:
    """A leaf as Gaussian steps; None if it has none. Replacing a record moves a sum twice as far."""
    kind, replaced, inner = leaf["type"], adjacency == REPLACE, leaf.get("event", {})
    noise = float((inner or leaf).get("noise_multiplier", math.nan))
    if noise <= LEAST_NOISE:
        raise NotRecomputed("a step with so little noise")
    if kind == "EpochDpEvent" and leaf.get("sampling_probability", 1) < 1:  # a cycle: Choquette-Choo et al. 2023
        return "replaced" if replaced else "sampled", float(leaf["sampling_probability"]), 1 / noise, count
    if kind in ("GaussianDpEvent", "EpochDpEvent"):  # an epoch has each record in one step: McSherry 2009, Theorem 4
        return "plain", 1.0, (2 if replaced else 1) / noise, count
    if kind == "StatedGaussianDpEvent" and leaf["adjacency"] in (None, adjacency):
        return "plain", 1.0, 1 / noise, count
    if inner.get("type") != "GaussianDpEvent":
        return None
    if kind == "PoissonSampledDpEvent":
        rate = float(leaf["sampling_probability"])
        pair = "replaced" if replaced else "sampled"
        return _gaussian_steps_of_leaf(inner, count, adjacency) if rate == 1 else (pair, rate, 1 / noise, count)
    if kind == "SampledWithoutReplacementDpEvent" and replaced:
        return "fixed", float(leaf["sample_size"]) / float(leaf["source_dataset_size"]), 2 / noise, count
    return None


def _curves_of_composed_steps(steps: Sequence[Steps]) -> list[Curve]:
    """Gaussian steps together; those without sampling are one Gaussian mechanism."""
    plain = math.sqrt(sum(count * mu**2 for kind, _, mu, count in steps if kind == "plain"))
    counts: dict[tuple[str, float, float], int] = {}
    for kind, rate, mu, count in steps:
        if kind != "plain":
            counts[kind, rate, mu] = counts.get((kind, rate, mu), 0) + count
    if len(counts) > MOST_KINDS:
        raise NotRecomputed(f"{len(counts)} kinds of step")
    if not counts:
        return [gaussian_delta_curve(plain) if plain else lambda points: np.maximum(0.0, -np.expm1(points))]
    kinds = [(*key, count) for key, count in counts.items()] + ([("sampled", 1.0, plain, 1)] if plain else [])
    ways = (0, 1) if any(kind == "sampled" and rate < 1 for kind, rate, _, _ in kinds) else (0,)
    if len(kinds) == 1 and kinds[0][0] == "sampled" and kinds[0][1] < 1 and kinds[0][3] == 1:
        return [delta_curve_of_one_sampled_step(*kinds[0][1:3], way) for way in ways]
    return [LossLattice(kinds, way).delta for way in ways]


def _merge_event_curves_pointwise(leaf: Event, adjacency: str, join: Callable[[Array], Array]) -> list[Curve]:
    inner = [delta_curves_of_event(event, adjacency) for event in leaf["events"]]
    ways = range(max(map(len, inner)))
    return [_merge_curves_pointwise([one[min(way, len(one) - 1)] for one in inner], join) for way in ways]


def _merge_curves_pointwise(sides: Sequence[Curve], join: Callable[[Array], Array]) -> Curve:
    return lambda points: join(np.array([side(points) for side in sides]))


def _curves_of_worst_event(leaf: Event, adjacency: str) -> list[Curve]:
    return _merge_event_curves_pointwise(leaf, adjacency, lambda deltas: np.asarray(deltas.max(axis=0)))


def _least_deltas_over_curves(deltas: Array) -> Array:
    return np.asarray(deltas.min(axis=0))


def _mixture_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """One of several mechanisms by a public draw: the mean of their deltas."""
    shares = np.array(leaf["counts"]) / sum(leaf["counts"])
    return _merge_event_curves_pointwise(
        leaf, adjacency, lambda deltas: np.minimum(1.0, (1 + MARGIN) * (shares @ deltas))
    )


def _noisy_max_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """The exponential mechanism (McSherry and Talwar 2007), as randomised response (Kairouz, Oh, Viswanath 2015)."""
    at = (2 if adjacency == REPLACE else 1) / float(leaf["noise_scale"])
    return [lambda points: -np.expm1(np.minimum(0.0, points - at)) / (1 + math.exp(-at))]


def _selection_curves(leaf: Event, adjacency: str) -> list[Curve]:
    """The envelope bound; where each point runs once, the composition of all runs where that is less."""
    law, each = leaf["tries"], leaf["tries"]["type"] == "EachPoint"
    if leaf["limit"] is not None or law["type"] not in _SLOPES:
        raise NotRecomputed("no tight bound for this law of the number of tries")
    inner = delta_curves_of_event(leaf["event"], adjacency)
    sides = [extend_curve_to_negative_epsilon(one, other) for one, other in zip(inner, inner[::-1], strict=True)]
    if law.get("gamma") == 1 or law.get("count") == 1:
        return inner
    best = [delta_curve_of_best_try(side, _SLOPES[law["type"]](law), each) for side in sides]
    if not each:
        return best
    runs = delta_curves_of_event(
        {"type": "SelfComposedDpEvent", "event": leaf["event"], "count": law["count"]}, adjacency
    )
    return [_merge_curves_pointwise(pair, _least_deltas_over_curves) for pair in zip(best, runs, strict=True)]


def _pgf_derivative_of_negative_binomial(law: Event) -> Curve:
    """Papernot and Steinke 2022, Definition 1: f'(x) is E[K] ((1 - (1 - gamma) x) / gamma)^(-1 - eta)."""
    eta, gamma = float(law["eta"]), float(law["gamma"])
    once = (1 - gamma) / -math.log(gamma)
    if abs(eta) >= 1e-6:
        once = eta * (1 - gamma) / math.expm1(-eta * math.log(gamma))
    return lambda x: once * ((1 - x) + gamma * x) ** (-1 - eta)


_SLOPES: Mapping[str, Callable[[Event], Curve]] = {
    "NegativeBinomial": _pgf_derivative_of_negative_binomial,
    "Poisson": lambda law: lambda x: law["mean"] * np.exp(law["mean"] * (x - 1)),
    "EachPoint": lambda law: lambda x: law["count"] * x ** (law["count"] - 1),
}
"""f' for each law of the number of tries, at x [n] in [0, 1]."""
_CURVES: Mapping[str, Callable[[Event, str], list[Curve]]] = {
    "WorstDpEvent": _curves_of_worst_event,
    "MixtureDpEvent": _mixture_curves,
    "NoisyMaxDpEvent": _noisy_max_curves,
    "SelectionDpEvent": _selection_curves,
}


def epsilon(event: Event, delta: float, adjacency: str, guess: float = 1.0) -> float:
    """An upper bound on epsilon at delta, sought from a guess on."""
    parts = leaf_events_with_counts(event)
    if len(parts) == 1 and parts[0][1] == 1 and parts[0][0]["type"] in _THEOREMS:
        return _THEOREMS[parts[0][0]["type"]](parts[0][0], delta, adjacency)
    return max(_invert_curve(side, delta, guess) for side in delta_curves_of_event(event, adjacency)) if parts else 0.0


def total_variation(event: Event, adjacency: str) -> float:
    """An upper bound on the total variation between neighbours: by delta at 0, or at a larger epsilon.

    At an epsilon it is at most (exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1): Kairouz, Oh, Viswanath 2015.
    """
    if not leaf_events_with_counts(event):
        return 0.0
    points = np.linspace(0.0, 6.0, 13)
    deltas = delta_curves_of_event(event, adjacency)[0](points)
    return float(((np.expm1(points) + 2 * deltas) / (np.exp(points) + 1)).min())


def _invert_curve(side: Curve, delta: float, guess: float) -> float:
    def is_delta_below_target(at: float) -> bool:
        value = float(side(np.array([at]))[0])
        if math.isnan(value):
            raise NotRecomputed("a bound on delta that is no number")
        return value <= delta

    low, high, step = guess, guess, 0.01
    while not is_delta_below_target(high):
        low, high, step = high, high + step, 2 * step
        if high > FARTHEST:
            return math.inf
    while low > 0 and is_delta_below_target(low):
        low, high, step = max(0.0, low - step), low, 2 * step
    while high - low > 1e-6 * min(1.0, max(high, 1e-3)):
        middle = (low + high) / 2
        low, high = (low, middle) if is_delta_below_target(middle) else (middle, high)
    return high


def _epsilon_of_random_stopping(leaf: Event, delta: float, adjacency: str) -> float:
    """Liu and Talwar 2019, Theorem 3.4."""
    gamma, limit, tail = float(leaf["tries"]["gamma"]), int(leaf["tries"]["limit"]), float(leaf["delta2"])
    if tail >= delta or limit < math.log(1 / tail) / gamma * (1 - 1e-12):
        return math.inf
    root = (delta - tail) / limit
    return 3 * epsilon(leaf["event"], root**2 / 2, adjacency) + 3 * root


def _epsilon_of_threshold_search(leaf: Event, delta: float, adjacency: str) -> float:
    """Liu and Talwar 2019, Theorem 3.1, with the constants that dpsweep's docs/accounting.md derives."""
    gamma = float(leaf["tries"]["gamma"])
    tail = (1 - gamma) ** int(leaf["tries"]["limit"])
    if tail >= delta:
        return math.inf
    inner = epsilon(leaf["event"], (delta - tail) * gamma, adjacency)
    return 2 * inner + math.log1p((delta - tail) * math.exp(-inner)) - math.log1p(-tail)


_THEOREMS: Mapping[str, Callable[[Event, float, str], float]] = {
    "RandomStoppingDpEvent": _epsilon_of_random_stopping,
    "ThresholdDpEvent": _epsilon_of_threshold_search,
}
"""Searches with a theorem for one delta at a time."""


def epsilon_by_renyi(event: Event, delta: float, adjacency: str) -> float:
    """An upper bound on epsilon at delta by Renyi divergences; for searches it may be less than that by losses."""
    parts, numbers = _mechanisms_and_numbers(event)
    x = _log_ratio(numbers, 1e-9 * delta)
    return 2 * x + renyi_epsilon(_renyi_divergence(parts, adjacency), (1 - 2e-9 * bool(numbers)) * delta * math.exp(-x))


def _renyi_divergence_of_event(event: Event, adjacency: str) -> Divergence:
    """The divergences of a composition: rounded numbers add at most x (2 a - 1) / (a - 1) at order a."""
    parts, numbers = _mechanisms_and_numbers(event)
    exact, x = _renyi_divergence(parts, adjacency), numbers * LOG_RATIO
    return lambda orders: exact(orders) + x * (2 * orders - 1) / (orders - 1)


def _renyi_divergence(mechanisms: Sequence[tuple[Event, int]], adjacency: str) -> Divergence:
    """The divergences of mechanisms: those of their Gaussian steps together, and of all others."""
    steps, parts = [], []
    for leaf, count in mechanisms:
        step = _gaussian_steps_of_leaf(leaf, count, adjacency)
        if step is not None:
            steps.append(step)
        elif leaf["type"] in _DIVERGENCES:
            parts.append((count, _DIVERGENCES[leaf["type"]](leaf, adjacency)))
        else:
            raise NotRecomputed(f"no Renyi bound for {leaf['type']}")
    gaussians = divergence_of_gaussian_steps(steps)
    return lambda orders: gaussians(orders) + sum(count * part(orders) for count, part in parts)


def _divergence_of_worst_event(leaf: Event, adjacency: str) -> Divergence:
    inner = [_renyi_divergence_of_event(event, adjacency) for event in leaf["events"]]
    return lambda orders: np.asarray(np.max([one(orders) for one in inner], axis=0))


def _divergence_of_noisy_max(leaf: Event, adjacency: str) -> Divergence:
    return pure_divergence((2 if adjacency == REPLACE else 1) / float(leaf["noise_scale"]))


def _divergence_of_search(leaf: Event, adjacency: str) -> Divergence:
    law, inner = leaf["tries"], _renyi_divergence_of_event(leaf["event"], adjacency)
    if leaf["limit"] is not None or law["type"] not in _SLOPES:
        raise NotRecomputed("no Renyi bound for this law of the number of tries")
    if law.get("gamma") == 1:
        return inner
    if law["type"] == "EachPoint":
        return lambda orders: law["count"] * inner(orders)
    if law["type"] == "NegativeBinomial":
        mean = float(_pgf_derivative_of_negative_binomial(law)(np.ones(1))[0])
        return negative_binomial_search_divergence(inner, float(law["eta"]), float(law["gamma"]), mean)
    sides = delta_curves_of_event(leaf["event"], adjacency)
    return poisson_search_divergence(
        inner, float(law["mean"]), lambda at: np.asarray(np.max([one(at) for one in sides], axis=0))
    )


_DIVERGENCES: Mapping[str, Callable[[Event, str], Divergence]] = {
    "WorstDpEvent": _divergence_of_worst_event,
    "NoisyMaxDpEvent": _divergence_of_noisy_max,
    "SelectionDpEvent": _divergence_of_search,
}


def least_possible_epsilon_of_event(event: Event, delta: float, adjacency: str) -> float:
    """What an event costs at least, up to the looseness of this program: each of its parts alone, and of a search one.

    If all scores are equal, a search shows one run, with the probability that it makes any. Batches that are drawn from
    a sample, and mechanisms without a tight bound here, count as 0.
    """
    steps = [
        (leaf, count)
        for leaf, count in leaf_events_with_counts(event)
        if _gaussian_steps_of_leaf(leaf, count, adjacency) is not None
    ]
    together = [{"type": "SelfComposedDpEvent", "event": leaf, "count": count} for leaf, count in steps]
    costs = [epsilon({"type": "ComposedDpEvent", "events": together}, delta, adjacency)] if steps else []
    for leaf, _ in leaf_events_with_counts(event):
        if leaf["type"] == "WorstDpEvent":
            costs += [least_possible_epsilon_of_event(inner, delta, adjacency) for inner in leaf["events"]]
        elif "tries" in leaf:
            law = leaf["tries"]
            share = -math.expm1(-float(law["mean"])) if law["type"] == "Poisson" else 1.0
            costs.append(
                least_possible_epsilon_of_event(leaf["event"], delta / share, adjacency) if delta < share else 0.0
            )
    return max(costs, default=0.0)

"""Recomputes the price that a release of dpsweep claims, with numpy alone: `python price_check.py [FOLDER]`.

It reads `price.json` and `report.json` in the release's FOLDER, by default that of this file, prices the event of each
population by accountants of its own, and says whether the claim holds: one of this program's upper bounds is at most
the claim and a little more: .001, or 5 % of the claim where that is less. Claims are not rounded, and the lattices of
two accountants put their bounds closer together than that. Whoever made the claim, it holds only by a bound. A claim
that is far above the bound, although privacy-loss distributions (PLD) made it, fails too: then the event is not the one
that was priced. Where this program has no bound, a claim below the price of one run fails. Exit codes: 0 all holds, 1
something does not hold, 2 a file cannot be read, 3 nothing fails and something was not recomputed.

It does not check that the run was the declared one: that is in the curator's ledger. Each bound names its theorem.
"""



import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any










HOLDS, FAILS, UNREADABLE, NOT_RECOMPUTED = 0, 1, 2, 3
TOLERANCE, LOOSE = (1e-3, 0.05), (0.02, 0.01)
"""How far a bound may be above a claim (the lesser), and below a claim by PLD (the greater; absolute, relative)."""
LONGEST_FILE, LONGEST_LINE = 1 << 26, 1000
"""The largest file that is read, in bytes, and the longest line that is printed."""
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors of values that are missing, of another type, too large or nested too deeply."""
SEARCHES = {
    "private_selection": "NegativeBinomial",
    "poisson_selection": "Poisson",
    "best_of_grid": "EachPoint",
    "random_stopping": "RandomStoppingDpEvent",
    "threshold": "ThresholdDpEvent",
}
"""What the event of a rule that hides its losers contains."""
SHOW_ALL = ("composition", "public", "disjoint parts", "composition + final run", "public + final run", "noisy_max")
"""Rules whose events contain none of these."""


def largest_bound_that_confirms_claim(claim: float) -> float:
    """The largest bound of this program's by which a claim holds."""
    return claim + min(TOLERANCE[0], TOLERANCE[1] * claim)


def exit_code_and_sentence_on_claim(part: Mapping[str, Any], delta: float, adjacency: str, by: str) -> tuple[int, str]:
    """The exit code and the sentence for one population's claim."""
    claim, event = float(part["epsilon"]), part["event"]["event"]
    bound, reason = _recomputed_value_or_reason(lambda: epsilon(event, delta, adjacency, min(claim, FARTHEST)))
    numbers = f"epsilon {claim!r} is claimed, {_bound_text(bound)} is recomputed"
    if bound <= largest_bound_that_confirms_claim(claim):
        if by == "PLD" and claim - bound > max(LOOSE[0], LOOSE[1] * claim):
            return FAILS, f"is not the price of this event, which costs less: {numbers}"
        return HOLDS, f"holds: {numbers}"
    other, without = _recomputed_value_or_reason(lambda: epsilon_by_renyi(event, delta, adjacency))
    if other <= largest_bound_that_confirms_claim(claim):
        return HOLDS, f"holds: epsilon {claim!r} is claimed, {_bound_text(other)} is recomputed by Renyi divergences"
    if claim > FARTHEST and math.isinf(bound):
        return NOT_RECOMPUTED, f"not recomputed: {reason or f'it is above {FARTHEST}'}: epsilon {claim!r} is claimed"
    searched = bool(set(_types_of_events_and_laws_in_json(event)) & set(SEARCHES.values()))
    missing = (reason or (searched and without)) if "RDP" in by.split(" and ") else reason
    if reason and not without and "RDP" in by.split(" and "):
        missing, numbers = "", f"epsilon {claim!r} is claimed, {_bound_text(other)} is recomputed by Renyi divergences"
    if not missing:
        return FAILS, f"does not hold: {numbers}"
    least, _ = _recomputed_value_or_reason(lambda: least_possible_epsilon_of_event(event, delta, adjacency), 0.0)
    if least > largest_bound_that_confirms_claim(claim):
        return FAILS, f"does not hold: epsilon {claim!r} is claimed, and one run costs {_bound_text(least)}"
    return NOT_RECOMPUTED, f"not recomputed: {missing}: epsilon {claim!r} is claimed"


def _recomputed_value_or_reason(recompute: Callable[[], float], otherwise: float = math.inf) -> tuple[float, str]:
    """What is recomputed, or the reason why it is not; a value that is no number counts as infinite."""
    try:
        value = recompute()
    except NotRecomputed as reason:
        return otherwise, str(reason)
    return (value if value == value else math.inf), ""


def _bound_text(bound: float) -> str:
    """A bound, rounded up to seven digits."""
    if not 0 < bound < math.inf:
        return str(bound)
    unit = 10.0 ** (math.floor(math.log10(bound)) - 6)
    return f"{math.ceil(bound / unit) * unit:.7g}"


def exit_codes_and_sentences_on_price(price: Mapping[str, Any], report: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The verdicts on a release: its sums, each population, and what no population's event covers."""
    more, facts, delta = price["repeats"], report["facts"], float(price["delta"])
    if price["version"] != 1 or price["adjacency"] not in ("add_or_remove_one", REPLACE) or not 0 < delta < 1:
        raise ValueError("Expected price.json to have version 1, a known adjacency, and delta in (0, 1).")
    if not (
        _is_finite_and_not_negative(more["epsilon"])
        and _is_finite_and_not_negative(more["delta"])
        and delta + more["delta"] < 1
    ):
        return [(FAILS, "repeated runs: their epsilon and delta are no charge: finite, not negative, delta below 1")]
    sums = (
        ("epsilon of the populations", max(part["epsilon"] for part in price["parts"].values()), price["epsilon"]),
        ("epsilon of report.json", facts["honest_epsilon"]["value"], price["epsilon"] + more["epsilon"]),
        ("delta of report.json", facts["honest_delta"]["value"], delta + more["delta"]),
    )
    results = [
        (FAILS, f"{name}: {one!r} does not agree with {other!r} in price.json")
        for name, one, other in sums
        if not math.isclose(one, other, rel_tol=1e-9)
    ]
    results += _exit_codes_and_sentences_on_rule(price["parts"], price["rule"])
    for name, part in price["parts"].items():
        code, sentence = exit_code_and_sentence_on_claim(part, delta, price["adjacency"], price["claimed_by"])
        results.append((code, f"{name}: {sentence}"))
    results += _total_variation_verdicts(price, facts)
    if more["epsilon"] or more["delta"]:
        charged = f"epsilon {more['epsilon']!r} at delta {more['delta']!r}"
        results.append((NOT_RECOMPUTED, f"repeated runs: not recomputed: {charged} is charged for them"))
    return results


def _total_variation_verdicts(price: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The verdict on the stated total variation, by which a fair coin is guessed; none if none is stated."""
    stated, parts = price.get("total_variation"), [part["event"]["event"] for part in price["parts"].values()]
    if stated != facts.get("total_variation", {}).get("value"):
        yield FAILS, "total variation: report.json does not agree with price.json"
    elif stated is not None:
        bound, reason = _recomputed_value_or_reason(
            lambda: max(total_variation(event, price["adjacency"]) for event in parts)
        )
        holds = min(bound, 1.0) <= largest_bound_that_confirms_claim(stated)
        code, words = (HOLDS, "holds") if holds else (FAILS, "does not hold")
        code, words = (NOT_RECOMPUTED, f"not recomputed: {reason}") if reason else (code, words)
        yield code, f"total variation: {words}: {stated!r} is claimed, {_bound_text(bound)} is recomputed"


def _is_finite_and_not_negative(value: object) -> bool:
    """Whether a JSON value is a finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _exit_codes_and_sentences_on_rule(parts: Mapping[str, Any], rule: str) -> list[tuple[int, str]]:
    """A failure if a rule of dpsweep's is named and the events are not its own."""
    declared = {kind for name, kind in SEARCHES.items() if name in rule.split()}
    contained = set(_types_of_events_and_laws_in_json(parts)) & set(SEARCHES.values())
    known = declared or rule in SHOW_ALL
    return [(FAILS, f"rule: the events are not those of {rule}")] if known and declared != contained else []


def _types_of_events_and_laws_in_json(form: object) -> Iterator[str]:
    """The type of every event and every law in a JSON value."""
    inner = form.values() if isinstance(form, dict) else form if isinstance(form, list) else ()
    if isinstance(form, dict) and "type" in form:
        yield form["type"]
    for one in inner:
        yield from _types_of_events_and_laws_in_json(one)


def _escape_unprintable(text: str) -> str:
    """The text with visible escapes of what a terminal obeys: a release may be a stranger's."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def read_json(path: Path) -> Any:
    """The JSON in a file of its own, of limited size; raises ValueError for a link, a device or a large file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LONGEST_FILE:
        raise ValueError(f"Expected {path.name} to be a file of at most {LONGEST_FILE >> 20} MiB, and no link.")
    return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Prints the verdicts on the release in a folder, by default that of this file."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    files = [folder / f"{name}.json" for name in ("price", "report")]
    try:
        price, report = map(read_json, files)
        results = exit_codes_and_sentences_on_price(price, report)
    except DAMAGE as cause:
        reason = repr(cause)[:LONGEST_LINE]
        print(_escape_unprintable(f"Expected {' and '.join(map(str, files))} to be the files of a release: {reason}"))
        return UNREADABLE
    for _, sentence in results:
        print(_escape_unprintable(sentence[:LONGEST_LINE]))
    codes = {code for code, _ in results}
    return FAILS if FAILS in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
