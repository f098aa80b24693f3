"""Checks of numbers, and of data that others may have written: every defect is one sentence, never a traceback.

Each check of a number passes or raises `Expected <name>=<value> <condition>.` A wrong type raises TypeError, a wrong
number ValueError. A bool is not a number; an integer is allowed as a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput, DpsweepError
from dpsweep.accounting.team_folder import access_failure_text


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


def require_finite_number(name: str, value: object) -> float:
    """A finite real number."""
    as_float = require_real(name, value)
    if not math.isfinite(as_float):
        raise ValueError(f"Expected {name}={value} to be finite.")
    return as_float


@dataclass(frozen=True, kw_only=True)
class NumberCheck:
    """Requires a number, a finite one with `finite`, that `holds`; `sentence` is what a refusal says was expected."""

    holds: Callable[[float], bool]
    sentence: str
    finite: bool = False

    def __call__(self, name: str, value: object) -> None:
        """Raises ValueError for another number, TypeError for no number."""
        if not self.holds(require_finite_number(name, value) if self.finite else require_real(name, value)):
            raise ValueError(f"Expected {self.sentence.format(name=name, value=value)}.")


positive = NumberCheck(holds=lambda value: value > 0, sentence="{name}={value} > 0", finite=True)
"""A finite number above 0."""

non_negative = NumberCheck(holds=lambda value: value >= 0, sentence="{name}={value} >= 0", finite=True)
"""A finite number, 0 or above."""

bound = NumberCheck(holds=lambda value: value >= 0, sentence="{name}={value} >= 0")
"""A number, 0 or above, perhaps infinity."""

fraction = NumberCheck(holds=lambda value: 0 < value < 1, sentence="0 < {name}={value} < 1", finite=True)
"""A number strictly between 0 and 1."""

decay_rate = NumberCheck(holds=lambda value: 0 <= value < 1, sentence="0 <= {name}={value} < 1", finite=True)
"""The weight of the past in a running average: at least 0, below 1."""

probability = NumberCheck(holds=lambda value: 0 <= value <= 1, sentence="{name}={value} in [0, 1]")
"""A number from 0 to 1."""

failure_probability = NumberCheck(holds=lambda value: 0 <= value < 1, sentence="{name}={value} in [0, 1)")
"""A number from 0 on, below 1."""

share = NumberCheck(holds=lambda value: 0 < value <= 1, sentence="{name}={value} in (0, 1]")
"""A number in (0, 1]."""


def require_number_between(name: str, value: object, above: float, below: float = math.inf) -> None:
    """A number strictly between two others."""
    if not above < require_real(name, value) < below:
        raise ValueError(f"Expected {name}={value} in ({above:g}, {below:g}).")


def require_integer(name: str, value: object) -> None:
    """An integer."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"Expected {name}={value!r} to be an integer.")


@dataclass(frozen=True, kw_only=True)
class IntegerCheck:
    """Requires an integer of at least `least`."""

    least: int

    def __call__(self, name: str, value: object) -> None:
        """Raises ValueError for a smaller one, TypeError for no integer."""
        require_integer(name, value)
        if not is_integer_at_least(value, self.least):
            raise ValueError(f"Expected {name}={value} >= {self.least}.")


positive_int = IntegerCheck(least=1)
"""An integer, 1 or above."""

count = IntegerCheck(least=0)
"""An integer, 0 or above."""


def require_stored_integer(name: str, value: object, least: int = 0) -> int:
    """A stored value, if it is an integer of at least `least`; raises `ValueError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"Expected {name}={value!r} to be an integer >= {least}.")
    return value


def is_integer_at_least(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`, for messages that say more than a check's.

    >>> is_integer_at_least(3, 1), is_integer_at_least(0, 1), is_integer_at_least(True, 1), is_integer_at_least("3", 1)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of reading a value that is missing, of another type, out of bounds, or nested too deeply."""

LONGEST = 200


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
def turn_file_errors_into_refusal(
    error: type[DpsweepError], what: str, way_out: str = "", path: Path | None = None
) -> Iterator[None]:
    """Turns an `OSError` into one sentence: what cannot be done, why, for missing rights whose the file is, a way out.

    The command line says what its errors have in common of those that nothing turns, with an exit code of their own.

    >>> with turn_file_errors_into_refusal(BadInput, "Expected script=gone.py to be a readable file"):
    ...     Path("/nowhere/gone.py").read_bytes()
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected script=gone.py to be a readable file: No such file or directory.
    """
    try:
        yield
    except OSError as cause:
        raise error(f"{what}: {access_failure_text(cause, path)}{way_out}.") from cause


def exception_as_short_line(cause: BaseException) -> str:
    """An exception as one line of limited length."""
    what = access_failure_text(cause) if isinstance(cause, PermissionError) else f"{type(cause).__name__}({cause})"
    text = " ".join(what.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def require_text(name: str, value: object) -> str:
    """The value, if it is text; raises `ValueError` otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"Expected {name}={value!r} to be text.")
    return value


def require_list(name: str, value: object) -> Sequence[Any]:
    """The value, if it is a JSON list; raises `ValueError` otherwise."""
    if not isinstance(value, list):
        raise ValueError(f"Expected {name}={value!r} to be a list.")
    return value


def require_bool(name: str, value: object) -> bool:
    """The value, if it is true or false; raises `ValueError` otherwise."""
    if not isinstance(value, bool):
        raise ValueError(f"Expected {name}={value!r} to be true or false.")
    return value


def require_json_object(name: str, value: object) -> Mapping[str, Any]:
    """The value, if it is a JSON object; raises `ValueError` otherwise."""
    if not isinstance(value, Mapping):
        raise ValueError(f"Expected {name}={value!r} to be an object.")
    return value


def refuse_link(path: Path) -> Path:
    """The same path; raises `BadInput` if it is a symbolic link, which may lead to a person's private files."""
    if path.is_symlink():
        raise BadInput(f"Expected {path} to be a file or folder of its own and no symbolic link.")
    return path


def require_inside_folder(path: Path, folder: Path) -> Path:
    """The same path; raises `BadInput` if links lead from it out of the folder."""
    refuse_link(path)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f"Expected {path} to lie in {folder}, and not behind a symbolic link.")
    return path
