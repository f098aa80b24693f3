"""The smallest noise whose *whole plan* fits the epsilon that was asked for, rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from accounting.errors import BadInput

LARGEST_NOISE = 1e6
SMALLEST_NOISE = 1e-2
DIGITS = 4
"""Significant digits of a calibrated noise multiplier: .1 % at worst, and stable across platforms."""


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float) -> float:
    """The noise multiplier, rounded up to four significant digits, at which `epsilon_of` is at most `epsilon`.

    *Guarantee*: `epsilon_of(calibrate_noise(epsilon_of, epsilon)) <= epsilon`, checked before returning, for any
    `epsilon_of` that does not grow with its argument. Raises `BadInput` where no noise is enough.

    >>> calibrate_noise(lambda noise: 1 / noise, 3.0)
    0.3334
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"Expected privacy.epsilon={epsilon} > 0 and finite.")
    if epsilon_of(LARGEST_NOISE) > epsilon:
        raise BadInput(
            f"No noise brings this plan to epsilon={epsilon:g}; the least that it can cost is "
            f"{epsilon_of(LARGEST_NOISE):.4g}. Ask for more, or shrink the grid."
        )
    if epsilon_of(SMALLEST_NOISE) <= epsilon:
        return SMALLEST_NOISE
    low, high = _bracket(epsilon_of, epsilon)
    root = brentq(lambda log_noise: epsilon_of(math.exp(log_noise)) - epsilon, low, high, xtol=1e-5, rtol=1e-5)
    noise = _round_up(math.exp(root))
    while epsilon_of(noise) > epsilon:
        noise = _round_up(noise * (1 + 10.0 ** (1 - DIGITS)))
    return noise


def _bracket(epsilon_of: Callable[[float], float], epsilon: float) -> tuple[float, float]:
    """Logarithms of two noise multipliers, a factor of 2 apart, with the target between them."""
    noise = 1.0
    while epsilon_of(noise) > epsilon:
        noise *= 2
    while epsilon_of(noise / 2) <= epsilon:
        noise /= 2
    return math.log(noise / 2), math.log(noise)


def _round_up(value: float) -> float:
    """`value` rounded up to `DIGITS` significant digits.

    >>> _round_up(2.00001), _round_up(0.5)
    (2.001, 0.5)
    """
    scale = DIGITS - 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10.0**scale, 6)) / 10.0**scale:.{DIGITS}g}")
