"""`python -m reports` as a program, and what importing the package pulls in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsweep import reports

ROOT = Path(reports.__file__).parents[1]
SweepOf = Callable[..., Any]


def run(arguments: list[str], ledger: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"DPSWEEP_LEDGER": str(ledger), "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ledger.parent,
        check=False,
    )


def test_it_renders_a_folder_again_and_prints_the_path(sweep_of: SweepOf) -> None:
    made = sweep_of({"dpsgd": {"trainer.lr": (0.1, 0.2)}})
    done = run(["-m", "reports", str(made.folder)], made.ledger.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()) == made.folder / "curator" / "report.html"
    assert Path(done.stdout.strip()).is_file()


def test_a_folder_that_is_no_sweep_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = run(["-m", "reports", str(tmp_path)], tmp_path / "ledger.sqlite")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"Expected output={tmp_path} to be the folder of a sweep, with a plan.json.\n"


@pytest.mark.parametrize(
    "statement",
    [
        "import dpsweep.reports.pages.curator_page",
        "import dpsweep.reports.pages.release",
        "import dpsweep.reports.__main__",
    ],
)
def test_importing_it_pulls_no_torch_hydra_or_optuna(tmp_path: Path, statement: str) -> None:
    code = f"import sys; {statement}; print(sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = run(["-c", code], tmp_path / "ledger.sqlite")
    assert done.returncode == 0, done.stderr
    for heavy in ("torch", "opacus", "hydra", "optuna", "trainers", "sweeper"):
        assert f"'{heavy}'" not in done.stdout


def test_asking_for_help_loads_no_drawing(tmp_path: Path) -> None:
    done = run(["-X", "importtime", "-m", "reports", "--help"], tmp_path / "ledger.sqlite")
    assert done.returncode == 0
    assert "seaborn" not in done.stderr
    assert "output" in done.stdout
