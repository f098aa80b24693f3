"""`dpsweep audit` as a user starts it: it charges nothing, reads no private record, and its bar stands on the page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.audit.record import FALSE_ALARM, AuditRecord, read_audit_of_plan_or_none
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.coordinator.request import AuditSettings
from tests.sweeper.digits_sweeps import LIGHT, TWO, folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"
QUICK = ("audit.steps=10", "audit.canaries=100")

AUDITS = pytest.mark.randomized(
    draws="secret coins, noise and batches of the trainings of an audit",
    bound="the audit's own false alarm",
    false_alarm=FALSE_ALARM,
)

TABLE = (
    *("dataset=table", "dataset.name=visits", "dataset.file=visits.csv", "dataset.records=600", "dataset.label=ill"),
    *("dataset.labels=[a,b]", "dataset.classes=2", "dataset.bounds={age: [0, 90], dose: [0, 5]}", "dataset.shape=[2]"),
    *("privacy.epsilon=8", "privacy.delta=1e-5", "sampler.batch_size=100", "steps=3", "trainer=dpsgd", "trainer.lr=1"),
    *("trainer.clip_norm=1", "budget.epsilon=8", "budget.delta=1e-5", *LIGHT),
)
PATIENTS = ("dataset.unit=patient", "dataset.unit_column=who", "dataset.units=200", "dataset.contribution_cap=3")
FIXED_SIZE = ("sampler=fixed_size", "privacy.adjacency=replace_one")


def audited(program: Program, *words: str) -> AuditRecord:
    done = program("audit", *words, *QUICK, module=CLI)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip().splitlines()[-1])
    assert "Everything in this table is as declared." in done.stdout
    record = read_audit_of_plan_or_none(path, path.parent.name)
    assert record is not None
    return record


@AUDITS
@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_the_bar_of_an_audit_stands_on_the_page_and_in_the_release(program: Program, ledger: Ledger) -> None:
    record = audited(program, *TWO)
    assert ledger.account_names() == (), "nothing is charged"
    folder = folder_of(program("sweep", *TWO, module=CLI))
    assert record.plan == Plan.read(folder / "plan.json").id
    page = (folder / "curator" / "report.html").read_text()
    assert "What an audit found" in page
    assert "≤ true epsilon ≤ price" in page
    exhibit = json.loads((folder / "curator" / "report.json").read_text())["exhibits"]["audit"]
    assert [len(table["rows"]) for table in exhibit["tables"]] == [len(record.comparisons)]
    assert program("release", str(folder), module=CLI).returncode == 0
    assert "What an audit found" in (folder / "release" / "report.html").read_text()
    (folder / "audit.json").write_text("{")
    done = program("report", str(folder), module=CLI)
    assert done.returncode == 2
    assert "Expected the audit in" in done.stderr


@pytest.mark.long
@AUDITS
@pytest.mark.parametrize("more", [(), PATIENTS, FIXED_SIZE], ids=["records", "patients", "fixed size"])
def test_an_audit_needs_no_file_of_the_data_set(program: Program, ledger: Ledger, more: tuple[str, ...]) -> None:
    record = audited(program, *TABLE, *more)
    assert record.charge == pytest.approx(8, abs=0.01)
    assert ledger.account_names() == ()


TWICE = """
from dataclasses import dataclass

from dpsweep.trainers.declarations.batch_sampling import Poisson


@dataclass(frozen=True, kw_only=True)
class Twice(Poisson):
    def draw_batch_indices(self, rows, available, records, rng):
        return super().draw_batch_indices(rows, available, records // 2, rng)
"""


@AUDITS
def test_a_sampler_that_draws_twice_as_often_as_it_is_charged_ends_with_code_1(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    done = program("audit", *TWO, *QUICK, "sampler.batch_size=200", "sampler._target_=twice.Twice", module=CLI)
    assert done.returncode == 1, done.stderr
    assert "NOT AS DECLARED: batches: " in done.stdout
    assert "What ran is not what plan" in " ".join(done.stderr.split())
    (path,) = tmp_path.glob("sweeps/*/*/audit.json")
    assert json.loads(path.read_text())["contradicted"] is True


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*TWO, "seed=1"), "whoever knows the seed can subtract the noise"),
        ((*TWO, "audit.canaries=-1"), "Expected audit.canaries=-1 to be an integer >= 0"),
        ((*TWO, "audit.steps=0"), "Expected audit.steps=0 to be an integer >= 2"),
        ((*TWO, "audit.confidence=2"), "Expected audit.confidence=2 to be a number"),
        ((*TWO, "model=strided_cnn"), "Expected model=strided_cnn to be built"),
        (("dataset=digits", "trainer=output_perturbation", "score=private"), "output perturbation adds its noise once"),
        (("dataset=digits", "trainer=script", "script=train.py"), "nobody sees the steps of a script"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_sentence(
    program: Program, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "train.py").write_text("")
    done = program("audit", *words, module=CLI)
    assert done.returncode == 2, done.stderr
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("sweeps/*/*/audit.json"))


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    exact = {"name": "sums", "compared": 9, "value": 0.5, "expected": "<= 1", "place": ""} | {
        "p_value": None,
        "holds": True,
    }
    drawn = exact | {"name": "noise", "place": "bias[3]", "p_value": 0.5}
    whole = {
        **{"plan": "p", "confidence": 0.9, "charge": 2.0, "price": 1.0, "delta": 1e-5, "notes": ["a note"]},
        **{"canaries": 9, "made": 4, "right": 3, "epsilon": 0.5, "sure": 0.1, "sure_price": 1.0},
        "comparisons": [exact, drawn],
    }
    record = AuditRecord.from_json(whole)
    record.write(tmp_path / "audit.json")
    assert read_audit_of_plan_or_none(tmp_path / "audit.json", "p") == record
    assert read_audit_of_plan_or_none(tmp_path / "audit.json", "another") is None
    assert read_audit_of_plan_or_none(tmp_path / "none.json", "p") is None
    assert not record.contradictions
    for change in (
        {"sure": 1.5},
        {"comparisons": [exact | {"holds": False}]},
        {"comparisons": [exact, drawn | {"p_value": 1e-9}]},
    ):
        assert len(AuditRecord.from_json(whole | change).contradictions) == 1
    for bad in (
        {"right": 5.5},
        {"made": 10},
        {"epsilon": -1},
        {"price": "x"},
        {"comparisons": [drawn | {"p_value": 2}]},
    ):
        (tmp_path / "audit.json").write_text(json.dumps({"format": 1} | whole | bad))
        with pytest.raises(BadInput, match="Expected the audit in"):
            read_audit_of_plan_or_none(tmp_path / "audit.json", "p")


def test_settings_say_what_they_expect() -> None:
    with pytest.raises(BadInput, match="and nothing else"):
        AuditSettings.from_config({"gradients": 3})
