"""Signal handling of the coordinator. First Ctrl-C: running trials finish their step and checkpoint; second: exit.

Jobs learn of a stop only from a file in the sweep's folder, in any process and on any machine: they poll for it, and a
user may also create it by hand. A terminal sends SIGINT to a whole process group, and a worker that died of it would
end its neighbours, so workers start with SIGINT blocked. SIGTERM requests a stop like SIGINT, but is not blocked
anywhere: killing a worker must succeed.
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

AGAIN, PAY_AGAIN = "--again", "hydra.sweeper.retry=again"
"""The short and the full option that accept another charge of a plan."""

STDERR = 2

SAME_SECONDS = 0.3
"""Seconds within which several signals are one request: `timeout` sends each signal twice."""

ASKED = "\nStopping: running trials finish their step and write a checkpoint; Ctrl-C again stops at once.\n"


@contextmanager
def create_stop_file_on_signals(stop: Path) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into the file `stop`, and the next one into `KeyboardInterrupt`.

    The file of an earlier stop is removed first. If the file cannot be created, the first signal stops at once. Only
    the main thread receives signals; in another thread the handlers are not changed.
    """
    stop.unlink(missing_ok=True)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first_request: float | None = None

    def request_stop(*_: object) -> None:
        nonlocal first_request
        now = time.monotonic()
        if first_request is not None and now - first_request < SAME_SECONDS:
            return
        if first_request is not None or not _try_to_create_stop_file(stop):
            raise KeyboardInterrupt
        first_request = now
        with suppress(OSError):
            os.write(STDERR, ASKED.encode())  # not print: the signal may have interrupted a print

    before = {number: signal.signal(number, request_stop) for number in SIGNALS}
    try:
        with _start_children_with_sigint_blocked():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _start_children_with_sigint_blocked() -> Iterator[None]:
    """Child processes start with SIGINT blocked; this process receives it in a thread that was started before."""
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


def command_to_repeat() -> str:
    """The command that started this program, quoted for a shell, without the options that accept another charge."""
    words = _words_of_command()
    by_make = "MAKELEVEL" in os.environ and not {AGAIN, PAY_AGAIN} & {*sys.orig_argv}
    return shlex.join(words) + (" (or the same make command)" if by_make else "")


def command_to_pay_again() -> str:
    """The command that started this program with the option that accepts another charge, or words for Python."""
    words = [word for word in _words_of_command() if not word.startswith(PAY_AGAIN.partition("again")[0])]
    program = words[2] if words[:2] == ["python", "-m"] else words[0]
    is_command = program.partition(".")[0] in ("dpsweep", "sweeper")
    return shlex.join([*words, AGAIN]) if is_command else "the same call with again=True"


def _words_of_command() -> list[str]:
    first, *rest = sys.orig_argv[1:] or ["-"]
    arguments = [word for word in rest if word not in (AGAIN, PAY_AGAIN)]
    return ["python", first, *arguments] if first.startswith("-") else [Path(first).name, *arguments]


def _try_to_create_stop_file(stop: Path) -> bool:
    try:
        stop.touch()
    except OSError:
        return False
    return True
