"""Accounts of data declared public: they promise nothing, take any charge, and are never mixed with those that do."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, BudgetRefused
from dpsweep.accounting.events.build import PlanEvent, non_private, repeat
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.statement import remaining_amounts, reserved_amounts
from dpsweep.accounting.ledger.upkeep import raise_budget, verify_entries
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.selection.rules import Composition
from tests.charges import charge_event

NOTHING = Guarantee(epsilon=math.inf, delta=1e-4)
PROMISE = Guarantee(epsilon=8.0, delta=1e-4)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def charge(ledger: Ledger, plan: str) -> None:
    event = PlanEvent(training=repeat(non_private(), 3))
    charge_event(ledger, "open", plan=plan, trials=["a"], delta=NOTHING.delta, event=event)


def test_they_take_any_number_of_charges_and_their_chain_verifies(ledger: Ledger) -> None:
    ledger.open_account("open", NOTHING)
    charge(ledger, "first")
    charge(ledger, "second")
    statement = ledger.statement("open")
    assert reserved_amounts(statement)[0] == remaining_amounts(statement)[0] == math.inf
    assert statement.budget == NOTHING
    assert [entry.body["epsilon"] for entry in statement.charges] == ["infinity", "infinity"]
    assert verify_entries(ledger.chain) == 3


def test_a_finite_account_takes_no_charge_that_protects_nobody(ledger: Ledger) -> None:
    ledger.open_account("open", PROMISE)
    with pytest.raises(BudgetRefused, match="epsilon inf"):
        charge(ledger, "first")
    assert not ledger.statement("open").charges


@pytest.mark.parametrize(
    ("fixed", "asked", "said"),
    [
        (PROMISE, NOTHING, "were declared private .* dataset.public=false"),
        (NOTHING, PROMISE, "were declared public .* dataset.public=true"),
    ],
    ids=["once private", "once public"],
)
def test_what_was_declared_of_an_account_stays(ledger: Ledger, fixed: Guarantee, asked: Guarantee, said: str) -> None:
    ledger.open_account("open", fixed)
    with pytest.raises(BudgetRefused, match=said) as refused:
        ledger.open_account("open", asked)
    assert refused.value.exit_code == 3


def test_no_raise_makes_private_data_public(ledger: Ledger) -> None:
    ledger.open_account("open", PROMISE)
    with pytest.raises(BadInput, match="already, and is never lowered"):
        raise_budget(ledger, "open", NOTHING)


def test_a_filter_has_nothing_to_promise(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="Expected policy=addition for data declared public"):
        ledger.open_account("open", NOTHING, RenyiFilter(order=8, epsilon=4.0, delta=1e-5))
    assert not ledger.account_names()


def test_plans_are_written_as_json_that_any_program_reads(tmp_path: Path) -> None:
    event = PlanEvent(training=repeat(non_private(), 3))
    trial = Trial(method="sgd", axes={}, config={"steps": 3}, event=event)
    plan = Plan(
        account="open",
        budget=NOTHING,
        delta=1e-5,
        rule={"_target_": "dpsweep.accounting.selection.rules.Composition"},
        blocks=(Block(trials=(trial,)),),
        event=Composition().event([event]),
    )
    plan.write(tmp_path / "plan.json")

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads((tmp_path / "plan.json").read_text(), parse_constant=refuse)["budget"]["epsilon"] == "infinity"
    there = Plan.read(tmp_path / "plan.json")
    assert there.budget == NOTHING
    assert there.has_public_data
    assert Panel(claimants=(Rdp(),)).quote(there.event, 1e-5, there.adjacency).epsilon == math.inf
