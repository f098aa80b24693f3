"""The root of a continuous function between two points, by Brent's method, and that of a decreasing function.

Brent's method takes the steps of `scipy.optimize.brentq`, to the last bit (a test compares them), so noises and plan
ids are the same. To import scipy.optimize for it took a tenth of the time of `import torch` in every command that
plans. The root of a decreasing function takes a tenth of the evaluations that bisection needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MOST_STEPS = 100


def brent(function: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float) -> float:
    """A point within `xtol + rtol * |root|` of a root; the function has different signs at `low` and `high`.

    Raises ValueError if the signs are the same or a value is nan, and RuntimeError if no root is reached in
    `MOST_STEPS` steps.
    Source: R. P. Brent, Algorithms for Minimization Without Derivatives, 1973, Chapter 4.
    """
    previous, here, f_previous, f_here = low, high, function(low), function(high)
    if f_previous == 0:
        return previous
    if f_here == 0:
        return here
    if math.isnan(f_previous) or math.isnan(f_here) or not _have_different_signs(f_previous, f_here):
        raise ValueError(f"Expected function({low})={f_previous} and function({high})={f_here} to differ in sign.")
    opposite, f_opposite, last, step = 0.0, 0.0, 0.0, 0.0
    for _ in range(MOST_STEPS):
        if f_previous != 0 and f_here != 0 and _have_different_signs(f_previous, f_here):
            opposite, f_opposite = previous, f_previous
            last = step = here - previous
        if abs(f_opposite) < abs(f_here):
            previous, here, opposite = here, opposite, here
            f_previous, f_here, f_opposite = f_here, f_opposite, f_here
        close, half = (xtol + rtol * abs(here)) / 2, (opposite - here) / 2
        if f_here == 0 or abs(half) < close:
            return here
        shorter = None
        if abs(last) > close and abs(f_here) < abs(f_previous):
            shorter = _interpolation_step((previous, here, opposite), (f_previous, f_here, f_opposite))
        if shorter is not None and 2 * abs(shorter) < min(abs(last), 3 * abs(half) - close):
            last, step = step, shorter
        else:
            last, step = half, half
        previous, f_previous = here, f_here
        here += step if abs(step) > close else math.copysign(close, half)
        f_here = function(here)
        if math.isnan(f_here):
            raise ValueError(f"Expected function({here})={f_here} to be a number.")
    raise RuntimeError(f"Expected a root between {low} and {high} to be reached in {MOST_STEPS} steps.")


def _interpolation_step(places: tuple[float, float, float], values: tuple[float, float, float]) -> float:
    """The step to the root of the line, or of the inverse parabola, through the function's values at these places."""
    previous, here, opposite = places
    f_previous, f_here, f_opposite = values
    if previous == opposite:
        return -f_here * (here - previous) / (f_here - f_previous)
    to_previous = (f_previous - f_here) / (previous - here)
    to_opposite = (f_opposite - f_here) / (opposite - here)
    rise = f_opposite * to_opposite - f_previous * to_previous
    return -f_here * rise / (to_opposite * to_previous * (f_opposite - f_previous))


def _have_different_signs(one: float, other: float) -> bool:
    return math.copysign(1.0, one) != math.copysign(1.0, other)


End = tuple[float, float]
"""An argument, and the function's value there."""

_PATIENCE = 3
"""Evaluations that may pass before the interval is half as long; then it is bisected."""


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
