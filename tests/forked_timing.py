"""Step times of a forked program: it has all imports already, so that steps are timed in a fork of it.

A program that is started fresh times steps in a process that imports torch, which takes two seconds of the processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from dpsweep.sweeper.timing import time_estimate
from dpsweep.sweeper.timing.step_timing import time_training_steps_of_shapes
from dpsweep.sweeper.timing.time_estimate import TIMEOUT_SECONDS, Cost, Shape

FORKED = get_context("fork")


def time_in_forks() -> None:
    """From now on what this process forks times the steps of its plans so."""
    time_estimate.time_shapes_in_background = asked


@contextmanager
def asked(
    shapes: Sequence[Shape], device: str, threads: int | None, most: int, variables: Mapping[str, str]
) -> Iterator[Callable[[], list[Cost] | None]]:
    """As `time_estimate.time_unknown_costs_in_background`: the costs of these shapes, None if there are none."""
    read, write = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_time, args=(write, shapes, device, threads, most))
    process.start()
    write.close()

    def answer() -> list[Cost] | None:
        try:
            costs: list[Cost] | None = read.recv() if read.poll(TIMEOUT_SECONDS) else None
        except EOFError:
            return None
        return costs

    try:
        yield answer
    finally:
        process.kill()
        process.join()
        read.close()


def _time(write: Connection, shapes: Sequence[Shape], device: str, threads: int | None, most: int) -> None:
    """Times the steps and says nothing, also where they cannot be timed."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    write.send(time_training_steps_of_shapes(shapes, device, threads, most).costs)
