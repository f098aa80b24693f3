"""Seconds of a step of many examples."""

from __future__ import annotations

import time
from collections.abc import Callable

EXAMPLES = 64
LONG_ENOUGH = 0.2
"""Seconds; a shorter measurement is repeated with more examples, up to the whole batch."""


def seconds_for_all(step: Callable[[int], None], batch_size: int, device: str) -> float:
    """Seconds of `step(batch_size)`, scaled up from the fewest examples that take long enough; the faster of two."""
    step(2)
    examples = min(EXAMPLES, batch_size)
    while True:
        seconds = min(seconds_of(step, examples, device), seconds_of(step, examples, device))
        if seconds > LONG_ENOUGH or examples == batch_size:
            return seconds * batch_size / examples
        examples = min(4 * examples, batch_size)


def seconds_of(step: Callable[[int], None], examples: int, device: str) -> float:
    """Seconds of `step(examples)`."""
    clock = clock_of(device)
    started = clock()
    step(examples)
    return clock() - started


def clock_of(device: str) -> Callable[[], float]:
    """A clock that other programs on the machine do not move, where one thread computes; else the wall clock."""
    import torch

    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
