"""Compositions of privacy losses on a grid, and their tails, by Fourier transforms of tilted distributions.

A Fourier transform rounds every probability by about 1e-16 of the largest one, which hides the tail that determines a
small delta. So each step's losses are weighted by exp(theta loss) first, with the theta that minimises Chernoff's bound
on epsilon at a delta: the tail becomes the bulk. With K the sum of the steps' log-moments at theta and P the tilted
composition,

    delta(e) = infinite + exp(K - theta e) sum over x = loss - e > 0 of (1 - exp(-x)) exp(-theta x) P(loss).

Every tilt bounds delta at every epsilon, outside its window by Chernoff's bound, so the least of several counts. Where
samples and delta are small, a few huge losses may be the bulk under every tilt that could reach it. So the largest
losses, which have a small part of delta together (`CUTS`), count as infinite, which only increases delta.

*Guarantee*: upper bounds for the input distributions. What floating point and the window hide is added to delta. Losses
beyond the window have exp(K(t) - t top), Chernoff's bound at one t > theta; mass that wraps around only adds to P. In
the transform, a sum of N terms by log2 N levels of complex products and sums has an error of about 7 log2 N units of
rounding of each term (Higham 2002, Accuracy and Stability of Numerical Algorithms, Theorem 24.2); 16 are counted. So
each value y of the one-step transform, of tilted probabilities with the sum 1, has an error `e` of that number plus the
rounding of the tilt; its power n one of A^n ((1 + 2 e)^n - 1) with A = max(|y|, 1/2), also by way of a logarithm. The
root of the sum of squares bounds the Euclidean error of P (Parseval), to which the inverse transform adds 16 log2 N
units of the norm of P; Cauchy-Schwarz bounds that of delta. The probabilities of one step have a relative error of 900
units, `ONE_STEP`: second differences magnify a curve's errors, but these cancel when summed by parts against exp(theta
loss), up to ten units. Running sums have one unit for each addition.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from scipy import fft

from dpsweep.accounting.profiles.privacy_profiles import Profile

UNIT = 2.0**-53
LEVEL, ONE_STEP = 16 * UNIT, 1e-13  # relative rounding of one level of a transform, and of a probability of one step
LOG_MOMENT, SUM = 1e-6, 1e-9  # more than the rounding of millions of steps' log-moment, and of a sum of probabilities
CUTS, TOLERANCE = ((1e-9, 1.0), (1e-9, 0.5), (1e-6, 1.0), (1e-3, 1.0)), 2e-4
"""Parts of a delta that the largest losses may have, and powers of it whose tilts are meant: few bounded losses want a
smaller tilt, a few huge ones a larger part. They are tried until rounding is at most `TOLERANCE` of delta."""
LADDER = tuple(math.exp(-(deviations**2) / 2) for deviations in (1, 4, 7, 10, 13.6))  # deltas, down to 1e-40
OUTSIDE, SMALLEST_WINDOW, LARGEST_WINDOW = 32.0, 256, 8_000_000  # -ln of tilted mass beside a window; its grid points
GROUPS, RATIO, SMALLEST = 800, 1.1, -220  # of losses on each side of 0; of neighbouring tilts, and its least power
LARGEST_EXPONENT, SMALLEST_EXPONENT = 300.0, 600.0  # weights stay in range: of tails, and of curves (from exp(-600) on)


class Losses:
    """The loss `interval * (lowest + i)` has the probability `probabilities[i]`, an infinite loss `infinite`."""

    def __init__(self, *, lowest: int, interval: float, probabilities: np.ndarray, infinite: float) -> None:
        self.lowest, self.highest, self.interval = lowest, lowest + len(probabilities) - 1, interval
        self.probabilities, self.infinite = probabilities, infinite
        self.values = interval * np.arange(lowest, self.highest + 1)
        with np.errstate(divide="ignore"):
            self.logs = np.log(probabilities)

    @classmethod
    def from_curves(cls, ahead: np.ndarray, behind: np.ndarray, interval: float) -> Losses:
        """The losses whose hockey-stick curve is `ahead` at epsilon 0, interval, 2 interval ..., and `behind` reversed.

        *Guarantee*: the grid's own curve passes through these values (above, where they are not convex in exp(epsilon))
        and lies above the true curve, which is. *Source*: Doroshenko et al. 2022 (Connect the Dots), Algorithm 1.
        """
        step = math.expm1(interval)

        def slope_changes(deltas: np.ndarray) -> np.ndarray:  # the probabilities after the first grid point
            falls = -np.diff(np.minimum.accumulate(deltas))
            return np.append((falls[:-1] * math.exp(interval) - falls[1:]) / step, falls[-1] / -math.expm1(-interval))

        middle = 1 + (ahead[1] + behind[1] - (2 + step) * ahead[0]) / step
        shrinking = np.exp(-np.minimum(interval * np.arange(1, len(behind)), SMALLEST_EXPONENT))
        below = (shrinking * slope_changes(behind))[::-1]
        probabilities = np.maximum(0.0, np.concatenate([below, [middle], slope_changes(ahead)]))
        return cls(lowest=1 - len(behind), interval=interval, probabilities=probabilities, infinite=float(ahead[-1]))

    def with_largest_losses_infinite(self, mass: float) -> Losses:
        """As many as have at most `mass` together. *Guarantee*: no delta falls, as a loss only grows."""
        sums = np.cumsum(self.probabilities[::-1])
        lost = min(int(np.searchsorted(sums, mass, side="right")), max(0, self.highest - 1))
        if lost == 0:
            return self
        infinite = self.infinite + float(sums[lost - 1]) * (1 + SUM)
        kept = self.probabilities[:-lost]
        return Losses(lowest=self.lowest, interval=self.interval, probabilities=kept, infinite=infinite)

    def outline(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and log-probabilities of groups of neighbouring losses, narrow near 0."""
        ahead = np.geomspace(1, max(abs(self.lowest), abs(self.highest)) + 1, GROUPS).astype(np.int64)
        edges = np.concatenate([-ahead, [0], ahead]) - self.lowest
        edges = np.unique(np.clip(edges, 0, len(self.probabilities) - 1))
        masses = np.add.reduceat(self.probabilities, edges)
        sums = np.add.reduceat(self.probabilities * self.values, edges)
        return sums[masses > 0] / masses[masses > 0], np.log(masses[masses > 0])


