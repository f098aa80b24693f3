"""Copied, restored and edited sweep folders: whatever is put where, no more is trained than was paid for.

The witness counts every look at the records, in whichever folder a job works. What was seen is held against the ledger
alone, since the folders are what was tampered with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.ledger.account import Attempts
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.selection.interface import Execution
from tests.faults.ground import CHECKPOINTS, EVERY, HIDING, RESUMES, STEPS, SWEEP, Ground
from tests.faults.witness import Look
from tests.randomized import SEARCHES
from tests.waiting import HANGS, wait

pytestmark = SEARCHES

POISSON = ("tuning=poisson_selection", "tuning.mean=3")
RULES = {"points": (), "selection": HIDING, "poisson": POISSON}
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "basic": (),
    "fork": ("hydra/launcher=fork", "hydra.launcher.n_jobs=2"),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "submitit": ("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=1"),
}
ANSWERS = {ExitCode.DONE, ExitCode.DONE_WITH_FAILURES, ExitCode.BAD_INPUT}
"""How a command may end that was not killed: a folder that is an older copy is bad input."""


def refuse_unpaid(ground: Ground, plan: Plan) -> None:
    """Every look at the records is one of an attempt that the ledger started on a charge, within what it priced."""
    attempts = ground.ledger.statement(plan.account, plan.id).attempts(plan.id)
    looks = ground.looks
    for (trial, attempt, look), times in looks.items():
        most = STEPS + RESUMES * EVERY if look is Look.STEP else 1
        assert times <= most, f"attempt {attempt} at trial {trial}: {times} looks of kind {look}, {most} are paid"
    _PAID[execution_of(plan)](plan, attempts, {(trial, attempt) for trial, attempt, _ in looks})


def _points_are_paid(plan: Plan, attempts: Attempts, trained: set[tuple[str, int]]) -> None:
    for trial, attempt in trained:
        assert attempt <= attempts.started[trial], f"attempt {attempt} at trial {trial} was never started"
    assert attempts.spares >= 0
    for trial, count in Counter(trial for trial, _ in trained).items():
        assert count <= attempts.covered[trial]


def _search_is_paid(plan: Plan, attempts: Attempts, trained: set[tuple[str, int]]) -> None:
    assert max((attempt for _, attempt in trained), default=0) <= attempts.started[plan.id]
    assert attempts.started[plan.id] <= attempts.covered[plan.id]


_PAID: Mapping[Execution, Callable[[Plan, Attempts, set[tuple[str, int]]], None]] = {
    Execution.EVERY_POINT: _points_are_paid,
    Execution.DRAWN_TRIES: _search_is_paid,
}


def typed(ground: Ground, *more: str) -> subprocess.Popen[str]:
    """The command in a process that imports all of it anew: pools of workers do not begin in a forked one."""
    words = [sys.executable, "-m", "dpsweep.sweeper.commands.cli", "sweep", *ground.words, *more]
    environment, pipe = dict(ground.environment), subprocess.PIPE
    return subprocess.Popen(words, cwd=ground.root, env=environment, stdout=subprocess.DEVNULL, stderr=pipe, text=True)


def interrupted(ground: Ground) -> tuple[Plan, Path]:
    """Types the command and kills it once a job has begun; the plan, and its folder as it was left."""
    with typed(ground) as process:
        wait(lambda: any(ground.root.glob("sweeps/*/*/trials/*/claim-1")) or process.poll() is not None)
        process.kill()
    return Plan.read(ground.folder.plan), ground.folder.root


def command(ground: Ground, plan: Plan, folder: Path) -> None:
    """The command, in this folder."""
    with typed(ground, f"hydra.sweep.dir={folder}") as process:
        _, errors = process.communicate(timeout=HANGS)
    assert process.returncode in ANSWERS, errors
    assert "Traceback" not in errors
    refuse_unpaid(ground, plan)


def in_two_copies(ground: Ground) -> None:
    plan, folder = interrupted(ground)
    shutil.copytree(folder, copy := ground.root / "copy")
    for one in (folder, copy, folder):
        command(ground, plan, one)


def restored(ground: Ground) -> None:
    plan, folder = interrupted(ground)
    shutil.copytree(folder, kept := ground.root / "kept")
    for _ in range(2):
        command(ground, plan, folder)
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    command(ground, plan, folder)


def without_memory(ground: Ground) -> None:
    """All that says what began and how it ended is taken out of the folder."""
    plan, folder = interrupted(ground)
    command(ground, plan, folder)
    for pattern in ("claim-*", "result*.json", "steps-*", "checkpoint-*", "weights-*"):
        for path in folder.glob(f"trials/*/{pattern}"):
            path.unlink()
    for path in (folder / "outcome.json", *folder.glob("ended/*")):
        path.unlink(missing_ok=True)
    command(ground, plan, folder)


def without_store(ground: Ground) -> None:
    plan, folder = interrupted(ground)
    (store,) = ground.root.glob("books/*.private")
    shutil.rmtree(store)
    for _ in range(2):
        command(ground, plan, folder)


TAMPERINGS = (in_two_copies, restored, without_memory, without_store)


@pytest.mark.parametrize(
    "rule", ["selection", *(pytest.param(rule, marks=pytest.mark.long) for rule in RULES if rule != "selection")]
)
def test_a_copy_of_an_interrupted_sweep_trains_no_more_than_was_paid_for(tmp_path: Path, rule: str) -> None:
    in_two_copies(Ground.at(tmp_path / "ground", (*SWEEP, *CHECKPOINTS, *RULES[rule])))


@pytest.mark.long
@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_folder_trains_more_than_was_paid_for(
    tmp_path: Path, launcher: str, rule: str, tamper: Callable[[Ground], None]
) -> None:
    """48 folders that were copied, restored or emptied."""
    tamper(Ground.at(tmp_path / "ground", (*SWEEP, *CHECKPOINTS, *RULES[rule], *LAUNCHERS[launcher])))
