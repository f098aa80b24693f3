"""The smallest noise whose *whole plan* fits the epsilon that was asked for, rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.optimize import brentq

from accounting.errors import BadInput

LARGEST_NOISE = 1e6
SMALLEST_NOISE = 1e-2
DIGITS = 4
"""Significant digits of a calibrated noise multiplier: .1 % at worst, and stable across platforms."""


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float, start: float = 1.0) -> float:
    """The noise multiplier, rounded up to four significant digits, at which `epsilon_of` is at most `epsilon`.

    *Guarantee*: `epsilon_of(calibrate_noise(epsilon_of, epsilon)) <= epsilon`, checked before returning, for any
    `epsilon_of` that does not grow with its argument. `start` is where the search begins and changes its length only.
    Raises `BadInput` where no noise is enough.

    >>> calibrate_noise(lambda noise: 1 / noise, 3.0)
    0.3334
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"Expected privacy.epsilon={epsilon} > 0 and finite.")
    price = lru_cache(maxsize=None)(epsilon_of)
    low, high = _bracket(price, epsilon, start)
    if low == high:
        return high
    noise = _round_up(brentq(lambda value: price(value) - epsilon, low, high, xtol=1e-5 * low, rtol=1e-5))
    while price(noise) > epsilon:
        noise = _round_up(noise * (1 + 10.0 ** (1 - DIGITS)))
    return noise


def _bracket(price: Callable[[float], float], epsilon: float, start: float) -> tuple[float, float]:
    """Two noise multipliers with the target between them, the distance growing as the search goes on."""
    dear, cheap, factor = 0.0, math.inf, 1.1
    noise = min(max(start, SMALLEST_NOISE), LARGEST_NOISE)
    while dear == 0 or cheap == math.inf:
        if price(noise) > epsilon:
            if noise == LARGEST_NOISE:
                raise BadInput(
                    f"No noise brings this plan to epsilon={epsilon:g}; the least that it can cost is "
                    f"{price(noise):.4g}. Ask for more, or shrink the grid."
                )
            dear, noise = noise, min(noise * factor, LARGEST_NOISE)
        else:
            if noise == SMALLEST_NOISE:
                return noise, noise
            cheap, noise = noise, max(noise / factor, SMALLEST_NOISE)
        factor **= 1.5
    return dear, cheap


def _round_up(value: float) -> float:
    """`value` rounded up to `DIGITS` significant digits.

    >>> _round_up(2.00001), _round_up(0.5)
    (2.001, 0.5)
    """
    scale = DIGITS - 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10.0**scale, 6)) / 10.0**scale:.{DIGITS}g}")
