"""A command whose defaults have changed since it was last given says so before it charges."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"
QUICK = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "steps=2", "accountant=rdp")
PRICE = ("accountant.witnesses=[]", "privacy.noise_multiplier=30")


def test_the_same_words_with_another_plan_are_named_before_the_charge(program: Program, tmp_path: Path) -> None:
    first, later = ((*QUICK, *PRICE, f"trainer.lr={lr}") for lr in (1, 2))
    done = program("sweep", *first, module=CLI)
    assert done.returncode == 0, done.stderr
    assert "Defaults have changed" not in done.stderr
    (command,) = tmp_path.rglob("multirun.yaml")
    known = command.read_text()
    command.write_text(known.replace("- trainer.lr=1\n", "- trainer.lr=2\n"))
    planned = program("plan", *later, "page=false", module=CLI)
    assert f"this command was plan {command.parent.name} before" in planned.stdout
    swept = program("sweep", *later, module=CLI)
    assert swept.returncode == 0, swept.stderr
    assert f"this command was plan {command.parent.name} before" in swept.stderr
    again = program("sweep", *later, module=CLI)
    assert "Defaults have changed" not in again.stderr, "it was said once"
    for damaged in (b"    task:\n    - {\n", b"    task:\n    - \xff\n", b""):
        command.write_bytes(damaged)
        assert program("plan", *later, "repeats=2", module=CLI).returncode == 0, "a folder decides nothing"
    command.write_text(known)
    assert "Defaults have changed" not in program("sweep", *first, module=CLI).stderr
