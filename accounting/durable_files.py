"""Files that survive a crash: folders for their owner alone, JSON files written atomically, and commits in groups.

`Path.mkdir(parents=True, mode=...)` gives the mode to the last folder only: under a umask of 0 the others could be
written by everybody, who could then exchange what lies in them. So folders are created here alone, whatever the umask.

JSON files have one format, digests of values, and infinity, for which JSON has no number.

Calls that each wait for the disk wait together. A file system writes all that waits to be flushed in one commit of its
journal. One call after another, each waits for a commit of its own: a thousand flushes take seconds. From several
threads they take a twentieth of that. A call is a generator that yields each file or folder that has to be on the disk
before it goes on, and returns a value. The threads do nothing but flush. All else is done by the caller's thread:
where threads write files themselves, they wait for one another at every call of the system, which took more processor
time than the writing. *Guarantee*: a call goes on only after what it yielded was flushed, and gets the error if that
failed. When a group's commit returns, every call has returned. Calls for different items are in no order, so they must
write different files.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, Generic, TypeVar

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.team_folder import mode_with_group

THREADS = 16
"""Flushes that wait at once."""

EACH = 8
"""Paths for each thread; up to so many are flushed one after another, since threads would cost more than they save."""

OPEN = 128
"""Paths that are open at once: a process may open 1024 files, and a job has two open for each of its 256 runs."""

Returned = TypeVar("Returned")

Flushing = Generator[Path, None, Returned]
"""A call that yields each path that must be on the disk before it goes on."""


def run_generator_and_flush_yielded_paths(call: Flushing[Returned]) -> Returned:
    """What one call returns."""
    return run_generators_and_flush_in_groups([call])[0]


def run_generators_and_flush_in_groups(calls: Iterable[Flushing[Returned]]) -> list[Returned]:
    """What the calls return, in their order.

    The first error is raised: calls that had not begun by then do not begin, and the others do not go on.

    >>> def absolute(number: int) -> Flushing[int]:
    ...     yield from ()
    ...     return abs(number)
    >>> run_generators_and_flush_in_groups([absolute(-1), absolute(2)])
    [1, 2]
    """
    running = [_RunningFlushingCall(call) for call in calls]
    try:
        for one in running:
            one.run_to_next_path_to_flush()
        while waiting := [one for one in running if one.path is not None]:
            failures = flush_and_collect_errors({one.path: None for one in waiting if one.path is not None})
            for one in waiting:
                one.run_to_next_path_to_flush(failures.get(one.path))
        return [one.returned for one in running]
    finally:
        for one in running:
            one.call.close()


class _RunningFlushingCall(Generic[Returned]):
    """A call, and the path that it waits for; None before it began and after it returned."""

    returned: Returned

    def __init__(self, call: Flushing[Returned]) -> None:
        self.call = call
        self.path: Path | None = None

    def run_to_next_path_to_flush(self, failure: OSError | None = None) -> None:
        """Runs the call up to the next path that it yields, or to its end."""
        try:
            self.path = next(self.call) if failure is None else self.call.throw(failure)
        except StopIteration as end:
            self.path, self.returned = None, end.value


def flush_and_collect_errors(paths: Collection[Path]) -> dict[Path | None, OSError]:
    """Flushes files and folders to the disk; returns the errors of those that could not be flushed.

    A folder's flush writes its list of names: otherwise a power cut may undo creating or renaming a file.
    """
    failures: dict[Path | None, OSError] = {}
    every = [*paths]
    for first in range(0, len(every), OPEN):
        _open_and_flush_paths_recording_errors(every[first : first + OPEN], failures)
    return failures


def _open_and_flush_paths_recording_errors(paths: Collection[Path], failures: dict[Path | None, OSError]) -> None:
    opened: list[tuple[Path, int]] = []
    try:
        for path in paths:
            try:
                opened += [(path, handle) for handle in _open_handles_for_flush(path)]
            except OSError as error:
                failures[path] = error
        flushed = _flush_handles_in_threads(opened, failures)
        for path, _ in opened:
            if path not in flushed and path not in failures:
                failures[path] = OSError(f"{path} was not flushed")
    finally:
        for _, handle in opened:
            os.close(handle)


def _open_handles_for_flush(path: Path) -> Iterator[int]:
    """A handle by which the path can be flushed; none for a folder where the system flushes no folders."""
    if os.name == "posix":
        yield os.open(path, os.O_RDONLY)
    elif path.is_file():
        yield os.open(path, os.O_RDWR)


def _flush_handles_in_threads(opened: Collection[tuple[Path, int]], failures: dict[Path | None, OSError]) -> set[Path]:
    """Flushes handles, and returns the paths that were flushed."""
    flushed, handles = set[Path](), iter(opened)  # `next` on an iterator is atomic, so that nothing is flushed twice

    def flush_remaining_handles() -> None:
        for path, handle in handles:
            try:
                os.fsync(handle)
                flushed.add(path)
            except OSError as error:
                failures[path] = error

    threads = [Thread(target=flush_remaining_handles) for _ in range(min(THREADS, -(-len(opened) // EACH)) - 1)]
    try:
        for thread in threads:
            thread.start()
        flush_remaining_handles()
    finally:  # also after an interruption: no handle is closed while it is flushed
        for thread in filter(Thread.is_alive, threads):
            thread.join()
    return flushed


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
    run_generator_and_flush_yielded_paths(make_private_folder_in_group_commit(folder))


def make_private_folder_in_group_commit(folder: Path) -> Flushing[None]:
    """Does what `make_private_folder_durably` does, as a part of a group commit."""
    if folder.is_dir():
        return
    for one in reversed(_folder_and_missing_parents(folder)):
        _make_one_folder(one, FOLDER)
        yield one.parent


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
    run_generator_and_flush_yielded_paths(write_bytes_in_group_commit(path, content, mode))


def write_compact_json_in_group_commit(path: Path, form: object, mode: int = 0o666) -> Flushing[None]:
    """Does what `write_compact_json` does, as a part of a group commit."""
    return write_bytes_in_group_commit(path, json.dumps(form, allow_nan=False).encode(), mode)


def write_bytes_in_group_commit(path: Path, content: bytes, mode: int = 0o666) -> Flushing[None]:
    """Does what `write_bytes` does, as a part of a group commit."""
    make_folder_and_missing_parents(path.parent)
    mode = mode_with_group(path, mode)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as stream:
        stream.write(content)
    yield partial
    partial.replace(path)
    yield path.parent


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
