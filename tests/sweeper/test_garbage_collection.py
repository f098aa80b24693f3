"""Garbage is collected seldom by commands and as usual while they train, and nothing stays changed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from dpsweep.sweeper.processes import SELDOM, seldom_garbage_collection, usual_garbage_collection

PYTHONS_OWN = 120
"""Python's exit code where standard output cannot be written at the end."""


def test_training_within_a_command_collects_as_python_does() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt), seldom_garbage_collection():
        assert gc.get_threshold()[0] == SELDOM
        with usual_garbage_collection():
            assert gc.get_threshold() == before
        assert gc.get_threshold()[0] == SELDOM
        raise KeyboardInterrupt
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("ending", "code"), [("", 0), ("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('said')", 1), ("1 / 0", 1)]
)
def test_the_end_of_a_process_gives_back_nothing_and_keeps_its_exit_code(ending: str, code: int) -> None:
    program = f"""
import atexit, sys, threading, time
from dpsweep.sweeper.processes import process_exit_without_memory_cleanup
class Kept:
    def __del__(self): print("given back")
kept = Kept()
with process_exit_without_memory_cleanup():
    atexit.register(print, "registered")
    threading.Thread(target=lambda: (time.sleep(0.1), print("waited for"))).start()
    print("written")
    {ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code
    given_back = ["given back"] if "1 / 0" in ending else []
    assert done.stdout.splitlines() == ["written", "waited for", "registered", *given_back]
    assert ("said" in done.stderr, "ZeroDivisionError" in done.stderr) == ("said" in ending, "1 / 0" in ending)


def test_the_end_of_a_process_whose_reader_has_gone_is_no_success() -> None:
    program = """
from dpsweep.sweeper.processes import process_exit_without_memory_cleanup
with process_exit_without_memory_cleanup():
    print("x" * 100)
"""
    read, write = os.pipe()
    os.close(read)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, env=buffered)
    os.close(write)
    assert done.returncode == PYTHONS_OWN
