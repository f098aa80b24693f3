"""A patient's several records: declared, priced, charged and trained so that all of them together are protected."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import mechanisms_with_counts
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.notation import guarantee_text
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.stored_names.stored_classes import fields_without_class_name, tag_or_path_of_class
from dpsweep.sweeper.trial.run import train_sessions_and_write_results
from dpsweep.sweeper.trial.session import Machine, TrialSession
from tests.places import both, claimed
from tests.randomized import TRAINS
from tests.sweeper.digits_sweeps import folder_of

pytestmark = TRAINS

Compose = Callable[[Sequence[str]], PricedPlan]

LIGHT = ("accountant=rdp", "accountant.witnesses=[]", "trainer=dpnsgd", "trainer.lr=2,8", "trainer.regularizer=0.1")
TABLE = (
    "dataset=table",
    "dataset.name=visits",
    "dataset.file=visits.csv",
    "dataset.records=300",
    "dataset.shape=[2]",
    "dataset.classes=2",
    "dataset.label=ill",
    "dataset.labels=[no,yes]",
    "dataset.bounds={weight:[40,150],age:[18,90]}",
    "sampler.batch_size=20",
    "steps=5",
    "privacy.delta=1e-5",
    "budget.epsilon=6",
    "budget.delta=1e-4",
    *LIGHT,
)
PATIENTS = ("dataset.unit=patient", "dataset.unit_column=patient", "dataset.units=100", "dataset.contribution_cap=2")


def write_visits(folder: Path) -> None:
    rows = [
        f"P{patient},{18 + (patient + visit) % 70},{50 + patient % 60},{'yes' if patient % 3 else 'no'}"
        for patient in range(100)
        for visit in range(1 + patient % 5)
    ]
    (folder / "visits.csv").write_text("\n".join(["patient,age,weight,ill", *rows]) + "\n")


def test_a_table_without_units_is_claimed_for_its_records(compose_priced: Compose) -> None:
    plan = compose_priced(TABLE).plan
    assert plan.unit == "record"
    ((step, _),) = mechanisms_with_counts(plan.trials[0].event.training)
    assert step.sampling_probability == 20 / 240


def test_with_units_sample_rate_and_claim_are_the_units(compose_priced: Compose) -> None:
    priced = compose_priced([*TABLE, *PATIENTS])
    assert "per patient" in guarantee_text(priced.quote.guarantee)
    assert priced.plan.budget.unit == "patient"
    for trial in priced.plan.trials:
        ((step, steps),) = mechanisms_with_counts(trial.event.training)
        assert step.sampling_probability == 20 / 80
        assert steps == 5


def test_a_key_at_its_default_changes_no_plan(compose_priced: Compose) -> None:
    same_words = ("dataset.categories=null", "dataset.test_file=null", "dataset.test_records=0")
    assert compose_priced(TABLE).plan.id == compose_priced([*TABLE, *same_words]).plan.id
    wards = compose_priced([*TABLE, "dataset.categories={ward:[a,b]}", "dataset.shape=[4]"]).plan
    assert wards.trials[0].config["dataset"]["categories"] == {"ward": ["a", "b"]}


@pytest.mark.parametrize(
    ("dataset", "where"), [("npz", "path=visits.npz"), ("torch_dataset", "source={_target_: visits.Visits}")]
)
def test_arrays_and_datasets_may_have_units(compose_priced: Compose, dataset: str, where: str) -> None:
    size = ("dataset.records=300", "dataset.shape=[2]", "dataset.classes=2", "dataset.bounds=[0,1]")
    prices = ("privacy.delta=1e-5", "budget.epsilon=6", "budget.delta=1e-4")
    named = (f"dataset={dataset}", "dataset.name=visits", f"dataset.{where}", *size)
    line = (*named, "sampler.batch_size=20", "steps=5", *prices, *LIGHT)
    assert compose_priced(line).plan.unit == "record"
    assert compose_priced([*line, *PATIENTS]).plan.unit == "patient"


def test_protecting_patients_takes_more_noise_than_protecting_records(compose_priced: Compose) -> None:
    def noise(line: Sequence[str]) -> float:
        return float(compose_priced(line).plan.trials[0].config["privacy"]["noise_multiplier"])

    assert noise([*TABLE, *PATIENTS]) > noise(TABLE)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["privacy.unit=patient"], "without a dataset.unit_column nothing above record level is claimed"),
        (["dataset.unit=patient"], "to be 'record' where no dataset.unit_column is given"),
        (["dataset.unit_column=patient"], "Expected dataset.unit='record' to say what"),
        ([*PATIENTS, "dataset.unit=record"], "Expected dataset.unit='record' to say what"),
        ([*PATIENTS, "privacy.unit=record"], "privacy.unit='record' to be dataset.unit='patient'"),
        ([*PATIENTS, "dataset.units=null"], "dataset.units, about how many of unit=patient there are."),
        ([*PATIENTS, "dataset.contribution_cap=0"], "dataset.contribution_cap=0 >= 1"),
        (
            [*PATIENTS, "privacy.adjacency=replace_one"],
            "Expected privacy.adjacency=replace_one to be add_or_remove_one",
        ),
        ([*PATIENTS, "sampler.batch_size=81"], "batch_size=81 <= records=80"),
        (["score=public"], "no public test set"),
    ],
)
def test_what_cannot_be_claimed_is_refused_in_one_sentence(
    compose_priced: Compose, overrides: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*TABLE, *overrides])
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "missing", ["dataset.name", "dataset.bounds", "dataset.label", "privacy.delta", "budget.epsilon"]
)
def test_what_the_user_has_not_said_is_named(compose_priced: Compose, missing: str) -> None:
    group, _, key = missing.partition(".")
    with pytest.raises(BadInput, match=rf"^Expected {group} to be complete: Missing mandatory value: {key}\.$"):
        compose_priced([override for override in TABLE if not override.startswith(f"{missing}=")])


@pytest.mark.long
@pytest.mark.usefixtures("pages")
def test_a_sweep_by_patients_from_the_file_to_the_ledger(
    program: Callable[..., subprocess.CompletedProcess[str]], ledger: Ledger, tmp_path: Path
) -> None:
    write_visits(tmp_path)
    done = program(*TABLE, *PATIENTS)
    assert done.returncode == 0, done.stderr
    folder = folder_of(done)
    assert "2 of 2 results" in verify_sweep_folder_and_describe(folder, ledger)
    statement = ledger.statement("visits")
    assert statement.budget.unit == "patient"
    assert "per patient" in guarantee_text(statement.budget)
    assert "per patient" in re.sub(r"\s+", " ", done.stdout)
    page = (folder / "curator" / "report.html").read_text()
    assert "differential privacy for each patient" in page
    for trial in Plan.read(folder / "plan.json").trials:
        form = json.loads((folder / "trials" / trial.id / "result.json").read_text())
        assert form["curator"]["batch_sizes"]["largest"] <= 80

    records = program(*TABLE)
    assert records.returncode == 2, "an account of patients is not charged for records"
    assert "record" in records.stderr


FIELDS = ("name", "records", "test_records", "shape", "classes", "unit", "unit_column", "units", "contribution_cap")
FORGETFUL = '''
"""A data set that declares patients and loads records."""
from dataclasses import dataclass, field, replace
from dpsweep.trainers.data.interface import DataSet
from dpsweep.trainers.data.sets.own_tables import Table

@dataclass(frozen=True, kw_only=True)
class Forgetful(DataSet):
    name: str
    records: int
    test_records: int
    shape: tuple
    classes: int
    unit: str
    unit_column: str = field()
    units: int = field()
    contribution_cap: int = field()
    table: Table

    def locate(self, folder): pass
    def verify(self, folder): pass
    def load(self, folder): return self.table.load(folder)
'''


def named(node: Mapping[str, Any]) -> dict[str, Any]:
    """A stored class of ours as a field of a class of the user's names it."""
    return {"_target_": tag_or_path_of_class(node), **fields_without_class_name(node)}