def tilt(theta: float, values: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, float]:
    """Probabilities times exp(theta loss), normalised, and the logarithm of the normaliser."""
    exponents = theta * values + logs
    most = float(exponents.max())
    weights = np.exp(exponents - most)
    total = float(weights.sum())
    return weights / total, most + math.log(total)


class ComposedLosses(Profile):
    """The profile of independent losses in one direction, each with its multiplicity."""

    def __init__(self, parts: Sequence[tuple[Losses, int]]) -> None:
        self.parts, self.interval = tuple(parts), parts[0][0].interval
        self.steps = sum(count for _, count in parts)
        self.lowest = sum(count * losses.lowest for losses, count in parts)
        self.highest = sum(count * losses.highest for losses, count in parts)
        self.infinite = sum(count * losses.infinite for losses, count in parts)
        self._outlines = [(losses.outline(), count) for losses, count in parts]
        self._ladder: list[Tail] = []

    def epsilon(self, delta: float) -> float:
        """Infinity if infinite losses alone exceed `delta`."""
        if self.infinite >= delta:
            return math.inf
        least, finite = max(0.0, self.interval * self.highest), delta - self.infinite
        for part, power in CUTS:
            tail = Tail(self.nearer(part * finite), finite**power)
            least = min(least, tail.epsilon(delta))
            tail.rounding = 0.0
            if least == 0 or tail.delta(np.array([least]))[0] >= (1 - TOLERANCE) * delta:
                break
        return least

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """By the two tilts of the ladder that are nearest."""
        points = np.asarray(epsilons, dtype=float)
        most, deltas = float(points.max(initial=0.0)), np.ones(points.shape)
        for delta in LADDER[len(self._ladder) :]:
            if self._ladder and self.interval * self._ladder[-1].centre > most:
                break
            self._ladder.append(Tail(self.nearer(CUTS[0][0] * delta), delta))
        places = np.searchsorted([self.interval * tail.centre for tail in self._ladder], points)
        for rung, tail in enumerate(self._ladder):
            near = (places == rung) | (places == rung + 1)
            deltas[near] = np.minimum(deltas[near], tail.delta(points[near]))
        return deltas

    def nearer(self, mass: float) -> ComposedLosses:
        """With the largest losses, of at most this mass together, infinite; each kind of step has an equal share."""
        share = mass / len(self.parts)
        return ComposedLosses([(one.with_largest_losses_infinite(share / count), count) for one, count in self.parts])

    def log_moment(self, theta: float) -> float:
        """ln E exp(theta loss), of finite losses."""
        return sum(count * tilt(theta, losses.values, losses.logs)[1] for losses, count in self.parts)

    def chernoff(self, theta: float, sign: int, log: float) -> tuple[float, float]:
        """Roughly, where at most exp(-log) of the tilted mass lies ahead (or behind), and the further tilt for that."""

        def rough(at: float) -> float:  # by outlines: no bound
            return sum(count * tilt(at, *outline)[1] for outline, count in self._outlines)

        def bound(power: int) -> float:
            return (rough(theta + sign * RATIO**power) - here + log) / RATIO**power

        here, powers = rough(theta), range(SMALLEST, math.ceil(math.log(1 / self.interval, RATIO)))
        power = SMALLEST + bisect_left(powers, True, key=lambda power: bound(power + 1) >= bound(power))
        return sign * bound(power), RATIO**power

    def window(self, theta: float) -> tuple[int, int, float, float]:
        """First and last grid point, and how much further to tilt to bound the mass outside, behind and ahead."""
        (ahead, up), (behind, down) = (self.chernoff(theta, sign, OUTSIDE) for sign in (1, -1))
        first = min(max(self.lowest, math.floor(behind / self.interval) - 8), self.highest)
        last = min(self.highest, math.ceil(ahead / self.interval) + 8, first + LARGEST_WINDOW)
        return first, max(first, last), down, up

    def tilted(self, theta: float, size: int) -> tuple[float, np.ndarray, float]:
        """The log-moment, the tilted composition modulo `size`, and a bound on the Euclidean norm of its error."""
        level, relative = LEVEL * (math.log2(size) + 4), 4 * UNIT * len(self.parts)
        total, logs, powers = 0.0, np.zeros(size // 2 + 1), np.zeros(size // 2 + 1, dtype=complex)
        for losses, count in self.parts:
            weights, log = tilt(theta, losses.values, losses.logs)
            total += count * log
            exponents = np.abs(theta * losses.values) + np.abs(np.maximum(losses.logs, -800.0))
            tilting = float(weights @ exponents) + abs(log) + len(weights) // size + 8
            relative += 2 * count * (level + 2 * UNIT * tilting + ONE_STEP)
            start = losses.lowest % size
            padded = np.zeros(math.ceil((start + len(weights)) / size) * size)
            padded[start : start + len(weights)] = weights
            values = fft.rfft(padded.reshape(-1, size).sum(axis=0))
            values = np.log(np.where(np.abs(values) > 1e-300, values, 1e-300))
            logs += count * np.maximum(values.real, math.log(0.5))
            powers += count * values
        masses = fft.irfft(np.exp(powers), size)
        norm = math.expm1(min(50.0, relative)) * math.sqrt(2 * float(np.exp(2 * logs).sum()) / size)
        return total, masses, norm + 2 * level * float(np.linalg.norm(masses))


class Tail(Profile):
    """The tail above each grid point from `first`, at the tilt of Chernoff's least epsilon if finite losses have delta.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, and `weighted` the same times
    exp(-(loss - c)), both over exp(`scale`). The error of delta(e) is at most `rounding` exp(-theta (e - c) + scale)
    plus the fraction `slack` of the mass; `beyond` is added for losses infinite or above the window.
    """

    def __init__(self, losses: ComposedLosses, delta: float) -> None:
        h = self.interval = losses.interval
        epsilon, theta = losses.chernoff(0.0, 1, -math.log(delta))
        first, last, _, up = losses.window(theta)
        log, masses, error = losses.tilted(theta, fft.next_fast_len(max(SMALLEST_WINDOW, last - first + 1), real=True))
        self.theta, self.centre = theta, min(max(first, math.floor(epsilon / h)), last)
        self.scale = log - theta * h * self.centre
        ahead = h * np.arange(first - self.centre, last + 1 - self.centre)
        weights = np.maximum(0.0, np.roll(masses, -(first % len(masses)))[: len(ahead)])
        weights *= np.exp(np.minimum(-theta * ahead, LARGEST_EXPONENT))
        kept = slice(*np.searchsorted((theta + 1) * ahead, (-LARGEST_EXPONENT, LARGEST_EXPONENT)))
        self.first = first + kept.start
        self.mass, self.weighted = (
            np.append(np.cumsum(one[:0:-1])[::-1], 0.0)[kept]
            for one in (weights, weights * np.exp(np.minimum(-ahead, LARGEST_EXPONENT)))
        )
        self.slack = 4 * (len(ahead) + 64) * UNIT
        # how much the errors at all larger losses may change delta, by Cauchy-Schwarz
        larger = h * np.arange(1, len(ahead) + 1)
        share = float(np.linalg.norm(np.expm1(-larger) * np.exp(-theta * larger))) * math.exp(theta * h)
        self.rounding, self.beyond = error * share, losses.infinite
        if last < losses.highest:
            above = losses.log_moment(theta + up) - (theta + up) * h * (last + 1)
            self.beyond += math.exp(min(0.0, above + LOG_MOMENT + losses.steps * ONE_STEP))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Above the window no more than at its end."""
        ahead = epsilons - self.interval * self.centre
        near = np.minimum(ahead, self.interval * (self.first - self.centre + len(self.mass) - 1))
        at = np.maximum(np.floor(near / self.interval).astype(np.int64) + (self.centre - self.first), -1)
        mass = self.mass[at]
        sums = np.maximum(0.0, mass - np.exp(near) * self.weighted[at]) + self.slack * mass
        fading = np.exp(np.minimum(-self.theta * near, LARGEST_EXPONENT))
        inside = math.exp(self.scale) * (sums + self.rounding * fading)
        chernoff = np.exp(np.minimum(0.0, self.scale - self.theta * ahead + LOG_MOMENT))
        return np.asarray(np.where(at < 0, chernoff, np.minimum(chernoff, inside)) + self.beyond)
