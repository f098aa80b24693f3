"""Charges priced again: whether each takes what its runs cost.

A charge stores its rule, its points, its delta, its bound and the version of the bounds. By the bounds of this version
it holds if they are at most what was charged. Where they are above, an earlier version has charged too little: the
account is under-charged by the difference. Where the same version had said less, the line was not written by dpsweep.

A cost from outside, and one that a restoration charged, has no event, so it is taken as it was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.errors import LedgerDamaged, UnderCharged
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.ledger.bodies import Charged, SpentOutside, read_body
from dpsweep.accounting.ledger.composition_policy import DELTA, EPSILON
from dpsweep.accounting.notation import epsilon_text_rounded_up, text_with_all_digits
from dpsweep.accounting.selection.interface import rule_from_config
from dpsweep.accounting.upper_bounds import CLOSE, PRICES, upper_bound
from dpsweep.accounting.validation import turn_read_errors_into_refusal

MOST_RUNS = 10**7
"""More runs than any plan has; a line that says so is damaged."""


def is_of_earlier_version(charge: Entry) -> bool:
    """Whether a charge was priced by the bounds of an earlier version."""
    body = read_body(charge)
    return isinstance(body, Charged) and body.prices < PRICES


def require_paid_charges(statement: Statement, plan: str | None = None) -> int:
    """Prices the charges of an account, or of one of its plans, again and returns their number.

    Raises `LedgerDamaged` for one that is below what this version says, and wrote; then `UnderCharged` for those of
    earlier versions that are below it, less the costs from outside whose note says that they take the difference.
    """
    bodies = [(entry, read_body(entry)) for entry in statement.entries]
    charges = [
        (entry, body)
        for entry, body in bodies
        if isinstance(body, Charged) and body.event is not None and plan in (None, entry.plan)
    ]
    late = []
    for entry, body in charges:
        note = f"under-charged, entry {entry.seq}"
        paid = [one.takes for _, one in bodies if isinstance(one, SpentOutside) and one.note == note]
        if not (lacks := _missing_amounts(entry, body, statement, paid)):
            continue
        amounts = " and ".join(f"{name} {epsilon_text_rounded_up(lack)}" for name, lack in lacks.items())
        sentence = (
            f"Entry {entry.seq}, which charges plan {entry.plan} on {statement.account}, is under-charged by {amounts}"
        )
        if body.prices >= PRICES:
            raise LedgerDamaged(f"{sentence}: it does not take the price that it was written with.")
        late.append(
            f"{sentence} by the bounds of this version. To take it: dpsweep budget charge dataset={statement.account} "
            f"--epsilon {text_with_all_digits(lacks.get(EPSILON, 0.0))} "
            f'--delta {text_with_all_digits(lacks.get(DELTA, 0.0))} --note "{note}".'
        )
    if late:
        raise UnderCharged(" ".join(late))
    return len(charges)


def _missing_amounts(
    entry: Entry, body: Charged, statement: Statement, paid: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """What a charge lacks of its price beside what was paid since, by the name of the amount; empty if it holds.

    Nothing can be paid into a filter later, so a charge that lacks divergence lacks the whole price.
    """
    with turn_read_errors_into_refusal(f"entry {entry.seq} of the ledger", LedgerDamaged):
        event = _event_by_this_version(body)
    budget = statement.budget
    cost = replace(budget, epsilon=upper_bound(event, body.delta, budget.adjacency), delta=body.delta)
    claim = {EPSILON: cost.epsilon, DELTA: cost.delta}
    paid = [*paid, body.takes]
    if _lacks(statement.policy.amounts_of_charge(cost, event), paid) and (lacks := _lacks(claim, paid)):
        return lacks
    return _lacks(claim, [{EPSILON: body.epsilon, DELTA: body.delta}, *paid[:-1]])


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
