"""Checks of numbers, and of data that others may have written: every defect is one sentence, never a traceback.

A check raises `Expected <name>=<value> <condition>.`: TypeError for a wrong type, ValueError for a wrong number. A bool
is not a number; an integer is allowed as a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

from dpsweep.accounting.errors import BadInput, DpsweepError

Check = Callable[[str, Any], Any]


def require_real(name: str, value: object) -> float:
    """A real number, possibly infinity or nan; a number beyond all floats becomes infinity, whatever its sign."""
    if type(value) is float:  # the abstract check takes as long as the rest, and a plan makes a hundred thousand
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Expected {name}={value!r} to be a number.")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number_in(interval: str) -> Check:
    """A check that a number lies in an interval, as infinity may, and nan never; it returns the number in its own type.

    >>> number_in("(0, 1]")("share", 1.5)
    Traceback (most recent call last):
    ValueError: Expected 0 < share=1.5 <= 1.
    """
    low, high = map(float, interval[1:-1].split(","))
    least, most = interval[0] == "[", interval[-1] == "]"
    before = "" if high == math.inf else f"{low:g} {'<=' if least else '<'} "
    after = f"{'>=' if least else '>'} {low:g}" if high == math.inf else f"{'<=' if most else '<'} {high:g}"

    def check(name: str, value: object) -> Any:
        number = require_real(name, value)
        if low < number < high or (least and number == low) or (most and number == high):
            return value
        if math.isfinite(number) or interval.endswith("inf]"):
            raise ValueError(f"Expected {before}{name}={value} {after}.")
        raise ValueError(f"Expected {name}={value} to be finite.")

    return check


require_finite_number = number_in("(-inf, inf)")
positive = number_in("(0, inf)")
non_negative = number_in("[0, inf)")
bound = number_in("[0, inf]")
fraction = number_in("(0, 1)")
below_one = number_in("[0, 1)")
probability = number_in("[0, 1]")
share = number_in("(0, 1]")


def is_integer_at_least(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`, for messages that say more than a check's."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def require_integer(name: str, value: object) -> Any:
    """An integer."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"Expected {name}={value!r} to be an integer.")
    return value


def positive_int(name: str, value: object) -> None:
    """An integer, 1 or above."""
    if require_integer(name, value) < 1:
        raise ValueError(f"Expected {name}={value} >= 1.")


def count(name: str, value: object) -> None:
    """An integer, 0 or above."""
    if require_integer(name, value) < 0:
        raise ValueError(f"Expected {name}={value} >= 0.")


def value_of(kind: type, noun: str) -> Check:
    """A check that a value is of a type, which returns the value."""

    def check(name: str, value: object) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"Expected {name}={value!r} to be {noun}.")
        return value

    return check


require_text = value_of(str, "text")
require_list = value_of(list, "a list")
require_bool = value_of(bool, "true or false")
require_json_object = value_of(Mapping, "an object")

# What reading raises for a value that is missing, of another type, out of bounds, or nested too deeply.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


def exception_as_short_line(cause: BaseException) -> str:
    """An exception as one line of limited length."""
    reason = cause.strerror if isinstance(cause, OSError) else None
    text = " ".join((reason or f"{type(cause).__name__}({cause})").split())
    return text if len(text) <= 200 else f"{text[:200]}..."


@contextmanager
def turn_read_errors_into_refusal(what: str, error: type[DpsweepError] = BadInput) -> Iterator[None]:
    """Turns errors of reading into one sentence that names the thing read; also a decorator.

    >>> with turn_read_errors_into_refusal("draw.json"):
    ...     {}["tries"]
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected draw.json to be as dpsweep wrote it, got KeyError('tries').
    """
    try:
        yield
    except DpsweepError:
        raise
    except DAMAGE as cause:
        raise error(f"Expected {what} to be as dpsweep wrote it, got {exception_as_short_line(cause)}.") from cause


@contextmanager
def turn_file_errors_into_refusal(error: type[DpsweepError], what: str, way_out: str = "") -> Iterator[None]:
    """Turns an `OSError` into one sentence: what cannot be done, why, and a way out.

    The command line adds whose a file is that this user may not use (`accounting/missing_rights.py`).
    """
    try:
        yield
    except OSError as cause:
        raise error(f"{what}: {cause.strerror or cause}{way_out}.") from cause
