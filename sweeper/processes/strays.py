"""The end of processes that a script started and that left its group: they hold records of a run that is over.

A process that calls `setsid`, and whose parent ends, becomes a child of init: neither its group nor its parent leads to
it. So while a script runs, its job adopts orphans (`PR_SET_CHILD_SUBREAPER` of prctl(2)), and kills all that it has
adopted when the script ends. A killed job can kill nothing. The coordinator then finds what is left by the variable
that names the attempt in every process's environment. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of prctl(2)."""

GET_CHILD_SUBREAPER = 37
"""`PR_GET_CHILD_SUBREAPER` of prctl(2)."""

PROCESSES = Path("/proc")


@contextmanager
def orphans_adopted() -> Iterator[None]:
    """Within it this process adopts the orphans of its children; at its end it kills all children that it got within.

    Children that it had before are left alone. A process with rights of another user is left alone too.
    """
    if sys.platform != "linux":
        yield
        return
    libc, before, adopted = ctypes.CDLL(None), _children(), ctypes.c_int()
    libc.prctl(GET_CHILD_SUBREAPER, ctypes.byref(adopted), 0, 0, 0)
    libc.prctl(SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    try:
        yield
    finally:
        _kill_children(but=before)
        libc.prctl(SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (adopted.value, 0, 0, 0)))


def kill_by_variable(name: str, value: str) -> None:
    """Kills every process of this user whose environment has this variable, but this one."""
    words = f"{name}={value}".encode()
    for place in PROCESSES.glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if words in place.read_bytes().split(b"\0") and int(place.parent.name) != os.getpid():
                os.kill(int(place.parent.name), signal.SIGKILL)


def _kill_children(but: set[int]) -> None:
    """Kills children until there are no others: those of a killed child are adopted in turn."""
    spared = set(but)
    while strays := _children() - spared:
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:
                spared.add(pid)
            except (ProcessLookupError, ChildProcessError):
                pass  # it has ended, and where this program ignores SIGCHLD, the system waits for it


def _children() -> set[int]:
    """The children of this process."""
    found = set()
    for place in PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(place.parent.name))
    return found
