"""`dpsweep audit` as a user starts it: it charges nothing, reads no private record, and its bar stands on the page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsweep.accounting.audit_record import Attack, AuditRecord, NoiseTest, Scope, read_audit_of_plan_or_none
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.coordinator.request import AuditSettings
from tests.sweeper.digits_sweeps import LIGHT, TWO, folder_of

Program = Callable[..., subprocess.CompletedProcess[str]]
CLI = "dpsweep.sweeper.commands.cli"
QUICK = ("audit.gradients=300", "audit.records=40", "audit.trainings=2", "audit.confidence=0.999999999999")
"""At this confidence the right program is accused with a probability of 1e-12."""

AUDITS = pytest.mark.randomized(
    draws="secret coins, noise and batches of the trainings of an audit",
    bound="the audit's own confidence",
    false_alarm=1e-12,
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
    assert "No attack contradicts the price" in done.stdout
    record = read_audit_of_plan_or_none(path, path.parent.name)
    assert record is not None
    return record


@AUDITS
@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_the_bar_of_an_audit_stands_on_the_page_and_in_the_release(program: Program, ledger: Ledger) -> None:
    record = audited(program, *TWO)
    assert ledger.account_names() == (), "nothing is charged"
    assert {finding.attack for finding in record.findings} == set(Attack)
    assert {finding.scope for finding in record.findings} == set(Scope)
    folder = folder_of(program("sweep", *TWO, module=CLI))
    assert record.plan == Plan.read(folder / "plan.json").id
    page = (folder / "curator" / "report.html").read_text()
    assert "What an audit found" in page
    assert "≤ true epsilon ≤ charge 8.000" in page
    exhibit = json.loads((folder / "curator" / "report.json").read_text())["exhibits"]["audit"]
    assert [len(table["rows"]) for table in exhibit["tables"]] == [len(record.findings), len(NoiseTest)]
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


@AUDITS
def test_a_search_that_hides_its_losers_is_audited_by_its_winner(program: Program) -> None:
    record = audited(program, *TWO, "tuning=private_selection", "tuning.mean=3")
    assert sum(finding.scope is Scope.SEARCH for finding in record.findings) == 3


@AUDITS
def test_public_records_may_be_audited_themselves(program: Program) -> None:
    words = ("dataset.public=true", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "score=training", "steps=3")
    record = audited(program, "dataset=digits", *words, "privacy.noise_multiplier=1", "audit.data=own")
    assert record.charge == float("inf")
    assert all(finding.p_value is None for finding in record.findings)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*TWO, "audit.data=own"), "canaries among private records would be an access to them that nobody charged"),
        ((*TWO, "seed=1"), "whoever knows the seed can subtract the noise"),
        ((*TWO, "audit.data=mine"), "to be one of generated, own"),
        ((*TWO, "audit.gradients=0", "audit.records=0"), "without a canary nothing is seen"),
        ((*TWO, "audit.trainings=0"), "Expected audit.trainings=0 to be an integer >= 1"),
        ((*TWO, "audit.confidence=2"), "Expected audit.confidence=2 to be a number"),
        ((*TWO, "model=strided_cnn"), "This model cannot be trained on this data set"),
        (("dataset=digits", "trainer=output_perturbation", "score=private"), "output perturbation adds its noise once"),
        (
            ("dataset=digits", "trainer=script", "script=train.py", "audit.records=0"),
            "nobody sees the steps of a script",
        ),
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
    form = {
        **{"attack": "gradients, sum", "scope": "search", "canaries": 9, "made": 4, "right": 3, "epsilon": 0.5},
        **{"claimed": 1.0, "claim_made": 2, "claim_right": 1, "p_value": 0.5},
        **dict.fromkeys(("halved_epsilon", "halved_seen", "unclipped_seen")),
    }
    noise = {
        **{"test": "each number", "tested": 650, "draws": 40, "place": "bias[3]", "value": 0.9, "p_value": 0.5},
        **{"halved_seen": 0.9},
    }
    whole = {
        **{"plan": "p", "confidence": 0.9, "charge": 2.0, "delta": 1e-5, "records": "generated"},
        **{"trainings": 1, "floating_point": 4, "notes": [], "findings": [form], "noise": [noise]},
    }
    record = AuditRecord.from_json(whole)
    record.write(tmp_path / "audit.json")
    assert read_audit_of_plan_or_none(tmp_path / "audit.json", "p") == record
    assert read_audit_of_plan_or_none(tmp_path / "audit.json", "another") is None
    assert read_audit_of_plan_or_none(tmp_path / "none.json", "p") is None
    assert not record.is_charge_or_noise_refuted
    for key, value in (("epsilon", 1.5), ("p_value", 0.01)):
        assert AuditRecord.from_json(whole | {"findings": [form | {key: value}]}).is_charge_or_noise_refuted
    assert AuditRecord.from_json(whole | {"floating_point": None}).is_charge_or_noise_refuted
    assert AuditRecord.from_json(whole | {"noise": [noise | {"p_value": 1e-9}]}).is_charge_or_noise_refuted
    for bad in ({"test": "guess"}, {"tested": -1}, {"draws": 0.5}, {"value": "x"}, {"p_value": 2}, {"halved_seen": -1}):
        (tmp_path / "audit.json").write_text(json.dumps({"format": 1} | whole | {"noise": [noise | bad]}))
        with pytest.raises(BadInput, match="Expected the audit in"):
            read_audit_of_plan_or_none(tmp_path / "audit.json", "p")
    for bad in ({"right": 5.5}, {"made": 10}, {"attack": "guess"}, {"epsilon": -1}, {"p_value": 2}, {"claimed": "x"}):
        (tmp_path / "audit.json").write_text(json.dumps({"format": 1} | whole | {"findings": [form | bad]}))
        with pytest.raises(BadInput, match="Expected the audit in"):
            read_audit_of_plan_or_none(tmp_path / "audit.json", "p")


def test_settings_say_what_they_expect() -> None:
    with pytest.raises(BadInput, match="and nothing else"):
        AuditSettings.from_config({"canaries": 3})
