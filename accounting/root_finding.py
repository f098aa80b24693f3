"""The root of a decreasing function, and the first whole number at which a falling price is within a target.

Both take a tenth of the evaluations that bisection needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

End = tuple[float, float]
"""An argument, and the function's value there."""

_PATIENCE = 3
"""Evaluations that may pass before the interval is half as long; then it is bisected."""

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


def upper_bound_on_zero(excess: Callable[[float], float], low: End, high: End, *, tolerance: float) -> float:
    """The upper end of an interval around the zero, shorter than `tolerance` times that end.

    `excess` is positive at `low` and at most 0 at `high`, where it may be -infinity.
    *Guarantee*: it is at most 0 at the returned argument.
    *Source*: the Illinois variant of regula falsi (Dowell and Jarratt 1971), with bisection where it is slow.

    >>> upper_bound_on_zero(lambda x: 2.0 - x * x, (0.0, 2.0), (2.0, -2.0), tolerance=1e-9) - 2**0.5 < 2e-9
    True
    """
    (bottom, above), (top, below) = low, high
    halved, waited, side = top - bottom, 0, 0
    while top - bottom > tolerance * top:
        if 2 * (top - bottom) <= halved:
            halved, waited = top - bottom, 0
        place = (
            _chord_zero_between_ends((bottom, above), (top, below), tolerance)
            if waited < _PATIENCE
            else (bottom + top) / 2
        )
        if not bottom < place < top:
            break
        waited = waited + 1 if waited < _PATIENCE else 0
        value = excess(place)
        if value > 0:
            bottom, above, below = place, value, below / 2 if side > 0 else below
        else:
            top, below, above = place, value, above / 2 if side < 0 else above
        side = 1 if value > 0 else -1
    return top


def _chord_zero_between_ends(low: End, high: End, tolerance: float) -> float:
    """Where the chord crosses 0, half a tolerance or more from both ends; the middle if a value is infinite."""
    (bottom, above), (top, below) = low, high
    if not math.isfinite(above - below):
        return (bottom + top) / 2
    margin = tolerance * top / 2
    return min(max(bottom + (top - bottom) * above / (above - below), bottom + margin), top - margin)
