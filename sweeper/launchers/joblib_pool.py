"""Preparation of joblib's pool: its workers never receive Ctrl-C, and end when the coordinator ends.

A terminal sends SIGINT to the workers too. They inherit a mask that blocks it (`sweeper/coordinator/signals.py`), but
joblib starts its resource trackers just before its workers, and this unblocks SIGINT in the starting thread. A worker
that receives SIGINT during its imports prints a traceback, and its pool is lost. So this module starts the trackers
earlier and restores the mask.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsweep.sweeper.processes.parent_death import end_with

QUIET = "ignore:resource_tracker"
"""A killed pool leaves semaphores behind. The trackers remove them; their warning does not help the user."""


def is_pool(launcher: Any) -> bool:
    """Whether this is joblib's launcher, which passes its settings to `joblib.Parallel`."""
    return isinstance(getattr(launcher, "joblib", None), dict)


def tame(launcher: Any) -> None:
    """Prepares joblib's launcher before this thread starts its workers; other launchers are unchanged."""
    if not is_pool(launcher):
        return
    launcher.joblib |= {"initializer": end_with, "initargs": (os.getpid(),)}
    with _mask_kept(), _quiet():
        _start_trackers()


def _start_trackers() -> None:
    """Starts the trackers; joblib does not start them again while they run."""
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    resource_tracker.ensure_running()
    loky_tracker.ensure_running()


@contextmanager
def _mask_kept() -> Iterator[None]:
    """Restores this thread's mask of blocked signals at the end."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses the trackers' warnings in Python processes that are started inside the `with` block."""
    sys.warnoptions.append(QUIET)
    try:
        yield
    finally:
        sys.warnoptions.remove(QUIET)
