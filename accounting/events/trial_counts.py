"""Distributions of the secret number of tries K in a random search; the distribution is public, the draw is secret.

A distribution is part of a privacy event, so it is a frozen value. The success of a search follows from its generating
function E[x^K]: K independent draws contain one of the best share s of all points with probability 1 - E[(1 - s)^K].
Rules are compared by this probability, because the mean alone favours distributions that are often 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from random import Random
from typing import Annotated, Protocol

import numpy as np

from dpsweep.accounting import validation
from dpsweep.accounting.codec import Checked, Positive, PositiveInt, Share, Tagged
from dpsweep.accounting.errors import UnsupportedEvent

FAR_TRIES = 2_000_000
"""The largest number of probabilities that are summed one by one."""

SERIES = 1e-6
"""Below this |eta| the formulas lose precision; the logarithmic distribution, their limit, is used instead."""


class Tries(Protocol):
    """The distribution of a number of tries K."""

    @property
    def mean(self) -> float:
        """E[K]."""

    def generating_function(self, x: float) -> float:
        """E[x^K] for 0 <= x <= 1; it increases from P(K = 0) to 1."""

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """E[K x^(K - 1)] at each 0 <= x <= 1, shape [n]: the derivative of `generating_function`."""

    def probability_beyond(self, limit: int) -> float:
        """P(K > limit), rounded up by less than 1e-12."""

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`, shape [most + 1]."""

    def sample(self, rng: Random) -> int:
        """One secret draw."""


def chance_to_draw_best_share(tries: Tries, share: float) -> float:
    """The probability that K independent uniform draws contain one of the best `share` of all points.

    >>> round(chance_to_draw_best_share(NegativeBinomial.with_mean(eta=1.0, mean=40.0), 1 / 35), 2)
    0.54
    """
    validation.share("share", share)
    return 1 - tries.generating_function(1 - share)


