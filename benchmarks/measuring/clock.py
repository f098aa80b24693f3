"""Seconds of a call: on the wall's clock, or of the processor, which neighbours do not lengthen by taking turns."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable


def wall_seconds(work: Callable[[], object]) -> float:
    """Seconds from the start of a call to its end."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this process during a call, over all of its threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def children_seconds() -> float:
    """Processor seconds of all children of this process that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
