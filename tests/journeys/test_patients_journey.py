"""A user's journey: a table with several rows of one patient, from its price to the files that leave."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.ledger.ledger import Ledger
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]

CLI = "dpsweep.sweeper.commands.cli"
PATIENTS = 100
TABLE = """
dataset=table dataset.name=visits dataset.file=visits.csv dataset.label=ill dataset.labels=[no,yes] dataset.classes=2
dataset.records=300 dataset.shape=[2] dataset.bounds={age:[18,90],weight:[40,150]}
dataset.unit=patient dataset.unit_column=patient dataset.units=100 dataset.contribution_cap=2
privacy.epsilon=3 privacy.delta=1e-5 budget.epsilon=6 budget.delta=1e-4
"""
GRID = """
trainer=dpnsgd trainer.lr=2,8 trainer.regularizer=0.1 sampler.batch_size=20 steps=5 accountant=rdp
accountant.witnesses=[]
"""
WORDS = (*TABLE.split(), *GRID.split())

LEAVES = {
    *("report.html", "report.json", "trials.csv", "config.yaml", "model.safetensors", "preprocessing.json"),
    *("winner.json", "heatmap.png", "heatmap.svg", "heatmap-dpnsgd.png", "heatmap-dpnsgd.svg"),
    *("privacy.png", "privacy.svg", "privacy.pdf", "heatmap.pdf", "heatmap-dpnsgd.pdf"),
    *("methods.tex", "methods.bib"),
    *("statement.html", "statement.pdf", "price.json", "price_check.py"),
}
"""The files of a release under composition."""


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """300 rows of 100 patients, one to five of each."""
    rows = [
        f"P{patient:03d},{18 + (patient + visit) % 70},{50 + patient % 60},{('no', 'yes')[patient % 3 > 0]}"
        for patient in range(PATIENTS)
        for visit in range(1 + patient % 5)
    ]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(["patient,age,weight,ill", *rows]) + "\n")
    return path


@TRAINS
@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_table_of_patients_goes_from_its_price_to_what_leaves(program: Program, visits: Path, ledger: Ledger) -> None:
    _refused(program, visits, ledger)
    _priced(program, ledger)
    folder = _swept(program, ledger)
    _verified(program, folder)
    _released(program, folder)
    _leaves(folder / "release")


def _dpsweep(program: Program, *words: str) -> subprocess.CompletedProcess[str]:
    return program(*words, module=CLI)


def _refused(program: Program, visits: Path, ledger: Ledger) -> None:
    """Wrong tables and wrong units end in one sentence, and nothing is charged."""
    without = [word for word in WORDS if not word.startswith("dataset.unit_column")]
    done = _dpsweep(program, "sweep", *without, "privacy.unit=patient")
    assert done.returncode == 2
    assert "Expected dataset.unit='patient' to be 'record' where no dataset.unit_column is given." in done.stderr
    content = visits.read_text()
    visits.write_text(content.replace("P007,25", "P007,old"))
    done = _dpsweep(program, "sweep", *WORDS)
    assert done.returncode == 2
    assert "old" in done.stderr
    assert "Traceback" not in done.stderr
    visits.write_text(content)
    assert ledger.account_names() == ()


def _priced(program: Program, ledger: Ledger) -> None:
    """The plan says what a patient's guarantee costs, and charges nothing."""
    done = _dpsweep(program, "plan", *WORDS)
    assert done.returncode == 0, done.stderr
    assert re.search(r"epsilon 3\.000 at delta 1e-5 per patient", done.stdout)
    assert "noisy counts on held-out private patients" in done.stdout
    assert ledger.account_names() == ()


def _swept(program: Program, ledger: Ledger) -> Path:
    """One charge for both runs; the same command again runs and charges nothing."""
    done = _dpsweep(program, "sweep", *WORDS)
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    (charge,) = ledger.statement("visits").charges
    assert charge.plan == folder.name
    again = _dpsweep(program, "sweep", *WORDS)
    assert "All 2 trials of this plan are finished; nothing is run or charged." in again.stdout
    assert len(ledger.statement("visits").charges) == 1
    budget = _dpsweep(program, "budget", "dataset.name=visits", "--json")
    assert budget.returncode == 0, budget.stderr
    assert "visits" in budget.stdout
    return folder


def _verified(program: Program, folder: Path) -> None:
    """Ledger, plan, charges and results agree."""
    done = _dpsweep(program, "budget", "verify", str(folder))
    assert done.returncode == 0, done.stderr
    assert "the chain is whole" in done.stdout
    assert f"plan {folder.name} is what was charged; 2 of 2 results are there, all paid." in done.stdout


def _released(program: Program, folder: Path) -> None:
    """The release is made, and its page is the last line."""
    done = _dpsweep(program, "release", str(folder))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip().splitlines()[-1]).resolve() == (folder / "release" / "report.html").resolve()


def _leaves(release: Path) -> None:
    """What leaves states the patient's guarantee and names no patient, file or drawn batch."""
    assert {path.name for path in release.iterdir()} == LEAVES
    form = json.loads((release / "report.json").read_text())
    statement = {line["topic"]: line["text"] for line in form["statement"]}
    assert "differential privacy for each patient" in statement["Claim"]
    assert "one patient is added or removed" in statement["Unit and neighbours"]
    text = b"".join(
        path.read_bytes() for path in release.iterdir() if path.suffix in (".html", ".json", ".csv", ".yaml")
    )
    assert re.findall(rb"\bP\d{3}\b|visits\.csv|batch_sizes|seconds", text) == []
    runs = (release / "trials.csv").read_text().splitlines()
    assert len(runs) == 3
    assert "accuracy" in runs[0]