@dataclass(frozen=True, kw_only=True)
class NegativeBinomial(Tagged):
    """Truncated negative binomial: P(K = k) in proportion to (1 - gamma)^k prod_{l < k} (l + eta) / (l + 1), k >= 1.

    eta = 1 is geometric, eta = 0 logarithmic; gamma = 1 is exactly one try.
    *Source*: Papernot and Steinke 2022 (Hyperparameter Tuning with Renyi Differential Privacy), Definition 1.
    """

    eta: Annotated[float, partial(validation.require_number_between, above=-1)]
    gamma: Share

    @classmethod
    def with_mean(cls, *, eta: float, mean: float) -> NegativeBinomial:
        """The distribution with this eta and mean; the mean is at least 1."""
        return cls(eta=float(eta), gamma=_gamma_for_mean(float(eta), float(mean)))

    @property
    def mean(self) -> float:
        """E[K]."""
        if self.gamma == 1:
            return 1.0
        odds, log = (1 - self.gamma) / self.gamma, math.log(self.gamma)
        if abs(self.eta) < SERIES:
            return odds / -log
        return self.eta * odds / -math.expm1(self.eta * log)

    def generating_function(self, x: float) -> float:
        """E[x^K]."""
        if self.gamma == 1:
            return float(x)
        log, at_x = math.log(self.gamma), math.log((1 - x) + self.gamma * x)
        if abs(self.eta) < SERIES:
            return at_x / log
        return math.expm1(-self.eta * at_x) / math.expm1(-self.eta * log)

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """E[K x^(K - 1)] = P(K = 1) (1 - (1 - gamma) x)^-(1 + eta)."""
        return np.asarray(self._probability_of_one_try() * ((1 - x) + self.gamma * x) ** (-1 - self.eta))

    def probability_beyond(self, limit: int) -> float:
        """P(K > limit), rounded up: the sum of these probabilities, or 1 minus the others if these are too many."""
        far = limit + math.ceil(80 / self.gamma)
        if far > FAR_TRIES:
            return min(1.0, max(0.0, 1 - float(self.probabilities_up_to(limit).sum())) + 1e-13 * limit)
        chances = self.probabilities_up_to(far)
        ratio = max(self._ratio_of_successive_probabilities(far), 1 - self.gamma)
        return min(1.0, float(chances[limit + 1 :].sum() + chances[-1] * ratio / (1 - ratio)) * (1 + 4e-16 * far))

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`, by the ratios of successive probabilities."""
        k = np.arange(1, most, dtype=float)
        ratios = (1 - self.gamma) * (k + self.eta) / (k + 1)
        return np.concatenate([[0.0], self._probability_of_one_try() * np.cumprod(np.append(1.0, ratios))])[: most + 1]

    def sample(self, rng: Random) -> int:
        """One draw by inversion."""
        return _draw_by_inversion(1, self._probability_of_one_try(), self._ratio_of_successive_probabilities, rng)

    def _probability_of_one_try(self) -> float:
        """P(K = 1)."""
        if self.gamma == 1:
            return 1.0
        if abs(self.eta) < SERIES:
            return (1 - self.gamma) / -math.log(self.gamma)
        return self.eta * (1 - self.gamma) / math.expm1(-self.eta * math.log(self.gamma))

    def _ratio_of_successive_probabilities(self, k: int) -> float:
        """P(K = k + 1) / P(K = k)."""
        return (1 - self.gamma) * (k + self.eta) / (k + 1)


@dataclass(frozen=True, kw_only=True)
class Poisson(Tagged):
    """Poisson: K = 0 with probability e^-mean, and then the search outputs nothing.

    *Source*: Papernot and Steinke 2022, Theorem 6.
    """

    mean: Positive

    def generating_function(self, x: float) -> float:
        """E[x^K]."""
        return math.exp(self.mean * (x - 1))

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """E[K x^(K - 1)]."""
        return np.asarray(self.mean * np.exp(self.mean * (x - 1)))

    def probability_beyond(self, limit: int) -> float:
        """P(K > limit)."""
        from scipy.special import pdtrc

        return float(pdtrc(limit, self.mean))

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`."""
        from scipy.special import gammaln

        k = np.arange(most + 1)
        return np.asarray(np.exp(k * math.log(self.mean) - self.mean - gammaln(k + 1)))

    def sample(self, rng: Random) -> int:
        """One draw, as the number of exponential waiting times that fit into the mean."""
        time, count = rng.expovariate(1.0), 0
        while time <= self.mean:
            time, count = time + rng.expovariate(1.0), count + 1
        return count


@dataclass(frozen=True, kw_only=True)
class Stopping(Tagged):
    """After each try the search stops with probability gamma; it always stops after `limit` tries.

    *Source*: Liu and Talwar 2019 (Private Selection from Private Candidates), Algorithm 2.
    """

    gamma: Share
    limit: PositiveInt

    @property
    def mean(self) -> float:
        """E[K]."""
        return -math.expm1(self.limit * math.log1p(-self.gamma)) / self.gamma if self.gamma < 1 else 1.0

    def generating_function(self, x: float) -> float:
        """E[x^K]."""
        go_on = (1 - self.gamma) * x
        return self.gamma * x * (1 - go_on ** (self.limit - 1)) / (1 - go_on) + x * go_on ** (self.limit - 1)

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """E[K x^(K - 1)]."""
        return self._as_capped_law.generating_function_slope(x)

    def probability_beyond(self, limit: int) -> float:
        """P(K > limit)."""
        return (1 - self.gamma) ** limit if limit < self.limit else 0.0

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`."""
        return self._as_capped_law.probabilities_up_to(most)

    @cached_property
    def _as_capped_law(self) -> Capped:
        """The same law: a geometric one with a limit."""
        return Capped(tries=NegativeBinomial(eta=1.0, gamma=self.gamma), limit=self.limit)

    def sample(self, rng: Random) -> int:
        """One draw, by one Bernoulli draw after each try."""
        count = 1
        while count < self.limit and rng.random() >= self.gamma:
            count += 1
        return count


