"""joblib's pool of workers: deaf to Ctrl-C from their first moment on, and gone when the coordinator is.

A terminal sends SIGINT to the workers too. They inherit a mask that blocks it (`sweeper/coordinator/signals.py`), but
the resource trackers that joblib starts just before its workers unblock it in the thread that starts them. A worker
that hears Ctrl-C while it imports prints a traceback, and its pool is lost. So the trackers are started here, and the
mask is put back.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsweep.sweeper.job.parent_death import end_with

QUIET = "ignore:resource_tracker"
"""A pool that is killed leaves semaphores behind. The trackers remove them, and need not warn the user of it."""


def is_pool(launcher: Any) -> bool:
    """Whether this is joblib's launcher, whose settings go to `joblib.Parallel` as they are."""
    return isinstance(getattr(launcher, "joblib", None), dict)


def tame(launcher: Any) -> None:
    """Prepares a launcher of joblib's for the workers that this thread will let it start; others stay as they are."""
    if not is_pool(launcher):
        return
    launcher.joblib |= {"initializer": end_with, "initargs": (os.getpid(),)}
    with _mask_kept(), _quiet():
        _start_trackers()


def _start_trackers() -> None:
    """Once they run, nothing that joblib does afterwards starts them again."""
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    resource_tracker.ensure_running()
    loky_tracker.ensure_running()


@contextmanager
def _mask_kept() -> Iterator[None]:
    """Which signals this thread blocks is afterwards what it was before."""
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
    """Programs that Python's own libraries start within ignore what the trackers would warn of."""
    sys.warnoptions.append(QUIET)
    try:
        yield
    finally:
        sys.warnoptions.remove(QUIET)
