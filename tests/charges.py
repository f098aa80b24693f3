"""Charges in tests: of a declared event, or of a mechanism that is stated to cost just so much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.events.build import PlanEvent, black_box, non_private
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.panel import Panel

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
    """A charge of one search with this event."""
    return ledger.charge(
        account,
        plan=plan,
        trials=trials,
        rule={"kind": rule},
        points=[event],
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
