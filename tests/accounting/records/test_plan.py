from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, NoReceipt
from dpsweep.accounting.events.build import PlanEvent, gaussian, poisson_gaussian, repeat, to_json
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.selection.rules import Composition
from tests.places import NONCE, launched


def trial(lr: float) -> Trial:
    event = PlanEvent(
        training=repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.1), 10),
        validation=gaussian(noise_multiplier=2.5),
    )
    return Trial(method="dpsgd", axes={"trainer.lr": lr}, config={"trainer": {"lr": lr}}, event=event)


def plan(budget: float = 10.0) -> Plan:
    trials = [trial(0.1), trial(0.1 + 0.2)]
    return Plan(
        account="digits",
        budget=Guarantee(epsilon=budget, delta=1e-4),
        delta=1e-5,
        rule={"_target_": "dpsweep.accounting.selection.rules.Composition"},
        blocks=tuple(Block(trials=(one,)) for one in trials),
        event=Composition().event([one.event for one in trials]),
        target_epsilon=8.0,
        notes=("a note",),
    )


def test_a_plan_survives_the_disk(tmp_path: Path) -> None:
    plan().write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan()
    assert Plan.read(tmp_path / "plan.json").id == plan().id


def test_a_larger_budget_is_the_same_plan_and_another_point_is_not() -> None:
    assert plan(budget=20.0).id == plan().id
    other = Plan.from_json(plan().to_json() | {"delta": 1e-6})
    assert other.id != plan().id


@pytest.mark.parametrize(
    "edit",
    [
        lambda form: form["blocks"][0][0]["config"]["trainer"].update(lr=3.0),
        lambda form: form.update(delta=1e-6),
        lambda form: form["blocks"].pop(),
        lambda form: form.update(shared=True),
        lambda form: form["event"]["training"]["event"]["events"][0].update(count=1),
    ],
)
def test_an_edited_plan_is_refused(tmp_path: Path, edit: object) -> None:
    path = tmp_path / "plan.json"
    plan().write(path)
    form = json.loads(path.read_text())
    edit(form)  # type: ignore[operator]
    path.write_text(json.dumps(form))
    with pytest.raises(BadInput, match="edited"):
        Plan.read(path)


def test_other_schemas_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="format of the plan=99"):
        Plan.from_json(plan().to_json() | {"format": 99})
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(BadInput, match=r"plan=.* to be as dpsweep wrote it"):
        Plan.read(tmp_path / "plan.json")
    with pytest.raises(FileNotFoundError):
        Plan.read(tmp_path / "nowhere.json")


def test_a_block_of_points_has_an_id_of_its_own() -> None:
    assert [block.id for block in plan().blocks] == [one.id for one in plan().trials]
    pair = Block(trials=plan().trials)
    assert pair.id not in {one.id for one in plan().trials}


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}


def receipt() -> Receipt:
    return Receipt(account="digits", plan="p", trial="t", attempt=1, charge="c", entries=3, head="h", launch=NONCE)


def test_a_receipt_is_used_once(tmp_path: Path) -> None:
    receipt().write(tmp_path)
    assert Receipt.claim(tmp_path, launched(tmp_path / "private"), plan="p", trial="t") == receipt()
    with pytest.raises(NoReceipt, match="already used"):
        Receipt.claim(tmp_path, launched(tmp_path / "private"), plan="p", trial="t")


def test_only_one_of_many_processes_claims_a_receipt(tmp_path: Path) -> None:
    receipt().write(tmp_path)
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                Receipt.claim(tmp_path, launched(tmp_path / "private"), plan="p", trial="t")
            except NoReceipt:
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0] + [1] * 7


def test_no_receipt_no_training(tmp_path: Path) -> None:
    with pytest.raises(NoReceipt, match="holds no receipt"):
        Receipt.claim(tmp_path, launched(tmp_path / "private"), plan="p", trial="t")
    receipt().write(tmp_path)
    for names in ({"plan": "other", "trial": "t"}, {"plan": "p", "trial": "other"}):
        with pytest.raises(NoReceipt, match="nothing trains"):
            Receipt.claim(tmp_path, launched(tmp_path / "private"), **names)
    (tmp_path / "receipt.json").write_text('{"plan": "p"}')
    with pytest.raises(NoReceipt, match="whole and readable"):
        Receipt.claim(tmp_path, launched(tmp_path / "private"), plan="p", trial="t")


def result() -> TrialResult:
    return TrialResult(
        trial="t",
        attempt=1,
        status=Status.FINISHED,
        score={"value": 0.5, "low": 0.4, "high": 0.6},
        event=to_json(trial(0.1).event.training),
        steps=10,
        seconds=1.5,
        device="cpu",
        randomness="secret",
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:02+00:00",
    )


def test_a_result_survives_the_disk(tmp_path: Path) -> None:
    assert TrialResult.read(tmp_path) is None
    made = result()
    made.write(tmp_path)
    assert TrialResult.read(tmp_path) == made


def test_a_damaged_result_is_refused_and_named(tmp_path: Path) -> None:
    result().write(tmp_path)
    path = tmp_path / "result.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(BadInput, match=r"result\.json to be a readable result file"):
        TrialResult.read(tmp_path)
    path.write_text('{"format": 7}')
    with pytest.raises(BadInput, match="format"):
        TrialResult.read(tmp_path)


def test_a_result_that_cannot_be_read_is_an_error_of_the_disk_and_not_of_the_file(tmp_path: Path) -> None:
    """A sentence on damage says that the attempt counts as killed without the file: this one is whole, and paid for."""
    (tmp_path / "result.json").mkdir()
    with pytest.raises(IsADirectoryError):
        TrialResult.read(tmp_path)
