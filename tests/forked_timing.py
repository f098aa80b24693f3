"""Step times of a forked program: it has all imports already, so that steps are timed in a fork of it.

A program that is started fresh times steps in a process that imports torch, which takes two seconds of the processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from dpsweep.sweeper.timing import time_estimate
from dpsweep.sweeper.timing.step_timing import time_training_steps_of_shapes
from dpsweep.sweeper.timing.time_estimate import TIMEOUT_SECONDS, Shape

FORKED = get_context("fork")


def time_in_forks() -> None:
    """From now on what this process forks times the steps of its plans so."""
    time_estimate.timing_process = timing_fork


@contextmanager
def timing_fork(
    shapes: Sequence[Shape], device: str, threads: int | None, most: int, *, variables: Mapping[str, str]
) -> Iterator[Callable[[], dict[str, Any]]]:
    """As `time_estimate.timing_process`, of shapes whose costs are all unknown."""
    read, write = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_time, args=(write, shapes, device, threads, most))
    process.start()
    write.close()

    def answer() -> dict[str, Any]:
        try:
            times: dict[str, Any] = read.recv() if read.poll(TIMEOUT_SECONDS) else {}
        except EOFError:
            return {}
        return times

    try:
        yield answer
    finally:
        process.kill()
        process.join()
        read.close()


def _time(write: Connection, shapes: Sequence[Shape], device: str, threads: int | None, most: int) -> None:
    """Times the steps, or says why they cannot be timed, and prints nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    try:
        write.send(asdict(time_training_steps_of_shapes(shapes, device, threads, most)))
    except (ValueError, TypeError, RuntimeError) as cause:
        write.send({"refusal": str(cause)})
