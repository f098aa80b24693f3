"""Probabilities of the winner of K tries, from those of one try, without loss of the digits of small ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpsweep.accounting.events.trial_counts import (
    SERIES,
    Capped,
    EachPoint,
    Fixed,
    NegativeBinomial,
    Poisson,
    Stopping,
    Tries,
)


def generating_rise(tries: Tries, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """f(low + step) - f(low) for the generating function f, without loss of digits where the step is small."""
    return np.asarray(_RISES[type(tries)](tries, np.minimum(low, 1.0), np.minimum(step, 1.0)))


def _negative_binomial(tries: NegativeBinomial, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    if tries.gamma == 1:
        return step
    base = np.maximum((1 - low) + tries.gamma * low, tries.gamma)
    growth = -np.log1p(-np.minimum((1 - tries.gamma) * step / base, 1 - 1e-16))
    if abs(tries.eta) < SERIES:
        return np.asarray(growth / -math.log(tries.gamma))
    scale = base**-tries.eta / math.expm1(-tries.eta * math.log(tries.gamma))
    return np.asarray(scale * np.expm1(tries.eta * growth))


def _poisson(tries: Poisson, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    top = np.minimum(low + step, 1.0)
    return np.asarray(np.exp(tries.mean * (top - 1)) * -np.expm1(-tries.mean * step))


def _stopping(tries: Stopping, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """f(u) = gamma u / (1 - h u) + (h u)^limit (1 - u) / (1 - h u) with h = 1 - gamma, as a sum of positive terms."""
    go_on, high = 1 - tries.gamma, np.minimum(low + step, 1.0)
    below, above = 1 - go_on * low, 1 - go_on * high
    early = tries.gamma * step / (below * above) * (1 - (go_on * low) ** tries.limit)
    return np.asarray(
        early + go_on**tries.limit * _fixed_rise(Fixed(count=tries.limit), low, step) * (1 - high) / above
    )


def _capped_rise(tries: Capped, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The divided difference of a polynomial with positive coefficients, by two nested Horner schemes."""
    high = low + step
    *coefficients, last = tries.chances(tries.limit)[1:].tolist()
    value = quotient = np.full(np.shape(low), last)
    for coefficient in reversed(coefficients):
        value = value * high + coefficient
        quotient = quotient * low + value
    return np.asarray(quotient * step)


def _fixed_rise(tries: Fixed, low: np.ndarray, step: np.ndarray) -> np.ndarray:
    small = step < 1e-3 * low
    base = np.where(small, low, 1.0)
    growth = np.expm1(tries.count * np.log1p(np.where(small, step, 0.0) / base))
    return np.asarray(np.where(small, base**tries.count * growth, (low + step) ** tries.count - low**tries.count))


_RISES: Mapping[type, Callable[[Any, np.ndarray, np.ndarray], np.ndarray]] = {
    NegativeBinomial: _negative_binomial,
    Poisson: _poisson,
    Fixed: _fixed_rise,
    EachPoint: _fixed_rise,  # equal points are independent tries
    Capped: _capped_rise,
    Stopping: _stopping,
}


def chance_of_any(tries: Stopping, good: np.ndarray) -> np.ndarray:
    """P(any try is good) / P(one try is good): the mean number of tries until the first good one or the stop."""
    go_on = (1 - tries.gamma) * (1 - good)
    return np.asarray((1 - go_on**tries.limit) / (tries.gamma + (1 - tries.gamma) * good))
