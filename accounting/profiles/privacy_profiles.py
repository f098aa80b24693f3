"""Privacy profiles: delta as a function of epsilon, with their changes under sampling and selection.

A profile here bounds the hockey-stick divergence in both directions at every epsilon >= 0, like that of a symmetric
pair of neighbours; below 0 it continues by delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from dpsweep.accounting.root_finding import first_within

SMALLEST_DELTA = 1e-30
"""Below this delta, the tails that grids cut off are no longer negligible."""

_LARGEST_EPSILON, _UNIT = 1e4, 2.0**-42
_ROUNDING = 1e-12


class Profile(Protocol):
    """*Guarantee*: the mechanism is (epsilon, delta(epsilon))-private at every epsilon >= 0 at once."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]; non-increasing."""

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that this profile certifies at `delta`, rounded up."""


@dataclass(frozen=True)
class Nothing:
    """No access."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """0 everywhere."""
        return np.zeros(len(epsilons))

    def epsilon(self, delta: float) -> float:
        """0."""
        return 0.0


@dataclass(frozen=True)
class Everything:
    """An access without any protection."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """1 everywhere."""
        return np.ones(len(epsilons))

    def epsilon(self, delta: float) -> float:
        """Infinity."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class GaussianProfile:
    """The exact profile of a Gaussian mechanism with sensitivity over noise `mu`.

    *Source*: Balle and Wang 2018 (Improving the Gaussian Mechanism), Theorem 8.
    """

    mu: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The exact delta."""
        near = special.log_ndtr(self.mu / 2 - epsilons / self.mu)
        far = special.log_ndtr(-self.mu / 2 - epsilons / self.mu)
        return np.asarray(np.exp(near) * -np.expm1(np.minimum(0, epsilons + far - near)))

    def epsilon(self, delta: float) -> float:
        """The epsilon at `delta`, by bisection."""
        return invert_profile(self, delta)


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A mechanism with one known (epsilon, delta) claim: epsilon is `at`, delta is `beyond`.

    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.3: the worst case is randomised
    response that reveals everything with probability `beyond`.
    """

    at: float
    beyond: float

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
        return max(0.0, self.at + math.log1p(-remaining)) if remaining < 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A mechanism on a sample that contains each record with probability `rate`, Poisson or without replacement.

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
        """The amplified epsilon, from the inner epsilon at delta / rate."""
        if delta >= self.rate:
            return 0.0
        inner = self.inner.epsilon(delta / self.rate)
        return math.log1p(self.rate * math.expm1(inner)) if inner < 500 else inner + math.log(self.rate)


@dataclass(frozen=True, kw_only=True)
class Least:
    """The pointwise minimum of several profiles of one mechanism."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The smallest delta."""
        return np.asarray(np.min([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon."""
        return min(profile.epsilon(delta) for profile in self.inner)


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The pointwise maximum of several profiles."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The largest delta at each epsilon."""
        return np.asarray(np.max([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon."""
        return max(profile.epsilon(delta) for profile in self.inner)


@dataclass(frozen=True)
class _Average:
    """The mean of several curves of one direction."""

    curves: tuple[Profile, ...]
    weights: tuple[float, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The mean of the deltas, rounded up."""
        deltas = [weight * curve.delta(epsilons) for curve, weight in zip(self.curves, self.weights, strict=True)]
        return np.asarray(np.sum(deltas, axis=0) * (1 + _ROUNDING))

    def epsilon(self, delta: float) -> float:
        """By bisection."""
        return invert_profile(self, delta)


@dataclass(frozen=True, kw_only=True)
class TwoSided:
    """The profile of a mechanism whose directions, P from Q and Q from P, are known apart."""

    directions: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The larger of both directions."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """By bisection."""
        return invert_profile(self, delta)


def mixture_profile(inner: tuple[Profile, ...], weights: tuple[float, ...]) -> TwoSided:
    """The profile of one of several mechanisms that is drawn with these probabilities and named by the output.

    The hockey-stick divergence of laws on pairs (draw, output) is the mean of the mechanisms' divergences. So each
    direction is exact; there is one if no mechanism has two.
    """
    pairs = [getattr(profile, "directions", (profile,)) for profile in inner]
    sides = range(max(map(len, pairs)))
    curves = [tuple(pair[min(side, len(pair) - 1)] for pair in pairs) for side in sides]
    return TwoSided(directions=tuple(_Average(curves=one, weights=weights) for one in curves))


def invert_profile(profile: Profile, delta: float) -> float:
    """The smallest epsilon >= 0 with profile delta <= `delta`, rounded up to a multiple of `_UNIT`; else infinity.

    A delta that is nan is no bound: an epsilon with one is not returned.
    """
    index = first_within(
        lambda index: float(profile.delta(np.array([index * _UNIT]))[0]),
        delta,
        low=-1,
        high=round(_LARGEST_EPSILON / _UNIT),
        start=round(1 / _UNIT),
        stride=0.3 / _UNIT,
    )
    return math.inf if index is None else index * _UNIT


_FARTHEST = 6.0
"""The largest epsilon at which the delta of a search is asked for."""

_RELATIVE = 1e-9
"""More than the relative error of the quotients."""


def total_variation_of_profile(profile: Profile) -> float:
    """Delta at epsilon 0, or what it is at most by delta at another epsilon, where a bound is not tight at 0.

    *Guarantee*: an upper bound; each direction bounds the total variation of both. The bound on a search is not tight
    at 0, but its delta at larger epsilons bounds the total variation too.
    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.4: it is at most
    (exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1).
    """
    one_direction: Any = getattr(profile, "directions", (profile,))[0]

    def bounds_at(epsilons: np.ndarray) -> np.ndarray:
        return np.asarray((np.expm1(epsilons) + 2 * one_direction.delta(epsilons)) / (np.exp(epsilons) + 1))

    first, second = bounds_at(np.array([0.0, 1.0]))
    least = first if first < second else bounds_at(np.linspace(0.0, _FARTHEST, 13)).min()
    return float(min(1.0, least * (1 + _RELATIVE)))
