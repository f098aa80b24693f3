"""Checks of data that others may have written: every defect is reported in one sentence, never as a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput, DpsweepError

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of reading a value that is missing, of another type, out of bounds, or nested too deeply."""

LONGEST = 200


@contextmanager
def as_written(what: str, error: type[DpsweepError] = BadInput) -> Iterator[None]:
    """Turns errors of reading into one sentence that names the thing read; also a decorator.

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
    """An exception as one line of limited length."""
    text = " ".join(f"{type(cause).__name__}({cause})".split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def text(name: str, value: object) -> str:
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


def mapping(name: str, value: object) -> Mapping[str, Any]:
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
