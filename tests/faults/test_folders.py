"""Copied, restored and edited sweep folders: whatever is put where, no more is trained than was paid for.

The access log counts every look at the records, in whichever folder a job works. They are compared with the ledger
alone, since the folders were tampered with.
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
from dpsweep.accounting.ledger.book import Attempts
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.searches.every_point import EveryPoint
from dpsweep.accounting.searches.interface import PlannedSearch, search_class_for_plan
from dpsweep.accounting.searches.secret_draw import SecretDraw
from tests.faults.access_log import Look
from tests.faults.sandbox import CHECKPOINTS, EVERY, HIDING, RESUMES, STEPS, SWEEP, Sandbox
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


def refuse_unpaid(sandbox: Sandbox, plan: Plan, ledger: Ledger | None = None) -> None:
    """Every look at the records is one of an attempt that the ledger started on a charge, within what it priced."""
    attempts = (ledger or sandbox.ledger).statement(plan.account, plan.id).attempts_of_plan(plan.id)
    looks = sandbox.looks
    for (trial, attempt, look), times in looks.items():
        most = STEPS + RESUMES * EVERY if look is Look.STEP else 1
        assert times <= most, f"attempt {attempt} at trial {trial}: {times} looks of kind {look}, {most} are paid"
    _PAID[search_class_for_plan(plan)](plan, attempts, {(trial, attempt) for trial, attempt, _ in looks})


def _points_are_paid(plan: Plan, attempts: Attempts, trained: set[tuple[str, int]]) -> None:
    for trial, attempt in trained:
        assert attempt <= attempts.started[trial], f"attempt {attempt} at trial {trial} was never started"
    assert attempts.spares >= 0
    for trial, count in Counter(trial for trial, _ in trained).items():
        assert count <= attempts.covered[trial]


def _search_is_paid(plan: Plan, attempts: Attempts, trained: set[tuple[str, int]]) -> None:
    assert max((attempt for _, attempt in trained), default=0) <= attempts.started[plan.id]
    assert attempts.started[plan.id] <= attempts.covered[plan.id]


_PAID: Mapping[type[PlannedSearch], Callable[[Plan, Attempts, set[tuple[str, int]]], None]] = {
    EveryPoint: _points_are_paid,
    SecretDraw: _search_is_paid,
}


def typed(sandbox: Sandbox, *more: str) -> subprocess.Popen[str]:
    """The command in a process that imports all of it anew: pools of workers do not begin in a forked one."""
    words = [sys.executable, "-m", "dpsweep.sweeper.commands.cli", "sweep", *sandbox.words, *more]
    environment, pipe = dict(sandbox.environment), subprocess.PIPE
    return subprocess.Popen(words, cwd=sandbox.root, env=environment, stdout=subprocess.DEVNULL, stderr=pipe, text=True)


def interrupted(sandbox: Sandbox) -> tuple[Plan, Path]:
    """Types the command and kills it once a job has begun; the plan, and its folder as it was left."""
    with typed(sandbox) as process:
        wait(lambda: any(sandbox.root.glob("sweeps/*/*/trials/*/claim-1")) or process.poll() is not None)
        process.kill()
    return Plan.read(sandbox.folder.plan_path), sandbox.folder.root


def command(sandbox: Sandbox, plan: Plan, folder: Path) -> None:
    """The command, in this folder."""
    with typed(sandbox, f"hydra.sweep.dir={folder}") as process:
        _, errors = process.communicate(timeout=HANGS)
    assert process.returncode in ANSWERS, errors
    assert "Traceback" not in errors
    refuse_unpaid(sandbox, plan)


def in_two_copies(sandbox: Sandbox) -> None:
    plan, folder = interrupted(sandbox)
    shutil.copytree(folder, copy := sandbox.root / "copy")
    for one in (folder, copy, folder):
        command(sandbox, plan, one)


def restored(sandbox: Sandbox) -> None:
    plan, folder = interrupted(sandbox)
    shutil.copytree(folder, kept := sandbox.root / "kept")
    for _ in range(2):
        command(sandbox, plan, folder)
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    command(sandbox, plan, folder)


def without_memory(sandbox: Sandbox) -> None:
    """All that says what began and how it ended is taken out of the folder."""
    plan, folder = interrupted(sandbox)
    command(sandbox, plan, folder)
    for pattern in ("claim-*", "result*.json", "steps-*", "checkpoint-*"):
        for path in folder.glob(f"trials/*/{pattern}"):
            path.unlink()
    for path in (folder / "outcome.json", *folder.glob("ended/*")):
        path.unlink(missing_ok=True)
    command(sandbox, plan, folder)


def without_store(sandbox: Sandbox) -> None:
    plan, folder = interrupted(sandbox)
    (store,) = sandbox.root.glob("books/*.private")
    shutil.rmtree(store)
    for _ in range(2):
        command(sandbox, plan, folder)


TAMPERINGS = (in_two_copies, restored, without_memory, without_store)


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_a_copy_of_an_interrupted_sweep_trains_no_more_than_was_paid_for(tmp_path: Path, rule: str) -> None:
    in_two_copies(Sandbox.at(tmp_path / "sandbox", (*SWEEP, *CHECKPOINTS, *RULES[rule])))


@pytest.mark.long
@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize(
    ("launcher", "rule"),
    [(launcher, rule) for launcher in LAUNCHERS for rule in RULES if launcher != "submitit" or rule == "points"],
)
def test_no_folder_trains_more_than_was_paid_for(
    tmp_path: Path, launcher: str, rule: str, tamper: Callable[[Sandbox], None]
) -> None:
    """40 folders that were copied, restored or emptied."""
    tamper(Sandbox.at(tmp_path / "sandbox", (*SWEEP, *CHECKPOINTS, *RULES[rule], *LAUNCHERS[launcher])))
