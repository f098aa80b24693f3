"""File locks that name their holder: locks of the operating system, with the holder's name in a file beside them.

The system releases the lock of a crashed process. The lock alone decides; the file beside it is for messages. Locks
work between the processes of one machine, and between machines if the file system supports it: NFS 4 does, NFS 3 with
its lock daemon, some cluster file systems with a mount option. Without support no trial runs twice either, since a
receipt is used once (`accounting/ledger/permit.py`); but a trial that runs on another machine then looks killed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import DAMAGE, BadInput
from dpsweep.accounting.records.trial_result import RESULT_FILE

if sys.platform != "win32":
    import fcntl

WORK = ".lock"

GLANCE_SECONDS = 0.3
"""The time to wait for a lock before asking whether a process holds it or only looks at it."""


@contextmanager
def file_lock(path: Path, what: str) -> Iterator[None]:
    """Holds the lock at `path`; if another process holds it, raises `BadInput` with the process that runs `what`."""
    lock = FileLock(path)
    make_folder_and_missing_parents(path.parent)
    while not lock.is_locked:
        try:
            lock.acquire(timeout=GLANCE_SECONDS)
        except Timeout:
            if is_lock_held(path):
                raise BadInput(f"{what} is being run by {_lock_holder_text(path)}; nothing was started.") from None
    try:
        with suppress(OSError):  # a full disk must not stop a sweep because the holder's name cannot be written
            _lock_holder_file_path(path).write_text(json.dumps(_own_pid_host_and_time_as_dict()))
        yield
    finally:
        with suppress(OSError):
            _lock_holder_file_path(path).unlink()
        lock.release()


@contextmanager
def training_lock(place: Path) -> Iterator[None]:
    """Holds the lock of a trial's folder while a job trains the trial; its file goes once there is a result.

    A file that is kept counts against a quota of files. Whoever finds one without a name in the folder trains nothing:
    no receipt is left.
    """
    with file_lock(place / WORK, f"Trial {place.name}"):
        yield
        if (place / RESULT_FILE).exists():
            with suppress(OSError):  # Windows keeps an open file
                (place / WORK).unlink()


@contextmanager
def brief_lock(path: Path) -> Iterator[None]:
    """Holds the lock at `path`, after the processes that hold it and for a few file accesses only."""
    with FileLock(path):
        yield


def is_being_trained(place: Path) -> bool:
    """Whether a process trains the trial in this folder now."""
    return is_lock_held(place / WORK)


def is_lock_held(path: Path) -> bool:
    """Whether a process holds the lock at `path` now; creates no file.

    It looks by a shared lock, so that two processes or threads that look at once do not take each other for a holder.
    A display that looks would else make a coordinator, or a worker, believe that a run which was killed still trains.
    """
    if sys.platform != "win32":
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)  # closing would leave it locked by a process forked at this moment
                return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError:  # no such locks on this file system, and `FileLock` has another way
            pass
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _own_pid_host_and_time_as_dict() -> dict[str, str | int]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _lock_holder_file_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.holder")


def _lock_holder_text(path: Path) -> str:
    try:
        holder = json.loads(_lock_holder_file_path(path).read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, *DAMAGE):
        return "another process"
