"""Charges priced again: whether each takes what its runs cost.

Where the bounds of this version are above what a charge of an earlier one took, the account is under-charged by the
difference. Where the charge is of the same version, the line was not written by dpsweep. A cost from outside, and one
that a restoration charged, has no event, so it is taken as it was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.errors import LedgerDamaged, UnderCharged
from dpsweep.accounting.events.types import PlanEvent
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.bodies import Charged, SpentOutside, read_body
from dpsweep.accounting.ledger.composition_policy import DELTA, EPSILON
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.upper_bounds import CLOSE, PRICES, upper_bound
from dpsweep.accounting.validation import turn_read_errors_into_refusal

MOST_RUNS = 10**7  # more than any plan has: a line with more is damaged


def require_paid_charges(statement: Statement, plan: str | None = None) -> int:
    """Prices the charges of an account, or of one of its plans, again and returns their number.

    Raises `LedgerDamaged` for one that is below what this version says, and wrote; then `UnderCharged` for those of
    earlier versions that are below it, less the costs from outside whose note says that they take the difference.
    Nothing can be paid into a filter later, so a charge that lacks divergence lacks the whole price.
    """
    bodies, late, budget = [(entry, read_body(entry)) for entry in statement.entries], [], statement.budget
    charges = [
        (entry, body)
        for entry, body in bodies
        if isinstance(body, Charged) and body.event is not None and plan in (None, entry.plan)
    ]
    for entry, body in charges:
        with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
            event = _event_by_this_version(body)
        cost = replace(budget, epsilon=upper_bound(event, body.delta, budget.adjacency), delta=body.delta)
        claim, note = {EPSILON: cost.epsilon, DELTA: cost.delta}, f"under-charged, entry {entry.seq}"
        paid = [one.takes for _, one in bodies if isinstance(one, SpentOutside) and one.note == note]
        lacks = _lacks(claim, [{EPSILON: body.epsilon, DELTA: body.delta}, *paid])
        if _lacks(statement.policy.amounts_of_charge(cost, event), [body.takes, *paid]):
            lacks = _lacks(claim, [body.takes, *paid]) or lacks
        if not lacks:
            continue
        epsilon, delta = (lacks.get(name, 0.0) for name in (EPSILON, DELTA))
        sentence = (
            f"Entry {entry.seq}, which charges plan {entry.plan} on {statement.account}, is under-charged by epsilon "
            f"{epsilon} and delta {delta}"
        )
        if body.prices >= PRICES:
            raise LedgerDamaged(f"{sentence}: it does not take the price that it was written with.")
        late.append(
            f"{sentence} by the bounds of this version. To take it: dpsweep budget charge dataset={statement.account} "
            f'--epsilon {epsilon} --delta {delta} --note "{note}".'
        )
    if late:
        raise UnderCharged(" ".join(late))
    return len(charges)


def _lacks(needed: Mapping[str, float], taken: Sequence[Mapping[str, float]]) -> dict[str, float]:
    pairs = {name: (need, math.fsum(one.get(name, 0.0) for one in taken)) for name, need in needed.items()}
    return {name: need - total for name, (need, total) in pairs.items() if need > total * (1 + CLOSE)}


def _event_by_this_version(body: Charged) -> PlanEvent:
    """The event of the charge's rule over its points, or the stored one where the charge is older than these."""
    charged = PlanEvent.from_json(body.event or {})
    if body.prices < PRICES and not body.points:
        return charged
    if sum(one.runs for one in body.points) > MOST_RUNS:
        raise ValueError(f"Expected a charge of {MOST_RUNS} runs or fewer.")
    points = [point for one in body.points for point in [PlanEvent.from_json(one.event)] * one.runs]
    rule = rule_from_config({key: value for key, value in body.record["rule"].items() if key != "name"})
    if body.prices >= PRICES and not rule.prices(replace(charged, sealed=None), points):
        raise ValueError(f"Expected the event of a charge to be that of {rule.name} over its points.")
    return replace(rule.event(points), sealed=charged.sealed)
