"""Several commands at once, before there is a ledger: one opens it, the others begin again there, and all run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.randomized import TRAINS
from tests.waiting import HANGS

LINE = ("dataset=digits", "trainer=dpsgd", "trainer.clip_norm=1", "steps=3", "privacy.epsilon=2", "page=false")


@TRAINS
def test_four_first_sweeps_at_once_all_run(tmp_path: Path, environment: dict[str, str], ledger: Ledger) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "sweeper", *LINE, f"trainer.lr={lr}", "--anyway"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for lr in (1, 2, 3, 4)
    ]
    said = [process.communicate(timeout=HANGS)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, said
    statement = ledger.statement("digits")
    assert len(statement.charges) == 4
    assert len(list(tmp_path.glob("sweeps/digits/*/trials/*/result.json"))) == 4
    assert verify_entries(ledger.chain)
