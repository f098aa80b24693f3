"""Disks that fill up, can only be read, or vanish: one sentence, no charge lost, and the same command goes on later."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from dpsweep.accounting.errors import ExitCode
from tests.faults.sandbox import CHECKPOINTS, FAULTS, SHARDS, SWEEP, Sandbox, agree, sentence, spread
from tests.faults.syscalls import Stroke

pytestmark = FAULTS

Make = Callable[[tuple[str, ...]], Sandbox]

MET = (ExitCode.BAD_INPUT, ExitCode.LEDGER_DAMAGED, ExitCode.DISK_FAILED)


@pytest.mark.parametrize(
    "name",
    [
        "os.fsync .*/steps-1",
        pytest.param("os.mkdir books$", marks=pytest.mark.long),
        pytest.param(r"open .*/\.report\.html", marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_from_here_on(sandbox: Make, undisturbed: Sandbox, name: str) -> None:
    box = sandbox((*SWEEP, *CHECKPOINTS))
    fill(box, undisturbed.when(name))
    agree(box, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_disk_that_is_full_from_instants_all_over_the_sweep_on(
    tmp_path: Path, undisturbed: Sandbox, chance: Random, shard: int
) -> None:
    for at in spread(chance, 1, len(undisturbed.instants()), 8, shard):
        box = Sandbox.at(tmp_path / str(at), (*SWEEP, *CHECKPOINTS))
        fill(box, at)
        agree(box, undisturbed)


def fill(sandbox: Sandbox, at: int) -> None:
    """Fills the disk at this instant, which is said, and makes room again."""
    done = sandbox.run(Stroke.FULL, at)
    if done.code != ExitCode.DONE:
        sentence(done, *MET)
    assert done.code != ExitCode.BAD_INPUT or not (sandbox.ledger.account_names() and sandbox.charges), "it says so"
    sandbox.check()
    sandbox.finish()


@pytest.fixture
def mounted(sandbox: Make) -> Iterator[Sandbox]:
    """A sandbox whose sweeps lie on a small disk of their own."""
    box = sandbox((*SWEEP, *CHECKPOINTS))
    place = box.root / "sweeps"
    place.mkdir()
    if _mount("-t", "tmpfs", "-o", "size=52k", "tmpfs", place):
        pytest.skip("needs the right to mount a file system")
    try:
        yield box
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_small_disk_for_the_sweep_is_refused_before_the_charge(mounted: Sandbox, undisturbed: Sandbox) -> None:
    sentence(mounted.run(), ExitCode.BAD_INPUT)
    assert not mounted.ledger.account_names()
    mounted.check()
    assert _mount("-o", "remount,size=64m", mounted.root / "sweeps") == 0
    mounted.finish()
    agree(mounted, undisturbed)


def test_a_folder_that_can_only_be_read(mounted: Sandbox, undisturbed: Sandbox) -> None:
    place = mounted.root / "sweeps"
    assert _mount("-o", "remount,size=64m", place) == 0
    mounted.run(Stroke.KILL, undisturbed.when("os.fsync .*/steps-1", 2))
    mounted.check()
    before = mounted.entries
    assert _mount("-o", "remount,ro", place) == 0
    sentence(mounted.run(), *MET)
    mounted.check()
    assert mounted.entries == before, "where nothing can be written, nothing is charged or started"
    assert _mount("-o", "remount,rw", place) == 0
    mounted.finish()
    agree(mounted, undisturbed)


@pytest.mark.parametrize("name", ["open .*/steps-1", pytest.param(r"open .*/\.result\.json", marks=pytest.mark.long)])
def test_a_mount_that_vanishes_and_comes_back(sandbox: Make, undisturbed: Sandbox, name: str) -> None:
    """Meanwhile the program may have written where the mount was; that lies hidden below it afterwards."""
    box = sandbox((*SWEEP, *CHECKPOINTS))
    vanish(box, undisturbed.when(name))
    agree(box, undisturbed)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_mount_that_vanishes_at_instants_all_over_the_runs(
    tmp_path: Path, undisturbed: Sandbox, chance: Random, shard: int
) -> None:
    first, last = undisturbed.when("claim-1"), undisturbed.when("os.rename .*result", 2)
    for at in spread(chance, first, last, 4, shard):
        box = Sandbox.at(tmp_path / str(at), (*SWEEP, *CHECKPOINTS))
        vanish(box, at)
        agree(box, undisturbed)


def vanish(sandbox: Sandbox, at: int) -> None:
    place = sandbox.root / "sweeps" / "digits"
    done = sandbox.run(Stroke.GONE, at, place)
    if done.code != ExitCode.DONE:
        sentence(done, ExitCode.DISK_FAILED, ExitCode.DONE_WITH_FAILURES)
    if place.exists():
        shutil.rmtree(place)
    place.with_name("digits elsewhere").rename(place)
    sandbox.check()
    sandbox.finish()


def _mount(*words: str | Path) -> int:
    return subprocess.run(["mount", *words], check=False, capture_output=True).returncode
