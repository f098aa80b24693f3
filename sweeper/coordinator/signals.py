"""The coordinator's Ctrl-C. Once: nothing new begins, what runs finishes its step and leaves a checkpoint; twice: out.

A file in the sweep's folder is the one way in which jobs hear of it, in any process and on any machine: they look for
it, and it may as well be made by hand. A terminal sends SIGINT to a whole group of processes, and a worker that died of
it would take its neighbours along; so workers are born with SIGINT blocked. SIGTERM asks like SIGINT, but is no deafer
anywhere: whoever kills a worker shall succeed.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM)

AGAIN, REPEAT_ALL = "--again", "hydra.sweeper.retry=all"
"""How a user asks for the whole sweep once more, in short and in full."""

STDERR = 2

SAME_SECONDS = 0.3
"""Signals that come closer together are one request: `timeout` sends each of its own twice."""

ASKED = "\nStopping: running trials finish their step and write a checkpoint; Ctrl-C again stops at once.\n"


@contextmanager
def graceful(stop: Path) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into the file `stop`, and the next one into `KeyboardInterrupt`.

    A file that an earlier stop left is removed first. Where it can not be made, the first signal stops at once. Only a
    main thread hears signals; in another one they stay what they are.
    """
    stop.unlink(missing_ok=True)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: float | None = None

    def ask(*_: object) -> None:
        nonlocal asked
        now = time.monotonic()
        if asked is not None and now - asked < SAME_SECONDS:
            return
        if asked is not None or not _made(stop):
            raise KeyboardInterrupt
        asked = now
        with suppress(OSError):
            os.write(STDERR, ASKED.encode())  # not print: the signal may have come in the middle of one

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        with _deaf_children():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started within are born with SIGINT blocked; this one hears it by a thread that was there before."""
    if os.name != "posix":
        yield
        return
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        over.set()


def same_command() -> str:
    """What the user typed to start this program, quoted for a shell; a repetition is not asked for once more."""
    first, *rest = sys.orig_argv[1:]
    kept = [word for word in rest if word not in (AGAIN, REPEAT_ALL)]
    words = ["python", first, *kept] if first.startswith("-") else [Path(first).name, *kept]
    by_make = "MAKELEVEL" in os.environ and kept == rest
    return shlex.join(words) + (" (or the same make command)" if by_make else "")


def _made(stop: Path) -> bool:
    try:
        stop.touch()
    except OSError:
        return False
    return True
