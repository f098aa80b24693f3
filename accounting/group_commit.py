"""Group commit: calls that each wait for the disk wait together.

A file system writes all that waits to be flushed in one commit of its journal. One call after another, each waits for a
commit of its own: a thousand flushes take seconds. From several threads they take a twentieth of that.

A call is a generator that yields each file or folder that has to be on the disk before it goes on, and returns a value.
The threads do nothing but flush. All else is done by the caller's thread: where threads write files themselves, they
wait for one another at every call of the system, which took more processor time than the writing.

Guarantee: a call goes on only after what it yielded was flushed, and gets the error if that failed. When `together`
returns, every call has returned. Calls for different items are in no order, so they must write different files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

THREADS = 16
"""Flushes that wait at once."""

EACH = 8
"""Paths for each thread; up to so many are flushed one after another, since threads would cost more than they save."""

OPEN = 128
"""Paths that are open at once: a process may open 1024 files, and a job has two open for each of its 256 runs."""

Returned = TypeVar("Returned")

Flushing = Generator[Path, None, Returned]
"""A call that yields each path that must be on the disk before it goes on."""


def alone(call: Flushing[Returned]) -> Returned:
    """What one call returns."""
    return run_group_commit([call])[0]


def run_group_commit(calls: Iterable[Flushing[Returned]]) -> list[Returned]:
    """What the calls return, in their order.

    The first error is raised: calls that had not begun by then do not begin, and the others do not go on.

    >>> def absolute(number: int) -> Flushing[int]:
    ...     yield from ()
    ...     return abs(number)
    >>> together([absolute(-1), absolute(2)])
    [1, 2]
    """
    running = [_Running(call) for call in calls]
    try:
        for one in running:
            one.go_on()
        while waiting := [one for one in running if one.path is not None]:
            failures = flush({one.path: None for one in waiting if one.path is not None})
            for one in waiting:
                one.go_on(failures.get(one.path))
        return [one.returned for one in running]
    finally:
        for one in running:
            one.call.close()


class _Running(Generic[Returned]):
    """A call, and the path that it waits for; None before it began and after it returned."""

    returned: Returned

    def __init__(self, call: Flushing[Returned]) -> None:
        self.call = call
        self.path: Path | None = None

    def go_on(self, failure: OSError | None = None) -> None:
        """Runs the call up to the next path that it yields, or to its end."""
        try:
            self.path = next(self.call) if failure is None else self.call.throw(failure)
        except StopIteration as end:
            self.path, self.returned = None, end.value


def flush(paths: Collection[Path]) -> dict[Path | None, OSError]:
    """Flushes files and folders to the disk; returns the errors of those that could not be flushed.

    A folder's flush writes its list of names: otherwise a power cut may undo creating or renaming a file.
    """
    failures: dict[Path | None, OSError] = {}
    every = [*paths]
    for first in range(0, len(every), OPEN):
        _flush_some(every[first : first + OPEN], failures)
    return failures


def _flush_some(paths: Collection[Path], failures: dict[Path | None, OSError]) -> None:
    opened: list[tuple[Path, int]] = []
    try:
        for path in paths:
            try:
                opened += [(path, handle) for handle in _open_for_flush(path)]
            except OSError as error:
                failures[path] = error
        flushed = _in_threads(opened, failures)
        for path, _ in opened:
            if path not in flushed and path not in failures:
                failures[path] = OSError(f"{path} was not flushed")
    finally:
        for _, handle in opened:
            os.close(handle)


def _open_for_flush(path: Path) -> Iterator[int]:
    """A handle by which the path can be flushed; none for a folder where the system flushes no folders."""
    if os.name == "posix":
        yield os.open(path, os.O_RDONLY)
    elif path.is_file():
        yield os.open(path, os.O_RDWR)


def _in_threads(opened: Collection[tuple[Path, int]], failures: dict[Path | None, OSError]) -> set[Path]:
    """Flushes handles, and returns the paths that were flushed."""
    flushed, handles = set[Path](), iter(opened)  # `next` on an iterator is atomic, so that nothing is flushed twice

    def run() -> None:
        for path, handle in handles:
            try:
                os.fsync(handle)
                flushed.add(path)
            except OSError as error:
                failures[path] = error

    threads = [Thread(target=run) for _ in range(min(THREADS, -(-len(opened) // EACH)) - 1)]
    try:
        for thread in threads:
            thread.start()
        run()
    finally:  # also after an interruption: no handle is closed while it is flushed
        for thread in filter(Thread.is_alive, threads):
            thread.join()
    return flushed
