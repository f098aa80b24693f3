"""Sweeps on digits of two and of four short runs, by the program as a user starts it, and what they leave."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import TrialResult

Program = Callable[..., subprocess.CompletedProcess[str]]

LIGHT = ("accountant=rdp", "accountant.witnesses=[]")
"""Prices by the quickest accountant alone: the program is under test here, not its accountants."""

SMALL = ("dataset=digits", "trainer=dpnsgd", "trainer.regularizer=0.1,1", "steps=3", *LIGHT)
TWO = (*SMALL, "trainer.lr=2")
FOUR = (*SMALL, "trainer.lr=2,8")


def folder_of(done: subprocess.CompletedProcess[str]) -> Path:
    """The sweep's folder, by the last line printed: the page to open, or the folder where none was drawn."""
    assert done.returncode in (0, 4), done.stderr
    path = Path(done.stdout.strip().splitlines()[-1])
    if path.is_dir():
        return path
    assert path.is_file()
    assert path.parts[-2:] == ("curator", "report.html")
    return path.parent.parent


def results(folder: Path) -> dict[str, TrialResult]:
    plan = Plan.read(folder / "plan.json")
    found = {trial.id: TrialResult.read(folder / "trials" / trial.id) for trial in plan.trials}
    return {trial: result for trial, result in found.items() if result is not None}
