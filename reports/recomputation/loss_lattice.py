"""Upper bounds on delta for compositions of Gaussian steps, by their losses on a lattice."""

from __future__ import annotations

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
