"""Waiting for a condition: deadlines that a loaded machine does not reach, and processes stopped in a known state."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

HANGS = 600.0
"""Seconds after which a test says that what it waits for hangs."""


def wait(condition: Callable[[], bool], what: str = "what was waited for") -> None:
    """Until the condition holds."""
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {HANGS:g} s"
        time.sleep(0.01)


class Struck(Protocol):
    """A process that runs: of `subprocess`, or forked (tests/forked_programs.py)."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: signal.Signals, /) -> None: ...


def strike_when(condition: Callable[[], bool], process: Struck, number: signal.Signals) -> None:
    """Sends a signal to a process in a state in which the condition holds.

    The process is stopped before the condition is looked at again, so that the state is the one that the signal finds.
    """
    while True:
        wait(lambda: condition() or process.poll() is not None)
        assert process.poll() is None, "it ended before it came to the state that was waited for"
        process.send_signal(signal.SIGSTOP)
        wait(lambda: _stopped(process.pid), "the stop")
        if condition():
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            return
        process.send_signal(signal.SIGCONT)


def _stopped(pid: int) -> bool:
    """Whether all threads of the process stand still."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread that has just ended
        return False
    return {stat.rpartition(")")[2].split()[0] for stat in stats} <= {"T", "t", "Z", "X"}
