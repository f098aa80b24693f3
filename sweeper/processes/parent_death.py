"""Termination of a worker when its parent ends, so that a killed sweep leaves no training and no lock behind.

On Linux the system kills the worker at once (`PR_SET_PDEATHSIG` of prctl(2)). It does so when the *thread* that started
the worker ends, so the starting thread has to live as long as its program or its pool. On other systems a thread of the
worker checks regularly whether its parent is still the same process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PARENT_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""

LOOK_SECONDS = 0.5


def killed_with(parent: int) -> Callable[[], None]:
    """A function that a child of process `parent` calls so that the system kills it when its parent ends; Linux only.

    The C library is loaded here, so that a forked child does not have to. The function raises `ChildProcessError` if
    the system refuses, and exits if the parent has already ended.
    """
    libc = ctypes.CDLL(None)

    def bind() -> None:
        if libc.prctl(PARENT_DEATH_SIGNAL, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0))):
            raise ChildProcessError("Expected prctl to be allowed: a worker must not outlive its sweep.")
        if os.getppid() != parent:
            os._exit(1)

    return bind


def end_with(parent: int) -> None:
    """Ends this process when its parent, the process `parent`, ends; on all POSIX systems."""
    if os.name != "posix":
        return
    if sys.platform == "linux":
        try:
            killed_with(parent)()
            return
        except ChildProcessError:
            pass
    threading.Thread(target=watch, args=(parent,), daemon=True).start()


def watch(parent: int) -> None:
    """Ends this process at once when the process `parent` is no longer its parent."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
