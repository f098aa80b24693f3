"""Sweeps of every kind of search as format 1 left them: whatever is renamed or moved, they stay readable and paid.

`tests/freezing.py` has their commands. The curator's pages are left out, since they are made again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import policy_name, reserved_amounts
from dpsweep.accounting.ledger.upkeep import verify_entries
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.reports.pages.curator_page import write_report
from dpsweep.reports.pages.release import write_release
from tests.conftest import Program
from tests.freezing import CHECKOUT, COMMANDS, FROZEN, INTERRUPTED, LEDGER, OWN, RELEASED, restored, words_of
from tests.randomized import TRAINS


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is on a machine of its own, since the ledger goes another way in each."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / OWN))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


UNFROZEN = {
    "tuning": {"auto", "public"},  # a plan has the rule that it chose, and public data have theirs without being named
    "search": {"grid"},  # which is the default
    "sampler": {"auto", "poisson"},  # the same two
    "noise": {"independent", "bsr"},
}
"""Files of conf/ that no frozen command names."""

QUICK = frozenset(
    {"composition", "private_selection_final", "proposed_final", "disjoint", "public", "table_of_patients", "sealed"}
)


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [mark for mark, has in ((pytest.mark.long, name not in QUICK), (TRAINS, name in INTERRUPTED)) if has]


@pytest.fixture(params=[pytest.param(name, marks=marks_of(name)) for name in COMMANDS])
def search(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(search: str, tmp_path: Path) -> Path:
    return restored(search, tmp_path)


@pytest.fixture
def frozen_ledger(folder: Path, tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / LEDGER)


@pytest.mark.parametrize("search", ["composition"])
def test_the_ledger_and_its_policies_are_read(frozen_ledger: Ledger) -> None:
    accounts = frozen_ledger.account_names()
    assert {"digits", "mnist_5k", "regression", "visits"} <= set(accounts)
    assert verify_entries(frozen_ledger.chain) == sum(len(frozen_ledger.statement(name).entries) for name in accounts)
    assert policy_name(frozen_ledger.statement("mnist_5k").balance.policy) == "Renyi filter of order 4"


def test_the_sweep_verifies_renders_and_is_released(folder: Path, search: str, frozen_ledger: Ledger) -> None:
    form = json.loads((folder / "plan.json").read_text())
    plan = Plan.read(folder / "plan.json")
    assert plan.id == form["id"] == folder.name
    assert {"id": plan.id} | plan.to_json() == form, "it is stored as it was"
    assert "paid" in verify_sweep_folder_and_describe(folder, frozen_ledger)
    assert write_report(folder, frozen_ledger).is_file()
    if not plan.has_public_data:
        assert write_release(folder, frozen_ledger).is_file()


def test_its_command_given_again_runs_and_charges_nothing(
    folder: Path, search: str, frozen_ledger: Ledger, program: Program, fresh_program: Program, tmp_path: Path
) -> None:
    """An interrupted sweep goes on, for nothing too. A user's class is found from a program's start on.

    The folder of a model lies elsewhere than when the sweep was made.
    """
    account = Plan.read(folder / "plan.json").account
    before = frozen_ledger.statement(account)
    results = {path: path.read_bytes() for path in folder.glob("trials/*/result.json")}
    done = (fresh_program if search == "torch_dataset" else program)(*words_of(search, tmp_path))
    assert done.returncode == 0, done.stderr
    assert search in INTERRUPTED or "nothing" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith(str(folder.resolve()))
    after = frozen_ledger.statement(account)
    assert reserved_amounts(after) == reserved_amounts(before)
    assert after.charges == before.charges
    left = {path: path.read_bytes() for path in folder.glob("trials/*/result.json")}
    assert results.items() <= left.items()
    assert (len(left) > len(results)) == (search in INTERRUPTED)


@pytest.mark.long
@pytest.mark.parametrize("search", RELEASED)
def test_a_release_is_checked_by_a_stranger(folder: Path, program: Program) -> None:
    """Exit code 8: nothing fails, and not all pages of a release are compared.

    It is long, and fails, since the frozen statements name no report.json: the form changes until the format is frozen
    again.
    """
    done = program("check", str(folder / "release"), module="dpsweep")
    assert done.returncode == 8, done.stdout + done.stderr


@pytest.mark.parametrize("search", RELEASED)
def test_a_release_is_verified_by_the_curator(folder: Path, program: Program) -> None:
    done = program("verify", str(folder), module="dpsweep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "release" in done.stdout


def test_every_command_is_frozen() -> None:
    assert {path.parent.name for path in FROZEN.glob("*/plan.json")} == set(COMMANDS)


def test_every_rule_search_and_family_is_frozen() -> None:
    """A file in conf/ that no frozen sweep uses has no promise: it is added to tests/freezing.py."""
    words = {word for name in COMMANDS for word in COMMANDS[name]}
    for group, left_out in UNFROZEN.items():
        files = {path.stem for path in (CHECKOUT / "conf" / group).glob("*.yaml")}
        assert files - {word.partition("=")[2] for word in words if word.startswith(f"{group}=")} == left_out


def test_no_frozen_file_names_a_machine() -> None:
    """Hydra's record of a command names the folders that it read."""
    for path in FROZEN.glob("*/multirun.yaml"):
        assert "path: /home/researcher/dpsweep/conf" in path.read_text()