@pytest.mark.usefixtures("trusting")
def test_records_that_do_not_come_by_unit_are_not_trained_on(
    compose_priced: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_visits(tmp_path)
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.syspath_prepend(tmp_path)
    by_record = named(compose_priced(TABLE).plan.trials[0].config["dataset"])
    trial = compose_priced([*TABLE, *PATIENTS]).plan.trials[0]
    declared = {
        **named(trial.config["dataset"]),
        "_target_": "forgetful.Forgetful",
        "test_records": 0,
        "table": by_record,
    }
    kept = {key: value for key, value in declared.items() if key in ("_target_", *FIELDS, "table")}
    forgetful = replace(trial, config={**trial.config, "dataset": kept})
    place = tmp_path / "trial"
    place.mkdir()
    receipt = Receipt(account="visits", plan="p", trial=forgetful.id, attempt=1, charge="c", entries=3, head="h")
    machine = Machine(device="cpu", threads=1, chunk=None, data=tmp_path)
    train_sessions_and_write_results(
        [TrialSession(trial=forgetful, claimed=claimed(forgetful, receipt), place=both(place))], machine
    )
    result = TrialResult.read(place)
    assert result is not None
    assert result.status is Status.FAILED
    assert result.steps == 0
    assert result.error == "ContractBroken: Expected the records of visits to be grouped by patient, as charged."
