"""Processes are struck in the state that was asked for, and a wait in vain is said."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import waiting
from tests.waiting import strike_when, wait

TURNS = """
import sys, time
from pathlib import Path
mark = Path(sys.argv[1])
while True:
    mark.touch()
    time.sleep(0.003)
    mark.unlink()
    time.sleep(0.003)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for stopped threads in /proc")
def test_a_process_is_struck_in_a_state_that_lasts_milliseconds(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", TURNS, str(mark)], text=True) as process:
            strike_when(mark.exists, process, signal.SIGKILL)
        assert mark.exists()
        mark.unlink()


def test_a_process_that_ends_too_early_is_said(tmp_path: Path) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", ""], text=True) as process,
        pytest.raises(AssertionError, match="it ended before"),
    ):
        strike_when((tmp_path / "never").exists, process, signal.SIGKILL)


def test_a_wait_in_vain_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HANGS", 0.0)
    with pytest.raises(AssertionError, match="the moon did not happen"):
        wait(lambda: False, "the moon")
