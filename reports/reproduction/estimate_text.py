"""Estimates as text: the value, and its interval in brackets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from dpsweep.reports.reproduction.finding import JudgedPart
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict, all_of


def points(share: float) -> str:
    """A difference of shares, in percentage points.

    >>> points(0.0312)
    '3.1 points'
    """
    return f"{100 * share:.1f} points"


def in_points(one: IntervalEstimate) -> str:
    """A difference of scores.

    >>> in_points(IntervalEstimate(name="gap", value=0.012, low=0.004, high=0.02))
    'gap 1.2 points [0.4, 2.0]'
    """
    return _with_interval(one, points(one.value), lambda end: f"{100 * end:.1f}")


def in_percent(one: IntervalEstimate) -> str:
    """A share.

    >>> in_percent(IntervalEstimate(name="lr", value=0.93, low=0.9, high=0.95))
    'lr 93.0% [90.0, 95.0]'
    """
    return _with_interval(one, f"{one.value:.1%}", lambda end: f"{100 * end:.1f}")


def as_number(one: IntervalEstimate) -> str:
    """A plain number.

    >>> as_number(IntervalEstimate(name="e", value=-1.18, low=-1.21, high=-1.15))
    'e -1.18 [-1.21, -1.15]'
    """
    return _with_interval(one, f"{one.value:.3g}", lambda end: f"{end:.3g}")


def joined(estimates: Iterable[IntervalEstimate], form: Callable[[IntervalEstimate], str]) -> str:
    """All estimates in one sentence."""
    return "; ".join(map(form, estimates))


def judged(
    estimates: Iterable[IntervalEstimate],
    form: Callable[[IntervalEstimate], str],
    least: float = -math.inf,
    most: float = math.inf,
) -> tuple[JudgedPart, ...]:
    """The parts of a criterion by which each of these estimates is between `least` and `most`."""
    return tuple(JudgedPart(text=form(one), verdict=one.verdict(least, most)) for one in estimates)


def verdict_of(parts: Iterable[JudgedPart]) -> Verdict:
    """The verdict on a claim of several parts; undecided if it has none."""
    return all_of(part.verdict for part in parts)


def _with_interval(one: IntervalEstimate, value: str, form: Callable[[float], str]) -> str:
    name = one.name.strip()
    if math.isnan(one.value):
        return f"{name}: nothing to estimate it from"
    return f"{name} {value} " + (f"[{form(one.low)}, {form(one.high)}]" if one.known else "(no interval)")
