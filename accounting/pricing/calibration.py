"""Calibration: the smallest noise, or the most runs or steps, at which the *whole plan* meets a target epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.root_finding import brent

LARGEST_NOISE = 1e6
SMALLEST_NOISE = 1e-2
DIGITS, MORE_DIGITS = 4, 6
"""Significant digits of a calibrated noise multiplier: an error of .1 % at most, and stable across platforms.

It has more digits where the price is so steep that rounding makes it less than `TIGHT` of its target.
"""

TIGHT = 0.995

SMALLEST_EPSILON = 1e-12
LARGEST_COUNT = 10**9

CLOSE = 1e-3
"""A secant step in log noise below this leaves an error of about its square, far below the rounding of the result."""

SECANTS, LONGEST_STEP = 12, 1.5
"""The largest number and length of steps in log noise; a price that is not met then is bracketed and bisected."""

CORRECTIONS = 4
"""Steps of the last digit above a secant's root; a price that is above its target there has a floor near it."""

FAR_FROM_FLAT = (0.1, 10.0)
"""Slopes of the log-log curve, without their sign, at which secants go on."""


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float, start: float = 1.0) -> float:
    """The noise multiplier, rounded up to four significant digits, at which `epsilon_of` is at most `epsilon`.

    *Guarantee*: `epsilon_of(calibrate_noise(epsilon_of, epsilon)) <= epsilon`, checked before returning, for any
    `epsilon_of` that does not grow with its argument. The search begins at `start`, which changes only its length.
    Where four digits leave more than .5 % of `epsilon`, there are six. Raises `BadInput` if no noise is enough.

    >>> calibrate_noise(lambda noise: 1 / noise, 3.0), calibrate_noise(lambda noise: 1 / noise**8, 1 - 1e-4)
    (0.3334, 1.00002)
    """
    _check_target_epsilon(epsilon)
    price = lru_cache(maxsize=None)(epsilon_of)
    noise = _least_noise_of_digits(price, epsilon, start, DIGITS)
    if price(noise) >= TIGHT * epsilon:
        return noise
    return min(noise, _least_noise_of_digits(price, epsilon, noise, MORE_DIGITS))


def _least_noise_of_digits(price: Callable[[float], float], epsilon: float, start: float, digits: int) -> float:
    """The noise multiplier, rounded up to so many significant digits, at which the price is at most epsilon."""
    root = _noise_by_secants(price, epsilon, start)
    near = None if root is None else _first_sufficient_noise_above(price, epsilon, root, digits)
    if near is not None:
        return near
    low, high = _noise_bracket(price, epsilon, start)
    if low == high:
        return high
    noise = _round_up_to_significant_digits(_noise_in_bracket(price, epsilon, low, high), digits)
    while price(noise) > epsilon:
        noise = _next_larger_rounded_noise(noise, digits)
    return noise


def least_sufficient_noise_near(epsilon_of: Callable[[float], float], epsilon: float, noise: float) -> float | None:
    """The smallest of the few noise multipliers up to `noise`, of four significant digits, that meets `epsilon`.

    None if `noise` does not meet it, or the smallest is farther away.

    >>> least_sufficient_noise_near(lambda noise: 1 / noise, 3.0, 0.3335)
    0.3334
    """
    if epsilon_of(noise) > epsilon:
        return None
    for _ in range(CORRECTIONS):
        noise, larger = _next_smaller_rounded_noise(noise), noise
        if epsilon_of(noise) > epsilon:
            return larger
    return None


def largest_affordable_count(
    epsilon_of: Callable[[int], float], epsilon: float, most: int = LARGEST_COUNT, start: int = 2
) -> int:
    """The largest count up to `most` at which `epsilon_of` is at most `epsilon`; 0 if not even one fits.

    For runs, steps or points: *Guarantee*: the count returned fits, for any `epsilon_of` that does not fall. The search
    begins at `start`, which changes only its length.

    >>> largest_affordable_count(lambda steps: 0.1 * steps, 1.0)
    10
    """
    _check_target_epsilon(epsilon)
    epsilon_of = lru_cache(maxsize=None)(epsilon_of)
    if most < 1 or epsilon_of(1) > epsilon:
        return 0
    fits, beyond, guess = (1, epsilon_of(1)), (most + 1, math.inf), start
    aside, last = 1, False
    while beyond[0] - fits[0] > 1:
        count = min(max(guess, fits[0] + 1), beyond[0] - 1)
        price = epsilon_of(count)
        side = price <= epsilon
        fits, beyond = ((count, price), beyond) if side else (fits, (count, price))
        aside = 2 * aside if side is last else 1
        last = side
        guess = _interpolated_count(fits, beyond, epsilon) + (aside - 1 if side else 1 - aside)
    return fits[0]


