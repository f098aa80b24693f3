"""Who sweeps over no records is warned on the terminal, after the charge, and nowhere else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

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


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    "units",
    [pytest.param((), id="records", marks=pytest.mark.long), pytest.param(PATIENTS, id="patients")],
)
def test_who_trains_on_no_records_is_warned_after_the_charge(
    program: Program, ledger: Ledger, tmp_path: Path, units: tuple[str, ...]
) -> None:
    write(tmp_path, 0)
    done = program(*TABLE, *units)
    assert done.returncode == 0, done.stderr
    assert "No record of visits was there to train on, so every model of this sweep is noise alone" in done.stderr
    assert "No record of visits is held out" in done.stderr
    assert len(ledger.statement("visits").charges) == 1
    says_nothing(program, done)


def test_all_records_may_be_held_out(program: Program, tmp_path: Path) -> None:
    write(tmp_path, 1)
    done = program(*TABLE, "score.fraction=0.9999", "sampler.batch_size=1")
    assert "No record of visits was there to train on" in done.stderr
    assert "is held out, so every score" not in done.stderr


@pytest.mark.usefixtures("pages")
def test_where_none_is_held_out_the_curator_is_warned(program: Program, tmp_path: Path) -> None:
    write(tmp_path, 2)
    done = program(*TABLE, "score.fraction=0.0001", "--anyway")
    assert done.returncode == 0, done.stderr
    assert "No record of visits is held out, so every score of this sweep is noise alone." in done.stderr
    assert "was there to train on" not in done.stderr
    says_nothing(program, done)


@pytest.mark.usefixtures("pages")
def test_a_declared_value_that_no_record_has_is_named_to_the_curator(program: Program, tmp_path: Path) -> None:
    write(tmp_path, 300)
    words = [word for word in TABLE if not word.startswith(("dataset.bounds", "dataset.shape"))]
    values = [f"{place}" for place in range(18, 88)]
    done = program(
        *words,
        "dataset.bounds={weight:[40,150]}",
        f"dataset.categories={{age:[{','.join(values)},17]}}",
        "dataset.shape=[72]",
    )
    assert done.returncode == 0, done.stderr
    assert "No record of visits has the declared value age: 17: look at the spelling" in done.stderr
    folder = folder_of(done)
    assert program("release", str(folder), module="dpsweep.sweeper.commands.cli").returncode == 0
    for path in (folder / "release").rglob("*"):
        assert not path.is_file() or b"never_found" not in path.read_bytes()


def says_nothing(program: Program, done: subprocess.CompletedProcess[str]) -> None:
    """No released file and no page of the sweep tells that there were no records."""
    folder = folder_of(done)
    assert program("release", str(folder), module="dpsweep.sweeper.commands.cli").returncode == 0
    pages = [path for place in ("release", "curator") for path in (folder / place).glob("report.*")]
    assert len(pages) >= 3
    for page in pages:
        assert "sweep is noise alone" not in page.read_text()
        assert '"empty"' not in page.read_text()


@pytest.mark.parametrize("units", [(), PATIENTS], ids=["records", "patients"])
def test_more_than_have_places_are_refused_before_the_charge(
    program: Program, ledger: Ledger, tmp_path: Path, units: tuple[str, ...]
) -> None:
    write(tmp_path, 450)
    refused = program(*TABLE, *units)
    assert refused.returncode == 2
    key = "units to be about the number of patients" if units else "records to be about the number of records"
    assert f"Expected dataset.{key} of visits: a part has more than" in refused.stderr
    assert ("equal records share a part" in refused.stderr) == (not units)
    assert ledger.account_names() == ()
