"""joblib's workers hear no Ctrl-C, print no traceback, and end with their coordinator, also those that never worked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dpsweep.sweeper.launchers.hydra_jobs import prepare_joblib_launcher

pytest.importorskip("joblib", reason="needs dpsweep[parallel]")
pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs dpsweep[parallel]")

WORKERS = 4

COORDINATOR = f"""
import sys, time
from pathlib import Path
from joblib import Parallel, delayed
from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher
from dpsweep.sweeper.launchers.hydra_jobs import prepare_joblib_launcher
from dpsweep.sweeper.coordinator.signals import create_stop_file_on_signals

PLACE = Path(sys.argv[1])

def work(number):
    (PLACE / f"begun-{{number}}").touch()
    while not (PLACE / "stop").exists():
        time.sleep(0.05)

if __name__ == "__main__":
    with create_stop_file_on_signals(PLACE / "stop"):
        launcher = JoblibLauncher(n_jobs={WORKERS}, backend="loky")
        prepare_joblib_launcher(launcher)
        Parallel(**launcher.joblib)(delayed(work)(number) for number in range(2))
    print("all work is done")
"""


def wait(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def members(group: int, *words: str) -> list[int]:
    """The living processes of a group with one of these words in their commands, by `ps`."""
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid,pgid,stat,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=3) for line in listing.splitlines()[1:]]
    return [
        int(pid)
        for pid, own, state, command in rows
        if own == str(group) and state[0] != "Z" and (not words or any(word in command for word in words))
    ]


def workers(group: int) -> list[int]:
    return members(group, "popen_loky")


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with a pool of four, two of which have work, in a group of processes as a terminal makes them."""
    (tmp_path / "coordinator.py").write_text(COORDINATOR)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "coordinator.py"), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_while_workers_start_is_no_traceback_and_no_lost_pool(
    coordinator: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait(lambda: bool(workers(coordinator.pid)))
    os.killpg(coordinator.pid, signal.SIGINT)
    output, errors = coordinator.communicate(timeout=60)
    assert output == "all work is done\n", errors
    assert errors.startswith("\nStopping: ")
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the workers of other systems look every half second")
def test_a_killed_coordinator_leaves_no_worker_also_none_that_had_no_work(
    coordinator: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait(lambda: len(list(tmp_path.glob("begun-*"))) == 2 and len(workers(coordinator.pid)) == WORKERS)
    coordinator.kill()
    coordinator.wait()
    wait(lambda: not members(coordinator.pid), 20)


def test_what_this_thread_blocks_stays_blocked() -> None:
    from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    options = list(sys.warnoptions)
    try:
        prepare_joblib_launcher(JoblibLauncher(n_jobs=2))
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert sys.warnoptions == options
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
