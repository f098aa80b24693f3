"""Strikes this process at its n-th instant: just before, or just after, something changes on the disk.

Every file that is made, written, flushed, renamed or removed below a folder is an instant, and so is either side of a
commit to a database. What comes between two of them changes nothing that outlives the process, so whoever strikes at
each of them in turn has been killed at every time that matters. The live page and the runs' progress are written by the
clock and read by the display alone: they are no instants, whose number would depend on how fast the machine is.
"""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.sqlite_file import SqliteSession
from dpsweep.accounting.records.sweep_folder import LIVE_PAGE
from dpsweep.sweeper.trial.session import PROGRESS

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Stroke(StrEnum):
    """What happens at the instant."""

    NONE = "none"
    KILL = "kill"
    FULL = "full"
    GONE = "gone"
    PACKED = "packed"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Strikes once, at instant number `at` below `root`; the file `log` names all instants that were reached.

    `place` is the folder that goes.
    """

    root: Path
    log: Path
    stroke: Stroke = Stroke.NONE
    at: int = 0
    place: Path = Path()


def arm(fault: Fault) -> None:
    """Watches this process from now on, which can not be undone."""
    log = os.open(fault.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    write, own = os.write, threading.local()
    count = 0

    def instant(name: str) -> None:
        nonlocal count
        if count == fault.at > 0:
            return
        count += 1
        write(log, f"{count} {name}\n".encode())
        if count == fault.at:
            _STROKES[fault.stroke](fault)

    def touch(event: str, path: Path) -> None:
        """What the watch itself does is no instant."""
        if getattr(own, "busy", False):
            return
        own.busy = True
        try:
            if path.is_relative_to(fault.root) and _CHANGES[event](path) and not _is_written_by_clock(path):
                instant(f"{event} {path.relative_to(fault.root)}")
        finally:
            own.busy = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES and isinstance(arguments[0], (str, Path)) and (event != "open" or arguments[2] & _WRITING):
            touch(event, Path(arguments[0]).absolute())

    def watched(event: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(handle: int, *arguments: Any) -> Any:
            touch(event, Path(f"/proc/self/fd/{handle}").readlink())
            return function(handle, *arguments)

        return called

    def commit(session: SqliteSession) -> None:
        instant("before a commit")
        committed(session)
        instant("after a commit")

    committed = SqliteSession.commit
    os.write, os.fsync = watched("os.write", os.write), watched("os.fsync", os.fsync)
    SqliteSession.commit = commit  # type: ignore[method-assign]
    sys.addaudithook(hook)


def _always(path: Path) -> bool:
    return True


def _is_written_by_clock(path: Path) -> bool:
    return path.name in (PROGRESS, LIVE_PAGE) or path.name.startswith(f".{LIVE_PAGE}.")


_CHANGES: Mapping[str, Callable[[Path], bool]] = {
    "open": _always,
    "os.write": _always,
    "os.fsync": _always,
    "os.rename": _always,
    "os.link": _always,
    "os.mkdir": lambda path: not path.exists(),
    "os.remove": os.path.lexists,
    "os.rmdir": os.path.lexists,
}
"""What changes a path's folder or file, and when it does."""


def _kill(fault: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _full(fault: Fault) -> None:
    """No file of this process grows any more; a write in vain is an error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _gone(fault: Fault) -> None:
    if fault.place.exists():
        fault.place.rename(fault.place.with_name(f"{fault.place.name} elsewhere"))


def _packed(fault: Fault) -> None:
    """No SQLite file that is opened from now on takes another page."""
    connect = sqlite3.connect

    def packed(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.execute("PRAGMA max_page_count=1").close()  # which means: no more than there are
        return connection

    sqlite3.connect = packed  # type: ignore[assignment]


_STROKES: Mapping[Stroke, Callable[[Fault], None]] = {
    Stroke.NONE: lambda fault: None,
    Stroke.KILL: _kill,
    Stroke.FULL: _full,
    Stroke.GONE: _gone,
    Stroke.PACKED: _packed,
}
