"""`dpsweep resume FOLDER` continues a sweep by its own plan, whatever its command would mean now."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.trial_result import Status, TrialResult
from tests.conftest import Program
from tests.forked_programs import Run
from tests.randomized import TRAINS
from tests.waiting import strike_when

pytestmark = TRAINS
CLI = "dpsweep.sweeper.commands.cli"
WORDS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "accountant=rdp"),
    *("accountant.witnesses=[]", "compute.threads=1", "privacy.noise_multiplier=30"),
)


def folder_of(root: Path) -> Path:
    (plan,) = root.glob("sweeps/digits/*/plan.json")
    return plan.parent


def results(folder: Path) -> list[TrialResult]:
    found = [TrialResult.read(path.parent) for path in folder.glob("trials/*/receipt.json")]
    return [one for one in found if one is not None]


def test_a_finished_sweep_has_nothing_to_do_and_another_attempt_is_paid(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    assert program("sweep", *WORDS, "steps=2", module=CLI).returncode == 0
    folder = folder_of(tmp_path)
    command = (folder / "multirun.yaml").read_bytes()
    done = program("resume", str(folder), "page=false", module=CLI)
    assert done.returncode == 0, done.stderr
    assert len(ledger.statement("digits").charges) == 1
    assert {result.attempt for result in results(folder)} == {1}
    done = program("resume", str(folder), "--again", "page=false", module=CLI)
    assert done.returncode == 0, done.stderr
    first, second = ledger.statement("digits").charges
    assert 0 < second.body["epsilon"] <= first.body["epsilon"], "by the tighter of all accountants, not by RDP alone"
    assert {result.attempt for result in results(folder)} == {2}
    assert (folder / "multirun.yaml").read_bytes() == command, "the folder remembers the command that made it"


@pytest.mark.long
def test_a_stopped_sweep_goes_on_without_a_charge(
    program: Program, ledger: Ledger, environment: dict[str, str], tmp_path: Path
) -> None:
    line = [*WORDS, "steps=20000", "compute.device=cpu"]
    with Run(line, tmp_path, environment, module="sweeper") as process:
        strike_when(lambda: len(list(tmp_path.glob("sweeps/*/*/trials/*/progress"))) == 2, process, signal.SIGINT)
        assert process.wait().code == 130
    folder = folder_of(tmp_path)
    assert results(folder) == []
    done = program("resume", str(folder), "page=false", module=CLI)
    assert done.returncode == 0, done.stderr
    assert len(ledger.statement("digits").charges) == 1
    assert {(result.status, result.steps) for result in results(folder)} == {(Status.FINISHED, 20000)}


def test_only_what_was_charged_is_continued(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    assert program("plan", *WORDS, "steps=2", module=CLI).returncode == 0
    folder = folder_of(tmp_path)
    done = program("resume", str(folder), module=CLI)
    assert done.returncode == 2
    assert "to be charged in this ledger" in done.stderr
    assert "digits" not in ledger.account_names()
    assert program("sweep", *WORDS, "steps=2", module=CLI).returncode == 0
    plan = json.loads((folder / "plan.json").read_text())
    plan["delta"] = plan["delta"] / 2
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    (changed / "plan.json").write_text(json.dumps(plan))
    assert program("resume", str(changed), module=CLI).returncode != 0
    assert len(ledger.statement("digits").charges) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Expected a sweep folder"),
        (("nowhere",), "Expected nowhere to be a sweep folder with a plan.json."),
        ((".", "trainer.lr=3"), "Expected . to be a sweep folder"),
    ],
)
def test_bad_input_is_one_sentence(program: Program, words: tuple[str, ...], message: str) -> None:
    done = program("resume", *words, module=CLI)
    assert done.returncode == 2
    assert message in done.stderr


def test_what_runs_is_in_the_folder_alone(program: Program, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    done = program("resume", ".", "trainer.lr=3", module=CLI)
    assert done.returncode == 2
    assert "Expected trainer.lr=3 to say where jobs run" in done.stderr
