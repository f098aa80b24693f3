"""Garbage collection of a command: seldom while it imports, plans and draws, as usual while it trains, not at its end.

Imports, plans and pages make hundreds of thousands of objects that live as long as the process. Python's usual
thresholds look through them again and again, and once more at the end, which took a fifth of a command's processor
time. While it trains, what was there before is left out, and only newer objects are looked through.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000
"""New containers between two collections of the youngest; Python's own number is 700."""

_USUAL = gc.get_threshold()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within it garbage is collected seldom."""
    with _thresholds(SELDOM, *_USUAL[1:]):
        yield


@contextmanager
def usually_collected() -> Iterator[None]:
    """Within it garbage is collected as Python does by itself: training may keep large tensors in cycles.

    Objects that exist at its beginning are not looked at until its end.
    """
    gc.freeze()
    try:
        with _thresholds(*_USUAL):
            yield
    finally:
        gc.unfreeze()


@contextmanager
def left_at_exit() -> Iterator[None]:
    """Leaves what is in memory to the operating system when the process ends with the exit code of what runs within.

    What is registered with `atexit` after this begins, and threads that are not daemons, end as always; then Python
    would give back its objects one by one, which takes a third of the time of importing torch. An exception that is no
    exit ends the process as always.
    """
    codes: list[int] = []

    def leave() -> None:
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed from the beginning
                stream.flush()
        except (OSError, ValueError):
            if not any(codes[-1:]):  # a success that nobody can read is none: Python says so
                return
        if codes:
            os._exit(codes[-1])

    atexit.register(leave)
    try:
        yield
    except SystemExit as stop:
        codes.append(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
        raise
    codes.append(0)


@contextmanager
def _thresholds(*numbers: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*numbers)
    try:
        yield
    finally:
        gc.set_threshold(*before)
