"""Privacy profiles: delta as a function of epsilon.

A profile bounds the hockey-stick divergence of both directions at every epsilon >= 0. Where they are known apart, it
has the profile of each as `directions`; else one stands for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from scipy import special

SMALLEST_DELTA = 1e-30  # below, the tails that grids cut off are no longer negligible
FARTHEST = 5000.0  # divergences at larger epsilons are bounded by the one here
_LARGEST_EPSILON, _UNIT = 1e4, 2.0**-42
_ROUNDING, _ULPS = 1e-12, 2.0**-50  # more than the relative errors of a mean of curves, and of a few operations

Curve = Callable[[np.ndarray], np.ndarray]  # bounds of a law's divergence from another at any real epsilons; [n]


def rounded_up(epsilon: float) -> float:
    """Of an epsilon >= 0 after a few operations."""
    return epsilon * (1 + _ULPS)


class Profile(Protocol):
    """*Guarantee*: the mechanism is (epsilon, delta(epsilon))-private at every epsilon >= 0 at once."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]; non-increasing."""

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is certified at `delta`, rounded up."""
        return invert_profile(self, delta)


@dataclass(frozen=True, kw_only=True)
class GaussianProfile(Profile):
    """The exact profile of a Gaussian mechanism with sensitivity over noise `mu`.

    *Source*: Balle and Wang 2018 (Improving the Gaussian Mechanism), Theorem 8.
    """

    mu: float

    def __post_init__(self) -> None:
        if not self.mu > 0:
            raise ValueError(f"Expected mu={self.mu} > 0.")

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The exact delta."""
        near = special.log_ndtr(self.mu / 2 - epsilons / self.mu)
        far = special.log_ndtr(-self.mu / 2 - epsilons / self.mu)
        return np.asarray(np.exp(near) * -np.expm1(np.minimum(0, epsilons + far - near)))


@dataclass(frozen=True, kw_only=True)
class Claimed(Profile):
    """A claim of epsilon `at` and delta `beyond`: at worst, randomised response that reveals all with that probability.

    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.3.
    """

    at: float
    beyond: float = 0.0

    def __post_init__(self) -> None:
        if not (self.at >= 0 and 0 <= self.beyond <= 1):
            raise ValueError(f"Expected at={self.at} >= 0 and 0 <= beyond={self.beyond} <= 1.")

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Exact for that randomised response."""
        if self.at == math.inf:
            return np.ones(len(epsilons))
        short = -np.expm1(np.minimum(0.0, np.asarray(epsilons) - self.at)) / (1 + math.exp(-self.at))
        return np.asarray(self.beyond + (1 - self.beyond) * short)

    def epsilon(self, delta: float) -> float:
        """Exact for that randomised response."""
        if not (delta >= self.beyond and self.at < math.inf):
            return math.inf
        remaining = (delta - self.beyond) / (1 - self.beyond) * (1 + math.exp(-self.at))
        return max(0.0, min(self.at, rounded_up(self.at + math.log1p(-remaining)))) if remaining < 1 else 0.0


NOTHING, EVERYTHING = Claimed(at=0.0), Claimed(at=math.inf)  # no access; an access without any protection


@dataclass(frozen=True, kw_only=True)
class Sampled(Profile):
    """On a sample that contains each record with probability `rate`, Poisson or without replacement.

    *Source*: Balle, Barthe, Gaboardi 2018 (Privacy Amplification by Subsampling), Theorems 8 and 9: tight for one step.
    """

    inner: Profile
    rate: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The inner delta(e) times `rate`, at epsilon ln(1 + rate * (exp(e) - 1))."""
        small = np.minimum(epsilons, 500.0)
        inner = np.where(epsilons < 500.0, np.log1p(np.expm1(small) / self.rate), epsilons - math.log(self.rate))
        return np.asarray(self.rate * self.inner.delta(inner))

    def epsilon(self, delta: float) -> float:
        """From the inner epsilon at delta / rate."""
        if delta >= self.rate:
            return 0.0
        inner = self.inner.epsilon(delta / self.rate)
        return rounded_up(math.log1p(self.rate * math.expm1(inner)) if inner < 500 else inner + math.log(self.rate))


