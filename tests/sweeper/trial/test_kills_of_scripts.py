"""Stops and kills: nothing is charged again, nothing goes on running, and no private record stays behind."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.sweeper.trial.scripts import STEPS, SWEEP, charges, left_behind, results_of, write_script
from tests.waiting import wait

pytestmark = [TRAINS, pytest.mark.skipif(sys.platform != "linux", reason="a script dies with its job on Linux")]

CHECKPOINTS = ("checkpoint.every=2", "checkpoint.resumes=2")
FAULT = "+trainer.hyperparameters.fault={}"


def slow_scripts() -> list[int]:
    """The processes of scripts of these tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--fault=slow" in words:
            found.append(int(path.parent.name))
    return found


def of_test(folder: Path) -> list[int]:
    """Those that run for the test of this folder."""
    own = []
    for pid in slow_scripts():
        try:
            cwd = str(Path(f"/proc/{pid}/cwd").readlink())
        except OSError:
            continue
        own += [pid] if cwd.startswith(str(folder)) else []
    return own


@pytest.fixture
def begin(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Run]:
    """Starts a sweep and waits until its script has taken a step."""

    def start(*words: str) -> Run:
        write_script(tmp_path)
        line = (*SWEEP, FAULT.format("slow"), *words, "page=false")
        process = Run(line, tmp_path, environment, module="sweeper")
        wait(lambda: has_stepped(tmp_path) or process.poll() is not None, "the script's first step")
        assert process.poll() is None, process.wait().err
        return process

    return start


def has_stepped(folder: Path) -> bool:
    return any("step 0" in path.read_text() for path in folder.glob("sweeps/*/*/trials/*/script.log"))


def marks(folder: Path) -> str:
    """The marked steps of the one trial."""
    (path,) = folder.glob("*.private/*/trials/*/steps-1")
    return path.read_text()


def finish(program: Program, folder: Path, *words: str) -> None:
    """The same command again: it goes on with the attempt, on the charge that there is."""
    done = program(*SWEEP, FAULT.format("slow"), *words)
    assert done.returncode == 0, done.stderr
    (result,) = results_of(folder_of(done)).values()
    assert result["status"] == "finished"
    assert (result["attempt"], result["steps"]) == (1, STEPS)
    assert charges(folder) == 1
    assert left_behind(folder) == []


def test_ctrl_c_leaves_a_checkpoint_and_wastes_no_step(
    begin: Callable[..., Run], program: Program, tmp_path: Path
) -> None:
    process = begin()
    process.send_signal(signal.SIGINT)
    done = process.wait()
    assert done.code == 130, done.out
    assert of_test(tmp_path) == []
    assert left_behind(tmp_path) == []
    finish(program, tmp_path)
    assert sum(int(line.split()[0]) for line in marks(tmp_path).splitlines() if line[0] != "s") > STEPS
    (path,) = tmp_path.glob("sweeps/*/*/trials/*/result.json")
    event = json.loads(path.read_text())["event"]["event"]
    assert event["count"] == STEPS, "no step was lost"


@pytest.mark.parametrize("launcher", ["basic", pytest.param("fork", marks=pytest.mark.long)])
def test_a_killed_sweep_leaves_no_script_and_goes_on_from_its_checkpoint(
    begin: Callable[..., Run], program: Program, tmp_path: Path, launcher: str
) -> None:
    process = begin(*CHECKPOINTS, f"hydra/launcher={launcher}")
    wait(lambda: any(tmp_path.glob("sweeps/*/*/trials/*/checkpoint-1")), "a checkpoint")
    process.kill()
    process.wait()
    wait(lambda: of_test(tmp_path) == [], "the end of the script")
    assert left_behind(tmp_path) != [], "nobody was there to remove them"
    finish(program, tmp_path, *CHECKPOINTS, f"hydra/launcher={launcher}")


def test_a_killed_script_goes_on_from_its_checkpoint_and_its_lost_steps_count(program: Program, tmp_path: Path) -> None:
    write_script(tmp_path)
    words = (*SWEEP, FAULT.format("killed"), "checkpoint.every=2", "checkpoint.resumes=1")
    done = program(*words)
    assert done.returncode != 0
    assert charges(tmp_path) == 1
    assert left_behind(tmp_path) == []
    done = program(*words)
    assert done.returncode == 0, done.stderr
    (result,) = results_of(folder_of(done)).values()
    assert (result["status"], result["attempt"], result["steps"]) == ("finished", 1, STEPS)
    assert result["event"]["event"]["count"] == STEPS + 2, "the stretch that was killed counts as taken"
    assert charges(tmp_path) == 1


def test_a_script_killed_without_a_checkpoint_is_a_failed_run_that_stays_charged(
    program: Program, tmp_path: Path
) -> None:
    write_script(tmp_path)
    words = (*SWEEP, FAULT.format("killed"))
    for _ in range(2):
        done = program(*words)
        (result,) = results_of(folder_of(done)).values()
        assert (
            result["error"] == "ChildProcessError: The script was ended by signal 9; what it printed is in script.log."
        )
        assert charges(tmp_path) == 1
        assert left_behind(tmp_path) == []
