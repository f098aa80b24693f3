"""An account with a small budget, and what tests of the ledger charge it and start on it."""

from __future__ import annotations

import pytest

from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from tests.charges import charge_cost, start_attempts
from tests.databases import Place

BUDGET = Guarantee(epsilon=10.0, delta=1e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)


@pytest.fixture
def ledger(place: Place) -> Ledger:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    return ledger


def charge(
    ledger: Ledger, plan: str = "p", trials: tuple[str, ...] = ("a", "b"), cost: Guarantee = ONE, spares: int = 0
) -> str:
    record = {"reason": "plan", "epsilon": 0.0, "takes": {}}
    return charge_cost(ledger, "digits", plan=plan, trials=trials, cost=cost, record=record, spares=spares).digest


def start(ledger: Ledger, *trials: str) -> list[tuple[str, int, str]]:
    receipts = start_attempts(ledger, "digits", plan="p", trials=trials)
    return [(receipt.trial, receipt.attempt, receipt.charge) for receipt in receipts]
