"""Files beside the ledger's: numbers of formats, links that lead elsewhere, calls that wait for the disk together.

A file system writes all that waits to be flushed in one commit of its journal; one call after another, each waits for a
commit of its own. For 256 files this takes 1.8 s one after another, 0.16 s from threads (ext4 on a virtual disk).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dpsweep.accounting.errors import BadInput

THREADS = 16
"""Calls that wait for the disk at once."""

FEW = 8
"""So many calls are made one after another, since threads would cost more than they save."""

READABLE = 0o755
"""The mode of folders that hold nothing private."""

FORMAT = 1
"""The number of the format of plans, results and audits; until the first release it may still change its meaning."""

STALE_SECONDS = 600
"""The age from which a temporary file has no writer: writing one takes seconds."""

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


def remove_stale_temporary_files(folder: Path) -> None:
    """Removes the temporary files that killed writers have left in a folder and below.

    A file that was changed in the last ten minutes stays: another process may be writing it.
    """
    with suppress(FileNotFoundError):  # another command removes files too
        for path in folder.rglob(".*.partial"):
            if not path.is_symlink() and path.is_file() and time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


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
