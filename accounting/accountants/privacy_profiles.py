"""Privacy profiles: delta as a function of epsilon, with their changes under sampling and selection.

A profile here bounds the hockey-stick divergence in both directions at every epsilon >= 0, like that of a symmetric
pair of neighbours; below 0 it continues by delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import optimize, special

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import NegativeBinomial

SMALLEST_DELTA = 1e-30
"""Below this delta, the tails that grids cut off are no longer negligible."""

_GRID = 400
_LEAST = 1e-300
_LARGEST_EPSILON = 1e4


class Profile(Protocol):
    """*Guarantee*: the mechanism is (epsilon, delta(epsilon))-private at every epsilon >= 0 at once."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]; non-increasing."""
        ...

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that this profile certifies at `delta`, rounded up."""
        ...


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
        return invert(self, delta)


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
        if delta < self.beyond or self.at == math.inf:
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
class Worst:
    """The pointwise maximum of several profiles."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The largest delta at each epsilon."""
        return np.asarray(np.max([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon."""
        return max(profile.epsilon(delta) for profile in self.inner)


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The best of K runs, K truncated negative binomial.

    *Source*: Koskela, Redberg, Wang 2024 (Privacy Profiles for Private Selection), Theorem 7: for any e2 >= 0,
    delta(e) <= m delta_Q(e - (1 + eta) ln(exp(e2) + (1 - gamma) / gamma delta_Q(e2))).
    """

    inner: Profile
    tries: NegativeBinomial

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The bound at the best e2, which does not depend on epsilon."""
        inner = np.asarray(epsilons) - self._penalty
        inside = self.tries.mean * self.inner.delta(np.maximum(inner, 0.0))
        return np.where(inner < 0, 1.0, np.minimum(1.0, inside))

    def epsilon(self, delta: float) -> float:
        """The run's epsilon at delta / m, plus the penalty."""
        share = delta / self.tries.mean
        if share < SMALLEST_DELTA:
            raise UnsupportedEvent(
                f"PLD is not safe at delta={delta:.3g} for a search of {self.tries.mean:.4g} tries on average: "
                f"delta / tries={share:.3g} < {SMALLEST_DELTA:g}; use RDP."
            )
        return self.inner.epsilon(share) + self._penalty

    @cached_property
    def _penalty(self) -> float:
        """(1 + eta) ln(exp(e2) + (1 - gamma) / gamma delta_Q(e2)) at the best e2, by a grid and a local search."""
        if self.tries.gamma == 1:
            return 0.0
        odds = (1 - self.tries.gamma) / self.tries.gamma

        def penalty(at: np.ndarray) -> np.ndarray:
            return np.asarray(np.logaddexp(at, np.log(odds) + np.log(np.maximum(self.inner.delta(at), _LEAST))))

        most = float(penalty(np.zeros(1))[0])
        grid = np.linspace(0.0, most, _GRID)
        values = penalty(grid)
        best = int(values.argmin())
        around = (float(grid[max(0, best - 1)]), float(grid[min(_GRID - 1, best + 1)]))
        result = optimize.minimize_scalar(lambda at: float(penalty(np.array([at]))[0]), bounds=around, method="bounded")
        return (1 + self.tries.eta) * min(float(values[best]), float(result.fun))


def invert(profile: Profile, delta: float) -> float:
    """The smallest epsilon with profile delta <= `delta`, rounded up by at most a relative 1e-12; else infinity."""
    if float(profile.delta(np.zeros(1))[0]) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while float(profile.delta(np.array([high]))[0]) > delta:
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if float(profile.delta(np.array([middle]))[0]) <= delta else (middle, high)
    return high
