"""Calibration: the smallest noise, or the most runs or steps, at which the *whole plan* meets a target epsilon.

A noise of so many digits is a whole number, and so is a count: one search finds either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.profiles.privacy_profiles import first_within

LARGEST_NOISE = 1e6
SMALLEST_NOISE = 1e-2
DIGITS, MORE_DIGITS = 4, 6
"""Significant digits of a calibrated noise multiplier: an error of .1 % at most, and stable across platforms.

It has more digits where the price is so steep that rounding makes it less than `TIGHT` of its target.
"""

TIGHT = 0.995

LARGEST_COUNT = 10**9


def calibrate_noise(epsilon_of: Callable[[float], float], epsilon: float, start: float = 1.0) -> float:
    """The least noise multiplier, of four significant digits, at which `epsilon_of` is at most `epsilon`.

    *Guarantee*: `epsilon_of(calibrate_noise(epsilon_of, epsilon)) <= epsilon`, checked before returning, for any
    `epsilon_of` that does not grow with its argument. The search begins at `start`, which changes only its length.
    Where four digits leave more than .5 % of `epsilon`, there are six. Raises `BadInput` if no noise is enough.

    >>> calibrate_noise(lambda noise: 1 / noise, 3.0), calibrate_noise(lambda noise: 1 / noise**8, 1 - 1e-4)
    (0.3334, 1.00002)
    """
    _check_target_epsilon(epsilon)
    price = lru_cache(maxsize=None)(epsilon_of)
    noise = _least_noise(price, epsilon, start, DIGITS)
    return noise if price(noise) >= TIGHT * epsilon else _least_noise(price, epsilon, noise, MORE_DIGITS)


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
    if most < 1:
        return 0
    fewer = first_within(lambda fewer: epsilon_of(most - fewer), epsilon, -1, most - 1, most - start, stride=start)
    return 0 if fewer is None else most - fewer


def _check_target_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"Expected privacy.epsilon={epsilon} > 0 and finite.")


def _least_noise(price: Callable[[float], float], epsilon: float, start: float, digits: int) -> float:
    """The least noise multiplier of so many digits at which the price is at most epsilon."""
    start = min(max(start, SMALLEST_NOISE), LARGEST_NOISE)
    index = first_within(
        lambda index: price(_indexed_noise(index, digits)),
        epsilon,
        low=-1,
        high=_noise_index(LARGEST_NOISE, digits),
        start=_noise_index(start, digits),
        stride=start / 10.0 ** (math.floor(math.log10(start)) + 1 - digits),
    )
    if index is None:
        raise BadInput(
            f"No noise brings this plan to epsilon={text_with_all_digits(epsilon)}; the least that it can cost is "
            f"{demand_and_remainder_texts(price(LARGEST_NOISE), epsilon)[0]}. Ask for more, or shrink the grid."
        )
    return _indexed_noise(index, digits)


def _indexed_noise(index: int, digits: int) -> float:
    """The noise of so many digits with this place in their order, which begins at `SMALLEST_NOISE`.

    >>> _indexed_noise(0, 4), _indexed_noise(1, 4), _indexed_noise(9000, 4)
    (0.01, 0.01001, 0.1)
    """
    ten = 10 ** (digits - 1)
    decade, place = divmod(index, 9 * ten)
    return float(f"{ten + place}e{decade - 1 - digits}")


def _noise_index(noise: float, digits: int) -> int:
    """The place of the noise of so many digits that is nearest to this one.

    >>> _noise_index(0.01, 4), _noise_index(0.1, 4), _indexed_noise(_noise_index(2.718281, 4), 4)
    (0, 9000, 2.718)
    """
    written, exponent = format(noise, f".{digits - 1}e").split("e")
    ten: int = 10 ** (digits - 1)
    return (int(exponent) + 2) * 9 * ten + int(written.replace(".", "")) - ten
