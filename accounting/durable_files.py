"""Files that survive a crash: folders for their owner alone, JSON files written atomically, and commits in groups.

`Path.mkdir(parents=True, mode=...)` gives the mode to the last folder only: under a umask of 0 the others could be
written by everybody, who could then exchange what lies in them. So folders are created here alone, whatever the umask.

JSON files have one format, digests of values, and infinity, for which JSON has no number.

Calls that each wait for the disk wait together, in threads. A file system writes all that waits to be flushed in one
commit of its journal; one call after another, each waits for a commit of its own. For 256 files this takes 1.8 s one
after another, 0.16 s from threads (ext4 on a virtual disk).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.team_folder import mode_with_group

THREADS = 16
"""Calls that wait for the disk at once."""

FEW = 8
"""So many calls are made one after another, since threads would cost more than they save."""

Item = TypeVar("Item")
Returned = TypeVar("Returned")


def call_for_each(call: Callable[[Item], Returned], items: Iterable[Item]) -> list[Returned]:
    """What a call that waits for the disk returns for each item, in their order; many are called in threads.

    Calls for different items are in no order, so they must write different files. The first error is raised, after the
    calls that were running by then; no further call begins.

    >>> call_for_each(abs, [-1, 2])
    [1, 2]
    """
    every = [*items]
    if len(every) <= FEW:
        return [call(item) for item in every]
    with ThreadPoolExecutor(THREADS) as pool:
        return [*pool.map(call, every)]


FOLDER = 0o700
READABLE = 0o755
"""For folders that hold nothing private."""


def make_folder_and_missing_parents(folder: Path, mode: int = FOLDER) -> None:
    """Creates a folder if it is missing, and the missing folders above it with the same mode, less the umask.

    Raises `OSError`, as `Path.mkdir` does, also if there is a file in its place.
    """
    for one in reversed(_folder_and_missing_parents(folder)):
        _make_one_folder(one, mode)


def make_private_folder_durably(folder: Path) -> None:
    """Creates a folder for its owner alone, if it is missing, and flushes its name to the disk."""
    if not folder.is_dir():
        for one in reversed(_folder_and_missing_parents(folder)):
            _make_one_folder(one, FOLDER)
            flush_folder(one.parent)


def _make_one_folder(folder: Path, mode: int) -> None:
    """Creates a folder unless it exists; below a group's folder it is the group's."""
    folder.mkdir(mode=mode_with_group(folder, mode) if mode == FOLDER else mode, exist_ok=True)


def _folder_and_missing_parents(folder: Path) -> list[Path]:
    """The folder, which may exist, and the folders above it that do not."""
    return [folder, *(above for above in folder.parents if not above.exists())]


WORD = "infinity"
"""The stored form of an infinite epsilon, which protects nobody; `float` reads it."""

FORMAT = 1
"""The number of the format of plans, results and audits; until the first release it may still change its meaning."""

DIGEST_LENGTH = 12

STALE_SECONDS = 600
"""The age from which a temporary file has no writer: writing one takes seconds."""


def replace_infinities_by_words(form: Any) -> Any:
    """The same plain values, with each infinity replaced by its word.

    >>> replace_infinities_by_words({"epsilon": math.inf, "parts": [1.0, math.inf]})
    {'epsilon': 'infinity', 'parts': [1.0, 'infinity']}
    >>> float("infinity") == math.inf
    True
    """
    if isinstance(form, Mapping):
        return {key: replace_infinities_by_words(value) for key, value in form.items()}
    if isinstance(form, (list, tuple)):
        return [replace_infinities_by_words(value) for value in form]
    return WORD if isinstance(form, float) and form == math.inf else form


def require_and_remove_format_number(what: str, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rest of a stored form; raises `BadInput` unless it has the number of the current format.

    >>> require_and_remove_format_number("plan.json", {"format": 1, "spares": 0})
    {'spares': 0}
    >>> require_and_remove_format_number("plan.json", {"schema": 4})
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected plan.json to have format=1: an unreleased version wrote it.
    """
    if "format" not in form:
        raise BadInput(f"Expected {what} to have format={FORMAT}: an unreleased version wrote it.")
    require_known_version(f"format of {what}", form["format"], FORMAT)
    return {key: value for key, value in form.items() if key != "format"}


def require_known_version(what: str, stored: object, known: int) -> None:
    """Raises `BadInput` unless the stored version is the known one; true equals 1 and is none.

    >>> require_known_version("event version", True, 1)
    Traceback (most recent call last):
    dpsweep.accounting.errors.BadInput: Expected event version=True to be 1.
    """
    if type(stored) is not int or stored != known:
        raise BadInput(f"Expected {what}={stored!r:.200} to be {known}.")


def short_digest_of_json(value: object) -> str:
    """The first digits of the SHA-256 of a value's canonical JSON."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_LENGTH]


def write_json(path: Path, form: object, mode: int = 0o666) -> None:
    """Writes JSON as `write_text` writes text."""
    write_text(path, json.dumps(form, indent=1, allow_nan=False), mode)


def write_compact_json(path: Path, form: object, mode: int = 0o666) -> None:
    """Writes JSON without line breaks, in a tenth of the time that `write_json` takes: for the files of a trial."""
    write_text(path, json.dumps(form, allow_nan=False), mode)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes text as `write_bytes` writes bytes."""
    write_bytes(path, text.encode(), mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes bytes under a temporary name, flushes them to the disk, and renames: readers see all of it or nothing.

    `mode` are the file's permissions from its creation on, less the umask. Below a group's folder the group has
    the owner's.
    """
    make_folder_and_missing_parents(path.parent)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    append_bytes(partial, content, mode, create=True)
    partial.replace(path)
    flush_folder(path.parent)


def append_bytes(path: Path, content: bytes, mode: int = 0o600, *, create: bool) -> None:
    """Appends bytes to a file and flushes it to the disk; with `create` the file must be new, else it must be there.

    The name of a new file is on the disk after `flush_folder`. Raises `OSError`, also if there is no space for all.
    """
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if create else 0)
    handle = os.open(path, flags, mode_with_group(path, mode))
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(handle, remaining) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale_temporary_files(folder: Path) -> None:
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
