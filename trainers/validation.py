"""Checks of numbers: each check passes or raises `Expected <name>=<value> <condition>.`

A wrong type raises TypeError, a wrong number ValueError. A bool is not a number; an integer is allowed as a float.
"""

from __future__ import annotations

import math
from numbers import Integral, Real


def number(name: str, value: object) -> float:
    """A finite real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Expected {name}={value!r} to be a number.")
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise ValueError(f"Expected {name}={value} to be finite.")
    return as_float


def positive(name: str, value: object) -> None:
    """A finite number above 0."""
    if not number(name, value) > 0:
        raise ValueError(f"Expected {name}={value} > 0.")


def non_negative(name: str, value: object) -> None:
    """A finite number, 0 or above."""
    if not number(name, value) >= 0:
        raise ValueError(f"Expected {name}={value} >= 0.")


def fraction(name: str, value: object) -> None:
    """A number strictly between 0 and 1."""
    if not 0 < number(name, value) < 1:
        raise ValueError(f"Expected 0 < {name}={value} < 1.")


def decay_rate(name: str, value: object) -> None:
    """The weight of the past in a running average: at least 0, below 1."""
    if not 0 <= number(name, value) < 1:
        raise ValueError(f"Expected 0 <= {name}={value} < 1.")


def positive_int(name: str, value: object) -> None:
    """An integer, 1 or above."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"Expected {name}={value!r} to be an integer.")
    if not int(value) >= 1:
        raise ValueError(f"Expected {name}={value} >= 1.")
