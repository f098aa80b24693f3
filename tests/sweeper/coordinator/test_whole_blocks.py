"""Sweeps whose points train at once, as a user starts them: killed, stopped, divided, and on the same subsamples."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.events.build import are_same_events, from_json, runs_on_shared_batches
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.waiting import strike_when

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]

LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "compute.threads=1")
GRID = ("dataset=digits", "trainer=dpsgd", "trainer.lr=0.5,1,2", "trainer.clip_norm=0.1,1", *LIGHT)
LONG = (*GRID, "steps=8000", "privacy.noise_multiplier=60", "score.noise_std=30")


def folder_of(root: Path) -> Path:
    (folder,) = root.glob("sweeps/digits/*")
    return folder


def results(folder: Path) -> list[TrialResult]:
    plan = Plan.read(folder / "plan.json")
    found = [TrialResult.read(folder / "trials" / trial.id) for trial in plan.trials]
    return [result for result in found if result is not None]


def begun(root: Path) -> bool:
    return len(list(root.glob("sweeps/*/*/trials/*/progress"))) == 6


def struck(root: Path, environment: dict[str, str], line: tuple[str, ...], by: signal.Signals) -> int:
    """Starts the sweep, strikes once all of its points are at work, and says how it ended."""
    with Run(line, root, environment, module="sweeper") as process:
        strike_when(lambda: begun(root), process, by)
        return process.wait().code


@pytest.mark.long
@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("subsample", ["independent", pytest.param("shared", marks=pytest.mark.long)])
def test_points_at_once_from_command_to_page(program: Program, ledger: Ledger, tmp_path: Path, subsample: str) -> None:
    line = (*GRID, "steps=3", "privacy.epsilon=4", f"subsample={subsample}")
    done = program(*line)
    assert done.returncode == 0, done.stderr
    folder = folder_of(tmp_path)
    plan, found = Plan.read(folder / "plan.json"), results(folder)
    assert [len(block.trials) for block in plan.blocks] == [6]
    assert plan.has_shared_subsamples == (subsample == "shared")
    assert len(found) == 6
    for trial, result in zip(plan.trials, found, strict=True):
        assert result.status is Status.FINISHED
        assert result.event is not None
        assert are_same_events(from_json(dict(result.event)), trial.event.training)
        assert "trained with 5 others" in (folder / "trials" / trial.id / "train.log").read_text()
    (charge,) = ledger.statement("digits").charges
    assert 3.9 < charge.body["epsilon"] <= 4
    if plan.has_shared_subsamples:
        assert are_same_events(
            plan.event.training, runs_on_shared_batches(trial.event.training for trial in plan.trials)
        )
        assert len({json.dumps(result.curator["batch_sizes"]) for result in found}) == 1
    assert "6 of 6 results" in verify_sweep_folder_and_describe(folder, ledger)
    page = (folder / "curator" / "report.html").read_text()
    assert ("the same ones for all runs" in page) == plan.has_shared_subsamples
    again = program(*line)
    assert "nothing is run or charged" in again.stdout
    repeated = program(*line, "--again")
    assert repeated.returncode == 0, repeated.stderr
    costs = [charge.body["epsilon"] for charge in ledger.statement("digits").charges]
    assert costs[0] == pytest.approx(costs[1]), "a repetition of all points costs what they did"


@pytest.mark.long
def test_kill_minus_nine_kills_all_that_train_at_once(
    program: Program, ledger: Ledger, environment: dict[str, str], tmp_path: Path
) -> None:
    assert struck(tmp_path, environment, LONG, signal.SIGKILL) == -signal.SIGKILL
    before = ledger.statement("digits")
    assert results(folder_of(tmp_path)) == []
    for words in ((), ("hydra.sweeper.retry=none",)):
        done = program(*LONG, *words)
        assert done.returncode == 4, "nobody paid for them again"
        assert results(folder_of(tmp_path)) == []
    done = program(*LONG, "--again")
    assert done.returncode == 0, done.stderr
    after = ledger.statement("digits")
    assert [charge.body["reason"] for charge in after.charges] == ["plan", "repeat"]
    assert len(after.charges[1].body["trials"]) == 6
    assert after.entries[: len(before.entries)] == before.entries
    assert {result.attempt for result in results(folder_of(tmp_path))} == {2}


@pytest.mark.long
@pytest.mark.parametrize("subsample", ["independent", "shared"])
def test_ctrl_c_keeps_all_and_the_same_command_goes_on_without_a_charge(
    program: Program, ledger: Ledger, environment: dict[str, str], tmp_path: Path, subsample: str
) -> None:
    line = (*LONG, f"subsample={subsample}")
    assert struck(tmp_path, environment, line, signal.SIGINT) == 130
    folder = folder_of(tmp_path)
    assert results(folder) == []
    assert len(list(folder.glob("trials/*/checkpoint-1"))) == 6
    steps = {json.loads(path.read_bytes().splitlines()[1])["step"] for path in folder.glob("trials/*/checkpoint-1")}
    assert len(steps) == 1, "they were stopped after the same step"
    done = program(*line)
    assert done.returncode == 0, done.stderr
    assert len(ledger.statement("digits").charges) == 1
    assert {(result.status, result.steps) for result in results(folder)} == {(Status.FINISHED, 8000)}
    assert "6 of 6 results" in verify_sweep_folder_and_describe(folder, ledger)


@pytest.mark.parametrize("launcher", [pytest.param("joblib", marks=pytest.mark.long), "fork"])
def test_workers_share_the_points(program: Program, fresh_program: Program, tmp_path: Path, launcher: str) -> None:
    if launcher == "fork" and sys.platform != "linux":
        pytest.skip("forked jobs need Linux")
    run = program if launcher == "fork" else fresh_program
    done = run(*GRID, "steps=3", "privacy.epsilon=4", f"hydra/launcher={launcher}", "hydra.launcher.n_jobs=2")
    assert done.returncode == 0, done.stderr
    folder = folder_of(tmp_path)
    assert [result.status for result in results(folder)] == [Status.FINISHED] * 6
    for log in folder.glob("trials/*/train.log"):
        assert "trained with 2 others" in log.read_text()


@pytest.mark.long
def test_a_seed_gives_the_same_results_however_points_are_divided(program: Program, tmp_path: Path) -> None:
    found = []
    for together in ("null", "4", "1"):
        place = tmp_path / together
        done = program(
            *GRID,
            "steps=5",
            "privacy.noise_multiplier=9",
            "seed=7",
            f"hydra.sweep.dir={place}",
            f"compute.together={together}",
            *(() if together == "null" else ("--again",)),
        )
        assert done.returncode == 0, done.stderr
        found.append([(result.score or {})["value"] for result in results(place)])
    assert found[0] == pytest.approx(found[1], abs=2e-3)
    assert found[0] == pytest.approx(found[2], abs=2e-3)
