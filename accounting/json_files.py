"""JSON files written atomically, their format, digests of values, and infinity, for which JSON has no number."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.group_commit import Flushing, alone

WORD = "infinity"
"""The stored form of an infinite epsilon, which protects nobody; `float` reads it."""

FORMAT = 1
"""The number of the format of plans, results and audits; until the first release it may still change its meaning."""

DIGEST_LENGTH = 12

STALE_SECONDS = 600
"""The age from which a temporary file has no writer: writing one takes seconds."""


def replace_infinities_by_words(form: Any) -> Any:
    """The same plain values, with each infinity replaced by its word.

    >>> in_words({"epsilon": math.inf, "parts": [1.0, math.inf]})
    {'epsilon': 'infinity', 'parts': [1.0, 'infinity']}
    >>> float("infinity") == math.inf
    True
    """
    if isinstance(form, Mapping):
        return {key: replace_infinities_by_words(value) for key, value in form.items()}
    if isinstance(form, (list, tuple)):
        return [replace_infinities_by_words(value) for value in form]
    return WORD if isinstance(form, float) and form == math.inf else form


def require_format(what: str, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rest of a stored form; raises `BadInput` unless it has the number of the current format.

    >>> require_format("plan.json", {"format": 1, "spares": 0})
    {'spares': 0}
    >>> require_format("plan.json", {"schema": 4})
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected plan.json to have format=1: an unreleased version wrote it.
    """
    if "format" not in form:
        raise BadInput(f"Expected {what} to have format={FORMAT}: an unreleased version wrote it.")
    require_version(f"format of {what}", form["format"], FORMAT)
    return {key: value for key, value in form.items() if key != "format"}


def require_version(what: str, stored: object, known: int) -> None:
    """Raises `BadInput` unless the stored version is the known one; true equals 1 and is none.

    >>> require_version("event version", True, 1)
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected event version=True to be 1.
    """
    if type(stored) is not int or stored != known:
        raise BadInput(f"Expected {what}={stored!r:.200} to be {known}.")


def digest(value: object) -> str:
    """The first digits of the SHA-256 of a value's canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_LENGTH]


def write_json(path: Path, form: object, mode: int = 0o666) -> None:
    """Writes JSON as `write_text` writes text."""
    write_text(path, json.dumps(form, indent=1, allow_nan=False), mode)


def write_line(path: Path, form: object, mode: int = 0o666) -> None:
    """Writes JSON without line breaks, in a tenth of the time that `write_json` takes: for the files of a trial."""
    write_text(path, json.dumps(form, allow_nan=False), mode)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes text as `write_bytes` writes bytes."""
    write_bytes(path, text.encode(), mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes bytes under a temporary name, flushes them to the disk, and renames: readers see all of it or nothing.

    `mode` are the file's permissions from its creation on, less the umask.
    """
    alone(write_bytes_in_group(path, content, mode))


def writing_line(path: Path, form: object, mode: int = 0o666) -> Flushing[None]:
    """Does what `write_line` does, as a part of a group commit."""
    return write_bytes_in_group(path, json.dumps(form, allow_nan=False).encode(), mode)


def write_bytes_in_group(path: Path, content: bytes, mode: int = 0o666) -> Flushing[None]:
    """Does what `write_bytes` does, as a part of a group commit."""
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
        stream.write(content)
    yield partial
    partial.replace(path)
    yield path.parent


def remove_stale(folder: Path) -> None:
    """Removes the temporary files that killed writers have left in a folder and below.

    A file that was changed in the last ten minutes stays: another process may be writing it.
    """
    with suppress(FileNotFoundError):  # another command removes files too
        for path in folder.rglob(".*.partial"):
            if not path.is_symlink() and path.is_file() and time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


def flush_folder(folder: Path) -> None:
    """Flushes a folder's list of names to the disk: otherwise a power cut may undo creating or renaming a file."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
