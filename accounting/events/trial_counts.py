"""Laws of the secret number of tries K in a random search; the law is public, the draw is secret.

Prices are computed from the slope f' of the generating function f(x) = E[x^K], which each law says to a relative 1e-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Annotated

import numpy as np

from dpsweep.accounting.codec import Checked, Positive, PositiveInt, Share, Tagged, number_in
from dpsweep.accounting.errors import UnsupportedEvent

FAR_TRIES = 2_000_000  # the most probabilities that are summed one by one
MOST_TRIES = 20_000  # the largest limit of a `Capped` law: its slope is a polynomial of this degree
SERIES = 1e-100  # below this |eta| the logarithmic law, the limit, is used: products with eta lose digits


@dataclass(frozen=True, kw_only=True)
class NegativeBinomial(Tagged):
    """Truncated negative binomial: P(K = k) in proportion to (1 - gamma)^k prod_{l < k} (l + eta) / (l + 1), k >= 1.

    eta = 1 is geometric, eta = 0 logarithmic; gamma = 1 is exactly one try.
    *Source*: Papernot and Steinke 2022 (Hyperparameter Tuning with Renyi Differential Privacy), Definition 1.
    """

    eta: Annotated[float, number_in("(-1, inf)")]
    gamma: Share

    @classmethod
    def with_mean(cls, *, eta: float, mean: float) -> NegativeBinomial:
        """The law with this eta and mean >= 1; identities of plans contain Brent's root, to the last bit."""
        from scipy.optimize import brentq  # a tenth of `import torch`, and most plans solve for no gamma

        if not 1 <= mean < math.inf:
            raise ValueError(f"Expected mean={mean} >= 1 and finite.")

        def excess(log_gamma: float) -> float:
            return math.log(cls(eta=float(eta), gamma=math.exp(log_gamma)).mean) - math.log(mean)

        lowest = -1.0
        while excess(lowest) < 0:
            lowest *= 2
            if lowest < -600:
                raise ValueError(f"Expected mean={mean} to be reachable with eta={eta}.")
        one = mean == 1 or excess(-1e-12) >= 0
        root = 0.0 if one else brentq(excess, lowest, -1e-12, xtol=1e-14, rtol=1e-14)
        return cls(eta=float(eta), gamma=math.exp(root))

    @property
    def mean(self) -> float:
        """E[K]."""
        if self.gamma == 1:
            return 1.0
        odds, log = (1 - self.gamma) / self.gamma, math.log(self.gamma)
        if abs(self.eta) < SERIES:
            return odds / -log
        return self.eta * odds / -math.expm1(self.eta * log)

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """f'(x) = E[K x^(K - 1)] at each 0 <= x <= 1, shape [n]."""
        return np.asarray(self.mean * (self.gamma / ((1 - x) + self.gamma * x)) ** (1 + self.eta))

    def probability_beyond(self, limit: int) -> float:
        """P(K > limit): a sum, and a geometric series above the rest, which is less than exp(-80) of it."""
        far = limit + math.ceil((80 + 2 * max(0.0, self.eta)) / self.gamma)
        if far > FAR_TRIES:
            raise UnsupportedEvent(
                f"Expected {self} with a limit to have a mean far below 1e5 for this bound; use RDP."
            )
        chances, ratio = self.probabilities_up_to(far), (1 - self.gamma) * max(1.0, (far + self.eta) / (far + 1))
        return min(1.0, float(chances[limit + 1 :].sum() + chances[-1] * ratio / (1 - ratio)))

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(K = k) for k from 0 to `most`, by the ratios of successive probabilities; shape [most + 1]."""
        first, k = self.generating_function_slope(np.zeros(1)), np.arange(1, most, dtype=float)
        if first < 1e-300:  # floating point has no digits there, nor in what follows
            raise UnsupportedEvent(f"Expected {self} to have a smaller eta.")
        ratios = (1 - self.gamma) * (k + self.eta) / (k + 1)
        return np.append(0.0, np.cumprod(np.append(first, ratios)))[: most + 1]


@dataclass(frozen=True, kw_only=True)
class Poisson(Tagged):
    """Poisson: K = 0 with probability e^-mean, and then the search outputs nothing.

    *Source*: Papernot and Steinke 2022, Theorem 6.
    """

    mean: Positive

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """f'(x)."""
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


@dataclass(frozen=True, kw_only=True)
class EachPoint(Tagged):
    """Each of `count` points exactly once; the points are not drawn."""

    count: PositiveInt

    @property
    def mean(self) -> float:
        """`count`."""
        return float(self.count)

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """f'(x) = count x^(count - 1)."""
        return np.asarray(self.count * np.asarray(x, dtype=float) ** (self.count - 1))

    def probability_beyond(self, limit: int) -> float:
        """1 below `count`, else 0."""
        return float(limit < self.count)


@dataclass(frozen=True, kw_only=True)
class Capped(Checked):
    """min(K, limit): the number of tries of a search that ends after `limit` tries at the latest."""

    tries: NegativeBinomial | Poisson
    limit: PositiveInt

    @property
    def mean(self) -> float:
        """E[min(K, limit)]."""
        return float(self.generating_function_slope(np.ones(1))[0])

    def generating_function_slope(self, x: np.ndarray) -> np.ndarray:
        """f'(x)."""
        weights = self.probabilities_up_to(self.limit)[1:] * np.arange(1, self.limit + 1)
        return np.asarray(np.polynomial.polynomial.polyval(np.asarray(x, dtype=float), weights))

    def probability_beyond(self, limit: int) -> float:
        """P(min(K, limit of this law) > limit)."""
        return self.tries.probability_beyond(limit) if limit < self.limit else 0.0

    def probabilities_up_to(self, most: int) -> np.ndarray:
        """P(min(K, limit) = k) for k from 0 to `most`; the last is P(K >= limit)."""
        if self.limit > MOST_TRIES:
            raise UnsupportedEvent(f"Expected limit={self.limit} <= {MOST_TRIES} for this bound; use RDP.")
        last = self.tries.probability_beyond(self.limit - 1)
        return np.append(self.tries.probabilities_up_to(self.limit - 1), last)[: most + 1]


Tries = NegativeBinomial | Poisson | EachPoint | Capped  # what a search of the best try is priced with


def draw_number(tries: NegativeBinomial | Poisson | Stopping, limit: int | None, rng: Random) -> int:
    """One secret draw of min(K, limit), by inversion: the first k with P(K <= k) of at least a uniform number."""
    if isinstance(tries, Stopping):
        return draw_number(NegativeBinomial(eta=1.0, gamma=tries.gamma), tries.limit, rng)
    share, most = 1 - rng.random(), limit or 1000 + 2 * math.ceil(tries.mean)
    chances = tries.probabilities_up_to(most)
    while limit is None and chances[-1] > 0 and chances.sum() < share:
        most *= 2
        chances = tries.probabilities_up_to(most)
    return int(np.searchsorted(np.append(np.cumsum(chances)[:-1], 1.0), share))
