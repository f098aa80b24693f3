"""Distributions of a number of tries that has a largest value: with a limit, or fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np

from dpsweep.accounting import numbers
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import FAR_TRIES, NegativeBinomial, Poisson


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """After each try the search stops with probability gamma; it always stops after `limit` tries.

    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Algorithm 2.
    """

    gamma: float
    limit: int

    def __post_init__(self) -> None:
        numbers.share("gamma", self.gamma)
        numbers.whole("limit", self.limit, 1)

    @property
    def mean(self) -> float:
        """E[K]."""
        return -math.expm1(self.limit * math.log1p(-self.gamma)) / self.gamma if self.gamma < 1 else 1.0

    def generating(self, x: float) -> float:
        """E[x^K]."""
        go_on = (1 - self.gamma) * x
        return self.gamma * x * (1 - go_on ** (self.limit - 1)) / (1 - go_on) + x * go_on ** (self.limit - 1)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """E[K x^(K - 1)]."""
        return self._capped.slope(x)

    def beyond(self, limit: int) -> float:
        """P(K > limit)."""
        return (1 - self.gamma) ** limit if limit < self.limit else 0.0

    def chances(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`."""
        return self._capped.chances(most)

    @cached_property
    def _capped(self) -> Capped:
        """The same law: a geometric one with a limit."""
        return Capped(tries=NegativeBinomial(eta=1.0, gamma=self.gamma), limit=self.limit)

    def sample(self, rng: Random) -> int:
        """One draw, by one Bernoulli draw after each try."""
        count = 1
        while count < self.limit and rng.random() >= self.gamma:
            count += 1
        return count


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Exactly `count` tries, drawn with replacement."""

    count: int

    def __post_init__(self) -> None:
        numbers.positive_int("count", self.count)

    @property
    def mean(self) -> float:
        """`count`."""
        return float(self.count)

    def generating(self, x: float) -> float:
        """x^count."""
        return float(x) ** self.count

    def slope(self, x: np.ndarray) -> np.ndarray:
        """count x^(count - 1)."""
        return np.asarray(self.count * np.asarray(x, dtype=float) ** (self.count - 1))

    def beyond(self, limit: int) -> float:
        """1 below `count`, else 0."""
        return float(limit < self.count)

    def chances(self, most: int) -> np.ndarray:
        """All of the probability at `count`."""
        return np.asarray(np.arange(most + 1) == self.count, dtype=float)

    def sample(self, rng: Random) -> int:
        """`count`."""
        return self.count


@dataclass(frozen=True, kw_only=True)
class EachPoint(Fixed):
    """Each of `count` points exactly once; the points are not drawn."""


MOST_TRIES = 20_000
"""The largest limit of a `Capped` law: its slope is a polynomial of this degree."""


@dataclass(frozen=True, kw_only=True)
class Capped:
    """min(K, limit): the number of tries of a search that ends after `limit` tries at the latest."""

    tries: NegativeBinomial | Poisson
    limit: int

    def __post_init__(self) -> None:
        numbers.positive_int("limit", self.limit)

    @property
    def mean(self) -> float:
        """E[min(K, limit)]."""
        return float(self.slope(np.ones(1))[0])

    def generating(self, x: float) -> float:
        """E[x^min(K, limit)]."""
        return float(np.polynomial.polynomial.polyval(x, self._chances))

    def slope(self, x: np.ndarray) -> np.ndarray:
        """E[min(K, limit) x^(min(K, limit) - 1)]; far below 1, where the limit is not felt, that of the whole law."""
        points, back = np.unique(np.asarray(x, dtype=float), return_inverse=True)
        values = self.tries.slope(points)
        felt = points > math.exp(-_NOT_FELT / self.limit)
        weights = self._chances[1:] * np.arange(1, self.limit + 1)
        values[felt] = np.polynomial.polynomial.polyval(points[felt], weights)
        return np.asarray(values[back])

    def beyond(self, limit: int) -> float:
        """P(min(K, limit of this law) > limit)."""
        return self.tries.beyond(limit) if limit < self.limit else 0.0

    def chances(self, most: int) -> np.ndarray:
        """P(min(K, limit) = k) for k from 0 to `most`."""
        return np.pad(self._chances, (0, max(0, most - self.limit)))[: most + 1]

    def sample(self, rng: Random) -> int:
        """One draw."""
        return min(self.tries.sample(rng), self.limit)

    @cached_property
    def _chances(self) -> np.ndarray:
        """The probabilities up to the limit; the last is P(K >= limit), as a sum of positive numbers."""
        if self.limit > MOST_TRIES:
            raise UnsupportedEvent(f"Expected limit={self.limit} <= {MOST_TRIES} for this bound; use RDP.")
        far = self.limit + 1000
        while (chances := self.tries.chances(far))[-1] > 1e-30 * chances[self.limit :].sum():
            far *= 2
            if far > FAR_TRIES:
                raise UnsupportedEvent(f"Expected a mean={self.tries.mean:.3g} far below 1e5 for this bound; use RDP.")
        return np.append(chances[: self.limit], chances[self.limit :].sum())


_NOT_FELT = 60.0  # x^limit below exp(-60) changes no slope by more than a relative 1e-20
