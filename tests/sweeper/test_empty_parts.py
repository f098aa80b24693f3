"""Training on nothing is refused before the charge, on the curator's terminal alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.ledger.ledger import Ledger
from tests.randomized import TRAINS

pytestmark = TRAINS

Program = Callable[..., subprocess.CompletedProcess[str]]

TABLE = (
    *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=300", "dataset.shape=[2]"),
    *("dataset.classes=2", "dataset.label=ill", "dataset.labels=[no,yes]", "sampler.batch_size=20", "steps=2"),
    *("dataset.bounds={weight:[40,150],age:[18,90]}", "privacy.delta=1e-5", "budget.epsilon=6", "budget.delta=1e-4"),
    *("accountant=rdp", "accountant.witnesses=[]", "trainer=dpnsgd", "trainer.lr=2", "trainer.regularizer=0.1"),
    "compute.threads=1",
)
PATIENTS = ("dataset.unit=patient", "dataset.unit_column=who", "dataset.units=100", "dataset.contribution_cap=2")


def write(folder: Path, rows: int) -> None:
    lines = [f"P{row},{18 + row % 70},{50 + row % 60},{'yes' if row % 3 else 'no'}" for row in range(rows)]
    (folder / "visits.csv").write_text("\n".join(["who,age,weight,ill", *lines]) + "\n")


@pytest.mark.parametrize("units", [(), PATIENTS], ids=["records", "patients"])
def test_a_table_without_rows_is_refused_and_nothing_is_charged(
    program: Program, ledger: Ledger, tmp_path: Path, units: tuple[str, ...]
) -> None:
    write(tmp_path, 0)
    done = program(*TABLE, *units)
    assert done.returncode == 2, done.stderr
    assert "Expected dataset visits to have records to train on, got 0 of the declared 300" in done.stderr
    assert "Traceback" not in done.stderr
    assert ledger.accounts() == ()
    assert list(tmp_path.rglob("release")) == []


def test_where_all_records_are_held_out_nothing_is_charged(program: Program, ledger: Ledger, tmp_path: Path) -> None:
    write(tmp_path, 1)
    done = program(*TABLE, "score.fraction=0.9999", "sampler.batch_size=1")
    assert done.returncode == 2, done.stderr
    assert "got 0 of the declared 300, and 1 are held out" in done.stderr
    assert ledger.accounts() == ()


def test_where_none_is_held_out_the_curator_is_warned_and_no_page_says_so(
    program: Program, ledger: Ledger, tmp_path: Path
) -> None:
    write(tmp_path, 2)
    done = program(*TABLE, "score.fraction=0.0001")
    assert done.returncode == 0, done.stderr
    assert "No record of visits is held out, so every score of this sweep is noise alone." in done.stderr
    folder = Path(done.stdout.strip().splitlines()[-1]).parent.parent
    assert program("release", str(folder), module="sweeper.commands.cli").returncode == 0
    for page in (folder / "release").glob("report.*"):
        assert "held out, so every score" not in page.read_text()
    again = program(*TABLE, "score.fraction=0.0001")
    assert "No record of visits" not in again.stderr, "a sweep that was charged is not counted again"
