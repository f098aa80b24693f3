"""The first whole number at which a falling price is within a target, in a tenth of the evaluations of a bisection.

A number of so many digits, or a multiple of a small unit, is a whole number too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_GROWTH = 4
"""How much longer each further step is while a search over whole numbers has one end only."""


def first_within(
    price: Callable[[int], float], target: float, low: int, high: int, start: int, stride: float
) -> int | None:
    """The least number in (low, high] with a price of at most `target`; None if the price at `high` is above.

    *Guarantee*: the price at the returned number is at most `target`, and above it at the number before, unless that is
    `low`; so it is the least one if the price never rises with the number. The search begins at `start` and expects the
    price to fall by a factor of e in `stride` numbers, which change only its length: it makes steps until it has both
    ends, then takes secants of the logarithm of the price, farther each time that the same end moves, or bisects.

    >>> first_within(lambda number: 1 / number, 0.01, 0, 10**6, start=7, stride=7)
    100
    """
    price = lru_cache(maxsize=None)(price)

    bad, good, guess, step, moved, last = low, high, start, 0, 0, None
    here = there = (start, 0.0)
    while good - bad > 1:
        guess = min(max(guess, bad + 1), good - 1)
        fits = price(guess) <= target
        bad, good = (bad, guess) if fits else (guess, good)
        moved = moved + 1 if fits is last else 0
        last = fits
        here, there = (guess, math.log(price(guess) / target) if price(guess) > 0 else -math.inf), here
        if bad == low or good == high:
            step = max(_GROWTH * step, math.ceil(stride * min(1.0, abs(here[1]))), 1)
            guess += -step if fits else step
        elif math.isfinite(fall := here[1] - there[1]) and fall != 0:
            root = here[0] + (there[0] - here[0]) * here[1] / fall
            guess = math.ceil(root) + (1 - 2**moved if fits else 2**moved - 1)
        else:
            guess = (bad + good) // 2
    return good if good < high or price(high) <= target else None
