"""Folders that dpsweep creates are their owner's, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, make_private_folder_durably, write_json
from dpsweep.accounting.team_folder import missing_rights_text
from tests.conftest import Program
from tests.randomized import TRAINS
from tests.source_files import PACKAGES, ROOT, modules


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The permissions of all folders below this one."""
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_dir()}


@pytest.mark.usefixtures("open_umask")
def test_missing_folders_above_are_no_more_open_than_the_folder(tmp_path: Path) -> None:
    make_folder_and_missing_parents(tmp_path / "a" / "b" / "c")
    make_private_folder_durably(tmp_path / "d" / "e")
    write_json(tmp_path / "f" / "g" / "numbers.json", {})
    assert set(modes(tmp_path).values()) == {0o700}
    make_folder_and_missing_parents(tmp_path / "a" / "b")


@TRAINS
@pytest.mark.usefixtures("open_umask")
def test_a_sweep_creates_no_folder_that_others_may_write(
    fresh_program: Program, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["XDG_STATE_HOME"] = str(tmp_path / "state" / "of" / "user")
    environment["DPSWEEP_LEDGER"] = str(tmp_path / "shared" / "books" / "ledger.sqlite")
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=3")
    done = fresh_program(*words, "privacy.noise_multiplier=3", "score.noise_std=30", "accountant=rdp")
    assert done.returncode == 0, done.stderr
    (plan,) = (tmp_path / "sweeps" / "digits").iterdir()
    assert fresh_program("release", str(plan), module="dpsweep.sweeper.commands.cli").returncode == 0
    others = {path for path, mode in modes(tmp_path).items() if mode != 0o700}
    assert others == set()


@pytest.mark.parametrize(("mode", "owner", "rights"), [(0o000, 0, "u+rw"), (0o644, 1, "g+rw")])
def test_rights_that_are_missing_are_given_by_whom_they_belong_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, rights: str
) -> None:
    path = tmp_path / "plan.json"
    path.touch()
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + owner)
    assert missing_rights_text(path).endswith(f"chmod {rights} {path}")


def test_folders_are_created_in_one_file() -> None:
    others = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        if ".mkdir(" in path.read_text() or "makedirs(" in path.read_text()
    }
    assert others == {"accounting/durable_files.py"}
