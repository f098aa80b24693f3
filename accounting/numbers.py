"""Checks of numbers: each check passes or raises `Expected <name>=<value> <condition>.`

A wrong type raises TypeError, a wrong number ValueError; `whole` checks stored values and raises ValueError for both. A
bool is not a number; an integer is allowed as a float.
"""

from __future__ import annotations

import math
from numbers import Integral, Real


def real(name: str, value: object) -> float:
    """A real number, possibly infinity or nan; a number beyond all floats becomes infinity, whatever its sign."""
    if type(value) is float:  # the abstract check takes as long as the rest, and a plan makes a hundred thousand
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Expected {name}={value!r} to be a number.")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number(name: str, value: object) -> float:
    """A finite real number."""
    as_float = real(name, value)
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


def bound(name: str, value: object) -> None:
    """A number, 0 or above, perhaps infinity."""
    if not real(name, value) >= 0:
        raise ValueError(f"Expected {name}={value} >= 0.")


def probability(name: str, value: object) -> None:
    """A number from 0 to 1."""
    if not 0 <= real(name, value) <= 1:
        raise ValueError(f"Expected {name}={value} in [0, 1].")


def decay_rate(name: str, value: object) -> None:
    """The weight of the past in a running average: at least 0, below 1."""
    if not 0 <= number(name, value) < 1:
        raise ValueError(f"Expected 0 <= {name}={value} < 1.")


def share(name: str, value: object) -> None:
    """A number in (0, 1]."""
    if not 0 < real(name, value) <= 1:
        raise ValueError(f"Expected {name}={value} in (0, 1].")


def between(name: str, value: object, above: float, below: float = math.inf) -> None:
    """A number strictly between two others."""
    if not above < real(name, value) < below:
        raise ValueError(f"Expected {name}={value} in ({above:g}, {below:g}).")


def integer(name: str, value: object) -> None:
    """An integer."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"Expected {name}={value!r} to be an integer.")


def positive_int(name: str, value: object) -> None:
    """An integer, 1 or above."""
    integer(name, value)
    if not is_whole(value, 1):
        raise ValueError(f"Expected {name}={value} >= 1.")


def count(name: str, value: object) -> None:
    """An integer, 0 or above."""
    integer(name, value)
    if not is_whole(value, 0):
        raise ValueError(f"Expected {name}={value} >= 0.")


def whole(name: str, value: object, least: int = 0) -> int:
    """A stored value, if it is an integer of at least `least`; raises `ValueError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"Expected {name}={value!r} to be an integer >= {least}.")
    return value


def is_whole(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`, for messages that say more than those of `whole`.

    >>> is_whole(3, 1), is_whole(0, 1), is_whole(True, 1), is_whole("3", 1)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
