"""Charges in tests: of a declared event, or of a mechanism that is stated to cost just so much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.events.build import PlanEvent, black_box, no_access, non_private
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.pricing.panel import Panel

NOTHING = PlanEvent(training=no_access())
PANEL = Panel(claimants=(Pld(), Rdp()))


def charge_event(
    ledger: Ledger,
    account: str,
    *,
    plan: str,
    trials: Sequence[str],
    event: PlanEvent,
    rule: str = "composition",
    delta: float = 1e-5,
    record: Mapping[str, Any] | None = None,
    panel: Panel = PANEL,
    **more: Any,
) -> Entry:
    """A charge of one search with this event, which is that of its first run; the others make no access."""
    return ledger.charge(
        account,
        plan=plan,
        trials=trials,
        rule={"kind": rule},
        points=[event, *[NOTHING] * (len(trials) + more.get("spares", 0) - 1 if rule == "composition" else 0)],
        delta=delta,
        opinions=panel,
        record=record or {},
        **more,
    )


def charge_cost(
    ledger: Ledger, account: str, *, plan: str, trials: Sequence[str], cost: Guarantee, **more: Any
) -> Entry:
    """A charge of just this cost."""
    stated = black_box(epsilon=cost.epsilon, delta=cost.delta, adjacency=cost.adjacency)
    event = PlanEvent(training=non_private() if cost.promises_nothing else stated)
    return charge_event(ledger, account, plan=plan, trials=trials, event=event, delta=cost.delta or 1e-30, **more)


def start_attempts(ledger: Ledger, account: str, *, plan: str, trials: Sequence[str]) -> tuple[Receipt, ...]:
    """Starts an attempt at each of these runs, which declare no access: every charge pays for that."""
    attempts = ledger.attempts_of_plan(account, plan)
    names = {*attempts.started, *trials, *(name for body in attempts.bodies for name in body.trials)}
    declared = dict.fromkeys(names, (NOTHING,))
    return ledger.start(account, plan=plan, trials=trials, declared=declared)
