"""Tail probabilities of the best of K tries, from those of one try, without loss of precision.

If one try's score is below s with probability x, the best score is below s with probability E[x^K]. If one try's score
is above s with probability x, the best is above s with probability 1 - E[(1 - x)^K]. Generating functions alone lose
the digits of small tails; the formulas here keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsweep.accounting.events.trial_counts import SERIES, NegativeBinomial, Poisson, Stopping


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Exactly `count` tries: not a private rule, but a reference for tests of the attack."""

    count: int

    @property
    def mean(self) -> float:
        """E[K]."""
        return float(self.count)


Law = NegativeBinomial | Poisson | Stopping | Fixed


def winner_below(law: Law, below: np.ndarray) -> np.ndarray:
    """P(there is a winner and its score is below s), from P(one try is below s)."""
    return np.asarray(_TAILS[type(law)][0](law, below))


def winner_above(law: Law, above: np.ndarray) -> np.ndarray:
    """P(there is a winner and its score is above s), from P(one try is above s)."""
    return np.asarray(_TAILS[type(law)][1](law, above))


def chance_of_any(law: Stopping, good: np.ndarray) -> np.ndarray:
    """P(any try is good) / P(one try is good): the mean number of tries until the first good one or the stop."""
    go_on = (1 - law.gamma) * (1 - good)
    return np.asarray((1 - go_on**law.limit) / (law.gamma + (1 - law.gamma) * good))


def _negative_binomial_below(law: NegativeBinomial, x: np.ndarray) -> np.ndarray:
    if law.gamma == 1:
        return x
    one, all_ = np.log1p(-(1 - law.gamma) * x), np.log(law.gamma)
    if abs(law.eta) < SERIES:
        return np.asarray(one / all_)
    return np.asarray(np.expm1(-law.eta * one) / np.expm1(-law.eta * all_))


def _negative_binomial_above(law: NegativeBinomial, x: np.ndarray) -> np.ndarray:
    if law.gamma == 1:
        return x
    one, all_ = np.log1p((1 - law.gamma) / law.gamma * x), -np.log(law.gamma)
    if abs(law.eta) < SERIES:
        return np.asarray(one / all_)
    return np.asarray(np.expm1(-law.eta * one) / np.expm1(-law.eta * all_))


def _poisson_below(law: Poisson, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(law.mean * (x - 1)) * -np.expm1(-law.mean * x))


def _poisson_above(law: Poisson, x: np.ndarray) -> np.ndarray:
    return np.asarray(-np.expm1(-law.mean * x))


def _stopping_below(law: Stopping, x: np.ndarray) -> np.ndarray:
    go_on = (1 - law.gamma) * x
    last = go_on ** (law.limit - 1)
    return np.asarray(x * (law.gamma * (1 - last) / (1 - go_on) + last))


def _stopping_above(law: Stopping, x: np.ndarray) -> np.ndarray:
    return np.asarray(x * chance_of_any(law, x))


def _fixed_below(law: Fixed, x: np.ndarray) -> np.ndarray:
    return np.asarray(x**law.count)


def _fixed_above(law: Fixed, x: np.ndarray) -> np.ndarray:
    return np.asarray(-np.expm1(law.count * np.log1p(-np.minimum(x, 1.0 - 2**-53))))


_TAILS: Mapping[type, tuple[Callable[[Any, np.ndarray], np.ndarray], Callable[[Any, np.ndarray], np.ndarray]]] = {
    NegativeBinomial: (_negative_binomial_below, _negative_binomial_above),
    Poisson: (_poisson_below, _poisson_above),
    Stopping: (_stopping_below, _stopping_above),
    Fixed: (_fixed_below, _fixed_above),
}
