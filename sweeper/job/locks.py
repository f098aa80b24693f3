"""Who is at work on what: locks of the operating system, which a crash lets go of, and their holder's name beside them.

The lock alone decides; what stands beside it only says who holds it. Locks hold between the processes of one machine,
and between machines where the file system passes them on: NFS 4 does, NFS 3 with its lock daemon, some cluster file
systems only where they are mounted so. Where they do not, nothing runs twice all the same, since a receipt is used once
(`accounting/ledger/receipt.py`); but a trial at work on another machine is then taken for a killed one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from dpsweep.accounting.errors import BadInput

WORK = ".lock"

GLANCE_SECONDS = 0.3
"""How long a lock is waited for: `at_work` holds it for an instant, which must not refuse a job that begins then."""


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Holds the lock at `path`; where another process does, `BadInput` says which one runs `what`."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=GLANCE_SECONDS)
    except Timeout:
        raise BadInput(f"{what} is being run by {_holder(path)}; nothing was started.") from None
    except OSError as cause:
        raise BadInput(f"Expected {path.parent} to be a place for a lock: {cause.strerror}.") from cause
    try:
        with suppress(OSError):  # a full disk must not stop a sweep for want of a name
            _note(path).write_text(json.dumps(_me()))
        yield
    finally:
        with suppress(OSError):
            _note(path).unlink()
        lock.release()


@contextmanager
def working(place: Path) -> Iterator[None]:
    """Held by a job on its trial's folder while it is at work."""
    with held(place / WORK, f"Trial {place.name}"):
        yield


def at_work(place: Path) -> bool:
    """Whether a process is at work on the trial in this folder."""
    path = place / WORK
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _me() -> dict[str, str | int]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.holder")


def _holder(path: Path) -> str:
    try:
        note = json.loads(_note(path).read_text())
        return f"process {note['pid']} on {note['host']} since {note['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
