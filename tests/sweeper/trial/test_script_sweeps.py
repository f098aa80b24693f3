"""A sweep by a script of the user's own, as a user types it: under each launcher, to its release."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.conftest import Program
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of
from tests.sweeper.trial.scripts import STEPS, SWEEP, charges, left_behind, results_of, write_script

pytestmark = TRAINS
CLI = "dpsweep.sweeper.commands.cli"


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_sweep_by_a_script_from_the_command_to_the_release(
    program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    write_script(tmp_path)
    environment |= {"WANDB_API_KEY": "secret", "HTTPS_PROXY": "http://proxy", "DPSWEEP_PRIVATE": ""}
    words = (*SWEEP[:3], "trainer.lr=1,2", *SWEEP[4:], "+trainer.hyperparameters.hidden=16")
    done = program(*words)
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    results = results_of(folder, "trainer.lr")
    assert {result["status"] for result in results.values()} == {"finished"}
    assert all(result["steps"] == STEPS for result in results.values())
    assert left_behind(tmp_path) == []
    again = program(*words)
    assert "nothing is run or charged" in again.stdout
    assert charges(tmp_path) == 1
    lines = statement(folder / "curator")
    assert lines["Charges"]["level"] == "checked"
    for topic in ("Script", "Sampling and noise", "Scores", "Randomness", "Floating point"):
        assert lines[topic]["level"] == "assumed", topic
    assert "train.py (sha256 " in lines["Script"]["text"]
    released = program("release", str(folder), module=CLI)
    assert released.returncode == 0, released.stderr
    check_release(folder / "release")
    exported = program("export", str(folder), module=CLI)
    assert exported.returncode == 2
    assert "a script trained this one, and its files are in" in exported.stderr
    verified = program("verify", str(folder), module=CLI)
    assert "2 of 2 results are there, all paid" in verified.stdout


def statement(folder: Path) -> dict[str, dict[str, str]]:
    lines = json.loads((folder / "report.json").read_text())["statement"]
    return {line["topic"]: line for line in lines}


def check_release(release: Path) -> None:
    """It has the script's files with no time, its name without its folder, and what is only declared."""
    trainer = yaml.safe_load((release / "config.yaml").read_text())["trainer"]
    assert trainer["script"] == "train.py"
    with zipfile.ZipFile(release / "files.zip") as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
        *names, arguments = archive.read("environment.txt").decode().splitlines()
    assert not {"WANDB_API_KEY", "HTTPS_PROXY", "DPSWEEP_LEDGER", "DPSWEEP_KEY"} & set(names)
    assert {"DPSWEEP_ATTEMPT", "PATH", "OMP_NUM_THREADS"} <= set(names)
    assert "--lr=" in arguments
    assert "--hidden=16" in arguments
    assert "files.zip" in json.loads((release / "winner.json").read_text())["covers"]
    assert "declared by the script, not checked".capitalize() in statement(release)["Script"]["text"]


@pytest.mark.parametrize("launcher", ["fork", pytest.param("joblib", marks=pytest.mark.long)])
def test_a_script_runs_under_every_launcher(
    launcher: str, program: Program, fresh_program: Program, tmp_path: Path
) -> None:
    write_script(tmp_path)
    words = (*SWEEP[:3], "trainer.lr=1,2", *SWEEP[4:])
    run = program if launcher == "fork" else fresh_program
    done = run(*words, f"hydra/launcher={launcher}", "hydra.launcher.n_jobs=2", "page=false")
    assert done.returncode == 0, done.stderr
    results = results_of(folder_of(done), "trainer.lr")
    assert [result["status"] for result in results.values()] == ["finished"] * 2
    assert left_behind(tmp_path) == []


def test_a_script_without_a_receipt_says_one_sentence(fresh_program: Program, tmp_path: Path) -> None:
    write_script(tmp_path)
    done = fresh_program(module="train")
    assert done.returncode == 1
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("Nothing trains outside a charged sweep: this script holds no receipt.")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
