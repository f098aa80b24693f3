"""Data that others may have written: whatever is wrong with them is one sentence, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput, DpsweepError

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading raises where a value is missing, of another type, beyond all bounds, or nested without end."""

LONGEST = 200


@contextmanager
def as_written(what: str, error: type[DpsweepError] = BadInput) -> Iterator[None]:
    """Turns what reading raises into one sentence that names what was read; also a decorator.

    >>> with as_written("draw.json"):
    ...     {}["tries"]
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected draw.json to be as dpsweep wrote it, got KeyError('tries').
    """
    try:
        yield
    except DpsweepError:
        raise
    except DAMAGE as cause:
        raise error(f"Expected {what} to be as dpsweep wrote it, got {in_short(cause)}.") from cause


def in_short(cause: BaseException) -> str:
    """An exception in one line that is not too long."""
    text = " ".join(f"{type(cause).__name__}({cause})".split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def text(name: str, value: object) -> str:
    """The value, where it is text; raises `ValueError` elsewhere."""
    if not isinstance(value, str):
        raise ValueError(f"Expected {name}={value!r} to be text.")
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    """The values, where they are a list of texts; raises `ValueError` elsewhere."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"Expected {name}={value!r} to be a list of texts.")
    return tuple(text(name, one) for one in value)


def truth(name: str, value: object) -> bool:
    """The value, where it is true or false; raises `ValueError` elsewhere."""
    if not isinstance(value, bool):
        raise ValueError(f"Expected {name}={value!r} to be true or false.")
    return value


def mapping(name: str, value: object) -> Mapping[str, Any]:
    """The value, where it is an object of JSON; raises `ValueError` elsewhere."""
    if not isinstance(value, Mapping):
        raise ValueError(f"Expected {name}={value!r} to be an object.")
    return value


def refuse_link(path: Path) -> Path:
    """The same path; raises `BadInput` where it is a symbolic link, which may lead to somebody's private files."""
    if path.is_symlink():
        raise BadInput(f"Expected {path} to be a file or folder of its own and no symbolic link.")
    return path


def within(path: Path, folder: Path) -> Path:
    """The same path; raises `BadInput` where links lead from it out of the folder."""
    refuse_link(path)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f"Expected {path} to lie in {folder}, and not behind a symbolic link.")
    return path
