"""A Ctrl-C that comes when all is done costs no line of what a command says, and why runs failed is among its lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import LIGHT
from tests.sweeper.search_programs import Program
from tests.waiting import HANGS

ENDING = """
import os, signal, sys
from dpsweep.accounting.errors import ExitCode
from dpsweep.sweeper.commands.one_sentence import one_sentence

class Interrupted:
    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        os.kill(os.getpid(), signal.SIGINT)
        return self.stream.write(text)

    def flush(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.stream.flush()

with one_sentence():
    print("the report", flush=False)
    {end}
"""
"""A program whose every last write comes with a Ctrl-C."""


@pytest.mark.parametrize(
    ("end", "code", "errors"),
    [
        ("sys.stdout = Interrupted(sys.stdout)", 0, []),
        ("sys.stderr = Interrupted(sys.stderr); sys.exit(ExitCode.DONE_WITH_FAILURES)", 4, ["(exit code 4"]),
        ("sys.stderr = Interrupted(sys.stderr); raise KeyboardInterrupt", 130, ["Stopped", "(exit code 130"]),
    ],
    ids=["done", "failures", "stopped"],
)
def test_ctrl_c_at_the_very_end_loses_no_line(end: str, code: int, errors: Sequence[str]) -> None:
    program = [sys.executable, "-c", ENDING.replace("{end}", end)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == code, done.stderr
    assert done.stdout == "the report\n"
    assert [line[: len(start)] for line, start in zip(done.stderr.splitlines(), errors, strict=True)] == errors


SCRIPT = """
import dpsweep

with dpsweep.attempt() as a:
    raise ValueError("the script broke")
"""


@TRAINS
def test_why_a_run_failed_is_printed_and_in_its_log(program: Program, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("trainer=script", "script=train.py", "trainer.lr=1", "trainer.clip_norm=1", "steps=3")
    done = program("dataset=digits", *LIGHT, *words, "privacy.noise_multiplier=3")
    assert done.returncode == 4, done.stderr
    reason = "ChildProcessError: The script ended with status 1; what it printed is in script.log."
    assert f"1 failed: {reason}" in done.stderr
    assert "to pass on: nothing, since no run that may be handed over has finished" in done.stdout
    (log,) = tmp_path.glob("sweeps/*/*/trials/*/train.log")
    assert reason in log.read_text()


@TRAINS
def test_a_learning_rate_too_small_for_the_weights_is_a_warning(program: Program, tmp_path: Path) -> None:
    words = ("trainer=dpsgd", "trainer.lr=1e-9", "trainer.clip_norm=1", "steps=3", "privacy.noise_multiplier=3")
    done = program("dataset=digits", *LIGHT, "model=one_hidden", *words)
    assert done.returncode == 0, done.stderr
    assert "was too small to change" in done.stderr
    (log,) = tmp_path.glob("sweeps/*/*/trials/*/train.log")
    assert "the learning rate is too small to change" in log.read_text()