@dataclass(frozen=True, kw_only=True)
class Fixed(Tagged):
    """Exactly `count` tries, drawn with replacement."""

    count: PositiveInt

    @property
    def mean(self) -> float:
        """`count`."""
        return float(self.count)

    def generating_function(self, x: float) -> float:
        """x^count."""
        return float(x) ** self.count

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """count x^(count - 1)."""
        return np.asarray(self.count * np.asarray(x, dtype=float) ** (self.count - 1))

    def probability_beyond(self, limit: int) -> float:
        """1 below `count`, else 0."""
        return float(limit < self.count)

    def probabilities_up_to(self, most: int) -> np.ndarray:
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
class Capped(Checked):
    """min(K, limit): the number of tries of a search that ends after `limit` tries at the latest."""

    tries: NegativeBinomial | Poisson
    limit: PositiveInt

    @property
    def mean(self) -> float:
        """E[min(K, limit)]."""
        return float(self.generating_function_slope(np.ones(1))[0])

    def generating_function(self, x: float) -> float:
        """E[x^min(K, limit)]."""
        return float(np.polynomial.polynomial.polyval(x, self._probabilities_up_to_limit))

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """E[min(K, limit) x^(min(K, limit) - 1)]; far below 1, where the limit is not felt, that of the whole law."""
        points, back = np.unique(np.asarray(x, dtype=float), return_inverse=True)
        values = self.tries.generating_function_slope(points)
        felt = points > math.exp(-_NOT_FELT / self.limit)
        weights = self._probabilities_up_to_limit[1:] * np.arange(1, self.limit + 1)
        values[felt] = np.polynomial.polynomial.polyval(points[felt], weights)
        return np.asarray(values[back])

    def probability_beyond(self, limit: int) -> float:
        """P(min(K, limit of this law) > limit)."""
        return self.tries.probability_beyond(limit) if limit < self.limit else 0.0

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(min(K, limit) = k) for k from 0 to `most`."""
        return np.pad(self._probabilities_up_to_limit, (0, max(0, most - self.limit)))[: most + 1]

    def sample(self, rng: Random) -> int:
        """One draw."""
        return min(self.tries.sample(rng), self.limit)

    @cached_property
    def _probabilities_up_to_limit(self) -> np.ndarray:
        """The probabilities up to the limit; the last is P(K >= limit), as a sum of positive numbers."""
        if self.limit > MOST_TRIES:
            raise UnsupportedEvent(f"Expected limit={self.limit} <= {MOST_TRIES} for this bound; use RDP.")
        far = self.limit + 1000
        while (chances := self.tries.probabilities_up_to(far))[-1] > 1e-30 * chances[self.limit :].sum():
            far *= 2
            if far > FAR_TRIES:
                raise UnsupportedEvent(f"Expected a mean={self.tries.mean:.3g} far below 1e5 for this bound; use RDP.")
        return np.append(chances[: self.limit], chances[self.limit :].sum())


_NOT_FELT = 60.0  # x^limit below exp(-60) changes no slope by more than a relative 1e-20


@lru_cache(maxsize=256)
def _gamma_for_mean(eta: float, mean: float) -> float:
    """The gamma at which a truncated negative binomial distribution has this mean.

    Identities of plans contain it, so it is Brent's root to the last bit.
    """
    from scipy.optimize import brentq  # a tenth of `import torch`, and most plans solve for no gamma

    if not (math.isfinite(mean) and mean >= 1):
        raise ValueError(f"Expected mean={mean} >= 1 and finite.")
    if mean == 1:
        return 1.0

    def log_mean_above_target(log_gamma: float) -> float:
        return math.log(NegativeBinomial(eta=eta, gamma=math.exp(log_gamma)).mean) - math.log(mean)

    lowest = -1.0
    while log_mean_above_target(lowest) < 0:
        lowest *= 2
        if lowest < -600:
            raise ValueError(f"Expected mean={mean} to be reachable with eta={eta}.")
    if log_mean_above_target(-1e-12) >= 0:
        return 1.0
    return math.exp(brentq(log_mean_above_target, lowest, -1e-12, xtol=1e-14, rtol=1e-14))


def _draw_by_inversion(start: int, first: float, ratio: Callable[[int], float], rng: Random) -> int:
    """One draw by inversion, from P(K = start) and the ratios of successive probabilities."""
    u, k, probability = rng.random(), start, first
    while u >= probability and probability > 0:
        u -= probability
        probability *= ratio(k)
        k += 1
    return k