@dataclass(frozen=True, kw_only=True)
class Least(Profile):
    """The pointwise minimum of several profiles of one mechanism."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The smallest delta."""
        return np.asarray(np.min([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon."""
        return min(profile.epsilon(delta) for profile in self.inner)


@dataclass(frozen=True, kw_only=True)
class Worst(Profile):
    """The pointwise maximum of several profiles."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The largest delta at each epsilon."""
        return np.asarray(np.max([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon."""
        return max(profile.epsilon(delta) for profile in self.inner)


@dataclass(frozen=True, kw_only=True)
class TwoSided(Profile):
    """The directions, P from Q and Q from P, apart; one if they are alike."""

    directions: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The larger of both directions."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """The larger of both directions."""
        return max(direction.epsilon(delta) for direction in self.directions)


@dataclass(frozen=True)
class _Average(Profile):
    curves: tuple[Profile, ...]
    weights: tuple[float, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        deltas = [weight * curve.delta(epsilons) for curve, weight in zip(self.curves, self.weights, strict=True)]
        return np.asarray(np.sum(deltas, axis=0) * (1 + _ROUNDING))


def directions_of(profile: Profile) -> tuple[Profile, ...]:
    """The profile of each direction; one if they are not known apart."""
    sides: tuple[Profile, ...] = getattr(profile, "directions", (profile,))
    return sides


def mixture_profile(inner: tuple[Profile, ...], weights: tuple[float, ...]) -> TwoSided:
    """Of one of several mechanisms that is drawn with these probabilities and named by the output.

    Each direction is exact: the divergence of laws on pairs (draw, output) is the mean of the mechanisms' divergences.
    """
    pairs = list(map(directions_of, inner))
    curves = [tuple(pair[min(side, len(pair) - 1)] for pair in pairs) for side in range(max(map(len, pairs)))]
    return TwoSided(directions=tuple(_Average(one, weights) for one in curves))


def curves_by_direction(profile: Profile) -> tuple[Curve, ...]:
    """The curve of each direction at epsilons of any sign; one, the larger everywhere, if they are not known apart.

    Below 0, that of Q from Q' follows from that of Q' from Q: delta(-e) = 1 - exp(-e) + exp(-e) delta'(e).
    """
    sides = directions_of(profile)

    def divergence(ahead: Profile, behind: Profile, epsilons: np.ndarray) -> np.ndarray:
        deltas, below = np.empty(len(epsilons)), epsilons < 0
        deltas[~below] = ahead.delta(epsilons[~below])
        shrunk = np.exp(epsilons[below])  # 0 at -infinity, where the divergence is 1
        deltas[below] = shrunk * behind.delta(np.minimum(-epsilons[below], FARTHEST)) - np.expm1(epsilons[below])
        return deltas

    return tuple(partial(divergence, side, sides[index - 1]) for index, side in enumerate(sides))


def invert_profile(profile: Any, delta: float) -> float:
    """The least epsilon >= 0 with delta at most `delta`, rounded up to `_UNIT`, or infinity; ArithmeticError at nan."""

    def delta_at(index: int) -> float:
        value = float(profile.delta(np.array([index * _UNIT]))[0])
        if math.isnan(value):  # bounds nothing
            raise ArithmeticError(f"Expected delta={value} of {type(profile).__name__} to be a number.")
        return value

    most, unit = round(_LARGEST_EPSILON / _UNIT), round(1 / _UNIT)
    index = first_within(delta_at, delta, low=-1, high=most, start=unit, stride=0.3 * unit)
    return math.inf if index is None else index * _UNIT


def first_within(
    price: Callable[[int], float], target: float, low: int, high: int, start: int, stride: float
) -> int | None:
    """The least whole number in (low, high] with a price of at most `target`; None if the price at `high` is above.

    *Guarantee*: the price at the returned number is at most `target`, and above it at the number before, unless that is
    `low`; so it is the least one if the price never rises with the number. `start`, and the `stride` in which the price
    is expected to fall by a factor of e, change only the length of the search: longer and longer steps until it has
    both ends, then secants of the price's logarithm, farther each time that the same end moves, or bisection: a tenth
    of the evaluations of a bisection.

    >>> first_within(lambda number: 1 / number, 0.01, 0, 10**6, start=7, stride=7)
    100
    """
    price = lru_cache(maxsize=None)(price)
    bad, good, guess, step, moved, last = low, high, start, 0, 0, None
    here = there = (start, 0.0)
    while good - bad > 1:
        guess = min(max(guess, bad + 1), good - 1)
        fits = price(guess) <= target
        bad, good = (bad, guess) if fits else (guess, good)
        moved = moved + 1 if fits is last else 0
        last = fits
        here, there = (guess, math.log(price(guess) / target) if price(guess) > 0 else -math.inf), here
        if bad == low or good == high:
            step = max(4 * step, math.ceil(stride * min(1.0, abs(here[1]))), 1)
            guess += -step if fits else step
        elif math.isfinite(fall := here[1] - there[1]) and fall != 0:
            root = here[0] + (there[0] - here[0]) * here[1] / fall
            guess = math.ceil(root) + (1 - 2**moved if fits else 2**moved - 1)
        else:
            guess = (bad + good) // 2
    return good if good < high or price(high) <= target else None
