"""What tests of forked work look at, before and after: nobody may be left, and nothing open."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import start_server

SOON = 120
"""Seconds within which all is over that does not hang, on a loaded machine too."""

LONG = 10 * SOON
"""Seconds for which a worker sleeps that shall be ended before."""


def alive() -> set[str]:
    """The children of this process, the dead among them that nobody asked about."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or one that is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture(autouse=True)
def nobody_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No zombie and no open file after any of these tests."""
    if "program" in request.fixturenames:
        start_server()  # it stays for the tests after this one
    children, files = alive(), open_files()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    yield
    signal.signal(signal.SIGINT, before)
    assert alive() == children
    assert open_files() <= files


def end_by(number: signal.Signals) -> bytes:
    os.kill(os.getpid(), number)
    return b"it lives"
