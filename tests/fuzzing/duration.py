"""How long fuzzing goes on where a test is marked `long`: so many minutes, by a variable of the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MINUTES = "DPSWEEP_FUZZ_MINUTES"
USUAL = 5.0
"""Minutes of each of these tests where the variable is not set."""


def while_there_is_time(explore: Callable[[], None]) -> None:
    """Explores once, and again until the minutes are over."""
    end = time.monotonic() + 60 * float(os.environ.get(MINUTES, USUAL))
    explore()
    while time.monotonic() < end:
        explore()
