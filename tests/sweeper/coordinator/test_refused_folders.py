"""A refused sweep leaves no folder, so that `dpsweep release sweeps/NAME/*` finds sweeps alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.permit import PrivateStore
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.coordinator.guards import SPARE_BYTES, refuse_full_disks, remove_new_empty_folder_at_end
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import TWO, folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"


@TRAINS
def test_sweeps_beside_a_refused_one_are_released_together(program: Program, tmp_path: Path) -> None:
    made = folder_of(program("sweep", *TWO, module=CLI))
    refused = program("sweep", *TWO, "privacy.epsilon=50", module=CLI)
    assert refused.returncode == 3, refused.stderr
    assert list((tmp_path / "sweeps" / "digits").iterdir()) == [made]
    released = program("release", *map(str, (tmp_path / "sweeps" / "digits").glob("*")), module=CLI)
    assert released.returncode == 0, released.stderr


def test_a_folder_stays_that_was_there_before_or_holds_something(tmp_path: Path) -> None:
    for name, before, within in (("mine", True, False), ("full", False, True), ("refused", False, False)):
        folder = SweepFolder(root=tmp_path / name)
        if before:
            folder.root.mkdir()
        with remove_new_empty_folder_at_end(folder):
            folder.root.mkdir(exist_ok=True)
            folder.coordinator_lock_path.touch()
            if within:
                folder.plan_path.touch()
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "full"}


def test_folders_above_a_refused_sweep_go_with_it_where_they_are_empty(tmp_path: Path) -> None:
    for name in ("sweeps/digits/first", "mine/digits/second"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        folder = SweepFolder(root=tmp_path / name)
        with remove_new_empty_folder_at_end(folder):
            folder.root.mkdir(parents=True)
            folder.coordinator_lock_path.touch()
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


@pytest.mark.parametrize("full", ["sweeps", "books", "none"])
def test_a_nearly_full_disk_is_refused_before_anything_dies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    for name in ("sweeps", "books"):
        (tmp_path / name).mkdir()
    free = SPARE_BYTES - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free + (Path(place).name != full)))
    store = PrivateStore(root=tmp_path / "books" / "private")
    folder = SweepFolder(root=tmp_path / "sweeps" / "digits" / "first", store=store)
    with nullcontext() if full == "none" else pytest.raises(BadInput, match=f"free on the disk of .*{full} to be at"):
        refuse_full_disks(folder)
