"""Compositions of privacy losses on a grid, and their tails, by Fourier transforms of tilted distributions.

A Fourier transform rounds every probability by about 1e-16 of the largest one, which hides the tail that determines a
small delta. So each step's losses are weighted by exp(theta loss) first, with the theta that minimises Chernoff's bound
on epsilon at a delta: the tail becomes the bulk. With K the sum of the steps' log-moments at theta and P the tilted
composition,

    delta(e) = infinite + exp(K - theta e) sum over x = loss - e > 0 of (1 - exp(-x)) exp(-theta x) P(loss).

Every tilt bounds delta at every epsilon, outside its window by Chernoff's bound, so the least of several counts: one
for a single delta, `LADDER` for a whole profile. Where samples and delta are small, a few huge losses may become the
bulk under every tilt that could reach it: a second saddle point. So the largest losses, which have at most a small part
of delta together (`CUTS`), count as infinite, which only increases delta.

*Guarantee*: upper bounds for the input distributions, floating-point errors included. Added to the computed delta are:

* Losses beyond the window: exp(K(t) - t top), Chernoff's bound at one t > theta. Mass that wraps around into the window
  only increases P.
* The transform. In a sum of N terms, computed by a Cooley-Tukey algorithm in log2 N levels of complex products and
  sums, the error of each term is at most about 7 log2 N units of rounding (Higham 2002, Accuracy and Stability of
  Numerical Algorithms, Theorem 24.2, with weights correct to one unit); the code counts 16. So the error `e` of each
  value y of the one-step transform is at most that number times the sum of the tilted probabilities, which is 1, plus
  the rounding of the tilt. The error of the power n is at most A^n ((1 + 2 e)^n - 1) with A = max(|y|, 1/2); that it
  is the exponential of n logarithms costs n times less than ten units, which are among the counted ones. By
  Parseval's equation, the root of the sum of squares of these errors bounds the error of P in the Euclidean norm. The
  inverse transform adds 16 log2 N units of the norm of P, and Cauchy-Schwarz turns the result into an error of delta.
* The probabilities of one step: a relative error `ONE_STEP` each. Second differences magnify errors of a curve, but
  these cancel when summed by parts against exp(theta loss). The remainder is a few units of rounding of the curve's
  decrements, divided by the grid step, which is at most a tenth of the losses' scale: ten units; the code counts 900.
* Running sums: one unit of rounding for each addition.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The loss `interval * (lowest + i)` has the probability `probabilities[i]`, an infinite loss `infinite`."""

    lowest: int
    interval: float
    probabilities: np.ndarray
    infinite: float

    @classmethod
    def from_curves(cls, ahead: np.ndarray, behind: np.ndarray, interval: float) -> Losses:
        """The losses whose hockey-stick curve is `ahead` at epsilon 0, interval, 2 interval ..., and `behind` reversed.

        Below 0 the first is 1 - exp(epsilon) + exp(epsilon) times the second at -epsilon, so digits are kept.

        *Guarantee*: the grid's own curve passes through these values and is above the true curve between them, as that
        is convex in exp(epsilon); where `ahead` is an upper bound that is not convex, the grid's curve is above it.
        *Source*: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), Algorithm 1.
        """
        step = math.expm1(interval)

        def slope_changes(deltas: np.ndarray) -> np.ndarray:  # the probabilities after the first grid point
            falls = -np.diff(np.minimum.accumulate(deltas))
            return np.append((falls[:-1] * math.exp(interval) - falls[1:]) / step, falls[-1] / -math.expm1(-interval))

        middle = 1 + (ahead[1] + behind[1] - (2 + step) * ahead[0]) / step
        shrinking = np.exp(-np.minimum(interval * np.arange(1, len(behind)), SMALLEST_EXPONENT))
        below = (shrinking * slope_changes(behind))[::-1]
        return cls(
            lowest=1 - len(behind),
            interval=interval,
            probabilities=np.maximum(0.0, np.concatenate([below, [middle], slope_changes(ahead)])),
            infinite=float(ahead[-1]),
        )

    @cached_property
    def values(self) -> np.ndarray:
        """In nats."""
        return np.asarray(self.interval * (self.lowest + np.arange(len(self.probabilities))))

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """-infinity for a probability 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.probabilities))

    @property
    def highest(self) -> int:
        """The last grid point."""
        return self.lowest + len(self.probabilities) - 1

    def with_largest_losses_infinite(self, mass: float) -> Losses:
        """As many as have at most `mass` together. *Guarantee*: no delta falls, as a loss only grows."""
        sums = np.cumsum(self.probabilities[::-1])
        lost = min(int(np.searchsorted(sums, mass, side="right")), max(0, self.highest - 1))
        if lost == 0:
            return self
        return replace(
            self,
            probabilities=self.probabilities[:-lost],
            infinite=self.infinite + float(sums[lost - 1]) * (1 + SUM),
        )

    def tilt(self, theta: float) -> tuple[np.ndarray, float]:
        """Probabilities times exp(theta loss), normalised, and the logarithm of the normaliser."""
        exponents = theta * self.values + self.log_probabilities
        most = float(exponents.max())
        weights = np.exp(exponents - most)
        total = float(weights.sum())
        return weights / total, most + math.log(total)

    def outline(self) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities and means of groups of neighbouring losses, narrow near 0."""
        ahead = np.geomspace(1, max(abs(self.lowest), abs(self.highest)) + 1, GROUPS).astype(np.int64)
        edges = np.concatenate([-ahead, [0], ahead]) - self.lowest
        edges = np.unique(np.clip(edges, 0, len(self.probabilities) - 1))
        masses = np.add.reduceat(self.probabilities, edges)
        sums = np.add.reduceat(self.probabilities * self.values, edges)
        return np.log(masses[masses > 0]), sums[masses > 0] / masses[masses > 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tail(Profile):
    """The tail of a composition above each grid point from `first`, at one tilt, with bounds on its errors.

    With c the loss at `centre`: `mass` sums P exp(-theta (loss - c)) above a point, and `weighted` the same times
    exp(-(loss - c)), both over exp(`scale`). The error of delta(e) is at most `rounding` exp(-theta (e - c) + scale)
    plus the fraction `slack` of the mass; `beyond` is added for losses infinite or above the window.
    """

    theta: float
    interval: float
    first: int
    centre: int
    scale: float
    mass: np.ndarray
    weighted: np.ndarray
    rounding: float
    slack: float
    beyond: float

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


class ComposedLosses(Profile):
    """The profile of independent losses in one direction, each with its multiplicity."""

    def __init__(self, parts: Sequence[tuple[Losses, int]]) -> None:
        self.parts, self.interval = tuple(parts), parts[0][0].interval
        self.steps = sum(count for _, count in parts)
        self.lowest = sum(count * losses.lowest for losses, count in parts)
        self.highest = sum(count * losses.highest for losses, count in parts)
        self.infinite = sum(count * losses.infinite for losses, count in parts)
        self._outlines = [(*losses.outline(), count) for losses, count in parts]
        self._ladder: list[Tail] = []

    def epsilon(self, delta: float) -> float:
        """Infinity if infinite losses alone exceed `delta`."""
        if self.infinite >= delta:
            return math.inf
        least, finite = max(0.0, self.interval * self.highest), delta - self.infinite
        for part, power in CUTS:
            tail = self.nearer(part * finite).tail(finite**power)
            least = min(least, tail.epsilon(delta))
            if least == 0 or replace(tail, rounding=0.0).delta(np.array([least]))[0] >= (1 - TOLERANCE) * delta:
                break
        return least

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """By the two tilts of the ladder that are nearest."""
        points = np.asarray(epsilons, dtype=float)
        most, deltas = float(points.max(initial=0.0)), np.ones(points.shape)
        for delta in LADDER[len(self._ladder) :]:
            if self._ladder and self.interval * self._ladder[-1].centre > most:
                break
            self._ladder.append(self.nearer(CUTS[0][0] * delta).tail(delta))
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
        return sum(count * losses.tilt(theta)[1] for losses, count in self.parts)

    def chernoff(self, theta: float, sign: int, log: float) -> tuple[float, float]:
        """Roughly, where at most exp(-log) of the tilted mass lies ahead (or behind), and the further tilt for that."""
        here = self._rough_log_moment(theta)

        def bound(power: int) -> float:
            return (self._rough_log_moment(theta + sign * RATIO**power) - here + log) / RATIO**power

        powers = range(SMALLEST, math.ceil(math.log(1 / self.interval, RATIO)))
        power = SMALLEST + bisect_left(powers, True, key=lambda power: bound(power + 1) >= bound(power))
        return sign * bound(power), RATIO**power

    def _rough_log_moment(self, theta: float) -> float:  # by outlines: no bound
        total = 0.0
        for logs, means, count in self._outlines:
            exponents = logs + theta * means
            most = float(exponents.max())
            total += count * (most + math.log(float(np.exp(exponents - most).sum())))
        return total

    def window(self, theta: float) -> tuple[int, int, float, float]:
        """First and last grid point, and how much further to tilt to bound the mass outside, behind and ahead."""
        (ahead, up), (behind, down) = (self.chernoff(theta, sign, OUTSIDE) for sign in (1, -1))
        first = min(max(self.lowest, math.floor(behind / self.interval) - 8), self.highest)
        last = min(self.highest, math.ceil(ahead / self.interval) + 8, first + LARGEST_WINDOW)
        return first, max(first, last), down, up

    def tail(self, delta: float) -> Tail:
        """At the tilt where Chernoff's bound on epsilon is least if finite losses have this delta."""
        h = self.interval
        epsilon, theta = self.chernoff(0.0, 1, -math.log(delta))
        first, last, _, up = self.window(theta)
        log, masses, error = self._tilted(theta, fft.next_fast_len(max(SMALLEST_WINDOW, last - first + 1), real=True))
        centre = min(max(first, math.floor(epsilon / h)), last)
        ahead = h * np.arange(first - centre, last + 1 - centre)
        weights = np.maximum(0.0, np.roll(masses, -(first % len(masses)))[: len(ahead)])
        weights *= np.exp(np.minimum(-theta * ahead, LARGEST_EXPONENT))
        mass, weighted = (
            np.append(np.cumsum(one[:0:-1])[::-1], 0.0)
            for one in (weights, weights * np.exp(np.minimum(-ahead, LARGEST_EXPONENT)))
        )
        kept = slice(*np.searchsorted((theta + 1) * ahead, (-LARGEST_EXPONENT, LARGEST_EXPONENT)))
        # how much the errors at all larger losses may change delta, by Cauchy-Schwarz
        beyond = h * np.arange(1, len(mass) + 1)
        share = float(np.linalg.norm(np.expm1(-beyond) * np.exp(-theta * beyond))) * math.exp(theta * h)
        past = 0.0
        if last < self.highest:
            above = self.log_moment(theta + up) - (theta + up) * h * (last + 1)
            past = math.exp(min(0.0, above + LOG_MOMENT + self.steps * ONE_STEP))
        return Tail(
            theta=theta,
            interval=h,
            first=first + kept.start,
            centre=centre,
            scale=log - theta * h * centre,
            mass=mass[kept],
            weighted=weighted[kept],
            rounding=error * share,
            slack=4 * (len(mass) + 64) * UNIT,
            beyond=self.infinite + past,
        )

    def _tilted(self, theta: float, size: int) -> tuple[float, np.ndarray, float]:
        """The log-moment, the tilted composition modulo `size`, and a bound on the Euclidean norm of its error."""
        level, relative = LEVEL * (math.log2(size) + 4), 4 * UNIT * len(self.parts)
        total, logs, powers = 0.0, np.zeros(size // 2 + 1), np.zeros(size // 2 + 1, dtype=complex)
        for losses, count in self.parts:
            weights, log = losses.tilt(theta)
            total += count * log
            exponents = np.abs(theta * losses.values) + np.abs(np.maximum(losses.log_probabilities, -800.0))
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
