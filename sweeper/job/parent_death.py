"""A worker ends when its parent does, so that nothing trains on and no lock is held after a sweep was killed.

On Linux the system kills the worker at once (`PR_SET_PDEATHSIG` of prctl(2)). It does so when the *thread* that started
the worker ends, so a worker has to be started by a thread that lives as long as its program, or as its pool. Elsewhere
a thread of the worker looks now and then whether its parent is still the same process.
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
    """What a child of the process `parent` calls to be killed by the system when its parent ends; Linux only.

    The C library is loaded here, so that a forked child need not load it. The call raises `ChildProcessError` where the
    system refuses, and ends a child whose parent has ended already.
    """
    libc = ctypes.CDLL(None)

    def bind() -> None:
        if libc.prctl(PARENT_DEATH_SIGNAL, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0))):
            raise ChildProcessError("Expected prctl to be allowed: a worker must not outlive its sweep.")
        if os.getppid() != parent:
            os._exit(1)

    return bind


def end_with(parent: int) -> None:
    """Lets this process end when the process `parent`, which started it, does; on every system with such a relation."""
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
    """Ends this process, whatever it does, once its parent is another one than the process `parent`."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
