"""The zero of a decreasing function between two ends, in a tenth of the evaluations that bisection needs."""

from __future__ import annotations

import math
from collections.abc import Callable

End = tuple[float, float]
"""An argument, and the function's value there."""

_PATIENCE = 3
"""Evaluations that may pass before the interval is half as long; then it is bisected."""


def zero_from_above(excess: Callable[[float], float], low: End, high: End, *, tolerance: float) -> float:
    """The upper end of an interval around the zero, shorter than `tolerance` times that end.

    `excess` is positive at `low` and at most 0 at `high`, where it may be -infinity.
    *Guarantee*: it is at most 0 at the returned argument.
    *Source*: the Illinois variant of regula falsi (Dowell and Jarratt 1971), with bisection where it is slow.

    >>> narrowed(lambda x: 2.0 - x * x, (0.0, 2.0), (2.0, -2.0), tolerance=1e-9) - 2**0.5 < 2e-9
    True
    """
    (bottom, above), (top, below) = low, high
    halved, waited, side = top - bottom, 0, 0
    while top - bottom > tolerance * top:
        if 2 * (top - bottom) <= halved:
            halved, waited = top - bottom, 0
        place = (
            _point_between_ends((bottom, above), (top, below), tolerance) if waited < _PATIENCE else (bottom + top) / 2
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


def _point_between_ends(low: End, high: End, tolerance: float) -> float:
    """Where the chord crosses 0, half a tolerance or more from both ends; the middle if a value is infinite."""
    (bottom, above), (top, below) = low, high
    if not math.isfinite(above - below):
        return (bottom + top) / 2
    margin = tolerance * top / 2
    return min(max(bottom + (top - bottom) * above / (above - below), bottom + margin), top - margin)
