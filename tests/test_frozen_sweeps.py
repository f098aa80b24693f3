"""A ledger and two sweeps as commit e41da95 left them: whatever is renamed or moved, they stay readable and paid.

`tests/frozen/e41da95` was made by `dpsweep budget open` and the two commands below. The second account, mnist_5k, has a
Renyi filter. The curator's pages and the Optuna study are left out, since both are made again.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.folder_audit import verify_folder
from dpsweep.accounting.records.plan import Plan
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from tests.conftest import Program

FROZEN = Path(__file__).parent / "frozen" / "e41da95"
COMMANDS = {
    "composition": ("trainer=dpsgd", "trainer.clip_norm=1", "trainer.lr=1,2", "steps=5", "privacy.epsilon=2"),
    "private_selection": (
        *("trainer=dpnsgd", "trainer.regularizer=0.1,1", "trainer.lr=2,8", "steps=3", "privacy.noise_multiplier=3"),
        *("score=private", "score.noise_std=3", "tuning=private_selection", "tuning.mean=3"),
    ),
}
IDS = {"composition": "7beb1ecff388", "private_selection": "0747c24f82fe"}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is on a machine of its own, since the ledger goes another way in each."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as made:
        made.executescript((FROZEN / "ledger.sql").read_text())
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture(params=IDS)
def rule(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(rule: str, tmp_path: Path) -> Path:
    Path(shutil.copy(FROZEN / "fingerprint.key", tmp_path)).chmod(0o600)  # a mode that no repository keeps
    return Path(shutil.copytree(FROZEN / rule, tmp_path / "sweeps" / "digits" / IDS[rule]))


def test_the_ledger_and_its_policies_are_read(ledger: Ledger) -> None:
    assert ledger.accounts() == ("digits", "mnist_5k")
    assert ledger.verify() == len(ledger.statement("digits").entries) + len(ledger.statement("mnist_5k").entries)
    assert ledger.statement("mnist_5k").policy.name == "Renyi filter of order 4"


def test_the_sweep_verifies_renders_and_is_released(folder: Path, rule: str, ledger: Ledger) -> None:
    assert Plan.read(folder / "plan.json").id == IDS[rule]
    assert "paid" in verify_folder(folder, ledger)
    assert write_report(folder, ledger).is_file()
    assert write_release(folder, ledger).is_file()


def test_its_command_given_again_runs_and_charges_nothing(
    folder: Path, rule: str, ledger: Ledger, program: Program
) -> None:
    before = ledger.statement("digits")
    results = {path: path.read_bytes() for path in folder.glob("trials/*/result.json")}
    done = program("dataset=digits", "compute.threads=1", *COMMANDS[rule])
    assert done.returncode == 0, done.stderr
    assert "nothing" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith(str(folder.resolve()))
    after = ledger.statement("digits")
    assert after.reserved == before.reserved
    assert after.charges == before.charges
    assert {path: path.read_bytes() for path in folder.glob("trials/*/result.json")} == results