def _interpolated_count(fits: tuple[int, float], beyond: tuple[int, float], epsilon: float) -> int:
    """The count at which a price that grows as a power of it would meet epsilon; without an upper end, twice `low`."""
    (low, cheap), (high, dear) = fits, beyond
    if dear == math.inf:
        return 2 * low
    if cheap < SMALLEST_EPSILON or dear == cheap:
        return (low + high) // 2
    share = math.log(epsilon / cheap) / math.log(dear / cheap)
    return round(math.exp(math.log(low) + share * math.log(high / low)))


def _check_target_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"Expected privacy.epsilon={epsilon} > 0 and finite.")


def _noise_by_secants(price: Callable[[float], float], epsilon: float, start: float) -> float | None:
    """The noise at which the price meets epsilon, by secants in log-log scale, where the curve is nearly straight.

    None if the price is infinite, flat or beyond the limits of noise near the start.
    """
    start = min(max(start, SMALLEST_NOISE), LARGEST_NOISE)
    place, slope, excess = math.log(start), -1.0, _log_excess(price(start), epsilon)
    for _ in range(SECANTS):
        step = -excess / slope
        if abs(step) < CLOSE:
            return math.exp(place + step)
        place, before = place + min(max(step, -LONGEST_STEP), LONGEST_STEP), place
        if not math.log(SMALLEST_NOISE) < place < math.log(LARGEST_NOISE):
            return None
        excess, former = _log_excess(price(math.exp(place)), epsilon), excess
        slope = (excess - former) / (place - before)
        if not -FAR_FROM_FLAT[1] < slope < -FAR_FROM_FLAT[0]:
            return None
    return None


def _first_sufficient_noise_above(
    price: Callable[[float], float], epsilon: float, root: float, digits: int
) -> float | None:
    """The first noise from a root on at which the price is at most epsilon; None if it is not within some steps."""
    noise = _round_up_to_significant_digits(root, digits)
    for _ in range(CORRECTIONS):
        if price(noise) <= epsilon:
            return noise
        noise = _next_larger_rounded_noise(noise, digits)
    return None


def _next_larger_rounded_noise(noise: float, digits: int) -> float:
    """The next larger noise of so many digits."""
    return _round_up_to_significant_digits(noise * (1 + 10.0 ** (1 - digits)), digits)


def _next_smaller_rounded_noise(noise: float) -> float:
    """The next smaller noise of so many digits.

    >>> _next_smaller_rounded_noise(2.001), _next_smaller_rounded_noise(1.0)
    (2.0, 0.9999)
    """
    scale = DIGITS - 1 - math.floor(math.log10(noise))
    digits = round(noise * 10.0**scale)
    digits, scale = (10 * digits, scale + 1) if digits == 10 ** (DIGITS - 1) else (digits, scale)
    return float(f"{(digits - 1) / 10.0**scale:.{DIGITS}g}")


def _log_excess(cost: float, epsilon: float) -> float:
    """The logarithm of a cost over epsilon, within limits that keep it finite."""
    return math.log(min(max(cost, SMALLEST_EPSILON), 1 / SMALLEST_EPSILON)) - math.log(epsilon)


def _noise_in_bracket(price: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    """The noise at which the price meets epsilon; the log-log curve is nearly straight, so few evaluations suffice."""

    def log_excess_at(log_noise: float) -> float:
        return _log_excess(price(math.exp(log_noise)), epsilon)

    log_low, log_high = math.log(low), math.log(high)
    if log_excess_at(log_low) <= 0 or log_excess_at(log_high) >= 0:
        return high
    return math.exp(brent(log_excess_at, log_low, log_high, xtol=1e-5, rtol=1e-5))


def _noise_bracket(price: Callable[[float], float], epsilon: float, start: float) -> tuple[float, float]:
    """Two noise multipliers around the target; their distance grows during the search."""
    dear, cheap, factor = 0.0, math.inf, 1.1
    noise = min(max(start, SMALLEST_NOISE), LARGEST_NOISE)
    while dear == 0 or cheap == math.inf:
        if price(noise) > epsilon:
            if noise == LARGEST_NOISE:
                raise BadInput(
                    f"No noise brings this plan to epsilon={text_with_all_digits(epsilon)}; the least that it can cost "
                    "is "
                    f"{demand_and_remainder_texts(price(noise), epsilon)[0]}. Ask for more, or shrink the grid."
                )
            dear, noise = noise, min(noise * factor, LARGEST_NOISE)
        else:
            if noise == SMALLEST_NOISE:
                return noise, noise
            cheap, noise = noise, max(noise / factor, SMALLEST_NOISE)
        factor **= 1.5
    return dear, cheap


def _round_up_to_significant_digits(value: float, digits: int) -> float:
    """`value` rounded up to this number of significant digits.

    >>> _round_up_to_significant_digits(2.00001, 4), _round_up_to_significant_digits(0.5, 4)
    (2.001, 0.5)
    """
    scale = digits - 1 - math.floor(math.log10(value))
    return float(f"{math.ceil(round(value * 10.0**scale, 6)) / 10.0**scale:.{digits}g}")
