"""Garbage is collected seldom by commands and as usual while they train, and nothing stays changed."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from dpsweep.sweeper.processes.garbage_collection import SELDOM, seldom_collected, usually_collected


def test_training_within_a_command_collects_as_python_does() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt), seldom_collected():
        assert gc.get_threshold()[0] == SELDOM
        with usually_collected():
            assert gc.get_threshold() == before
        assert gc.get_threshold()[0] == SELDOM
        raise KeyboardInterrupt
    assert gc.get_threshold() == before


def test_the_end_of_a_process_collects_nothing_and_runs_what_was_registered() -> None:
    program = """
import atexit, gc
from dpsweep.sweeper.processes.garbage_collection import left_at_exit
class Circle:
    def __init__(self): self.itself = self
    def __del__(self): print("collected")
atexit.register(print, "registered")
left_at_exit()
circle = Circle()
del circle
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["registered"]
