"""What people read of an account: sums as claims, the facts beside a charge, and the sentences about them.

Nothing is charged by this file. Say "reserved" and "left": "spent so far" would be a privacy odometer, which costs
more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

from dpsweep.accounting.codec import BESIDE, OMITTED, Amount, Count, Stored, Words, shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_read_errors_into_refusal
from dpsweep.accounting.events.types import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import (
    DELTA,
    DIVERGENCE,
    EPSILON,
    Attempts,
    Balance,
    Charged,
    Opened,
    Policy,
    Raised,
    SpentOutside,
    Statement,
    read_body,
    subtract_decimals_exactly,
)
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.sealed_parts import SealedCharge
from dpsweep.accounting.notation import (
    delta_text_rounded_up,
    demand_and_remainder_texts,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    guarantee_text,
    text_with_all_digits,
)


@dataclass(frozen=True, kw_only=True)
class ChargeFacts(Stored):
    """Facts for the record, beside the amounts of a charge; `others` are those that no reader of the ledger asks for.

    `reason` is `plan` for a whole plan, `repeat` for trials that are run again. `final` is the number of spare attempts
    that are kept for a final run. `claimed_by` is the accountant whose bound is the cost, `bounds` has the upper bound
    of each accountant, `refusals` the reason of each one without a bound. `parts` has the bound for each population of
    records, `bounds_by_part` that of each accountant. `lower` is the largest lower bound on epsilon that is proven, 0
    if none is known, `lower_by` names its proof, and `attack` is that from an explicit attack. `total_variation`
    is the upper bound on delta at epsilon 0, None where no profile gives one. `units` is the declared
    number of units, None for a charge without a plan, and `accepted_delta` the accepted delta of 1 / units or more,
    None if no acceptance was needed.
    """

    reason: Annotated[str, OMITTED] = "plan"
    final: Annotated[Count, OMITTED] = 0
    claimed_by: Annotated[str, OMITTED] = "unnamed"
    bounds: Annotated[Mapping[str, Amount], OMITTED] = field(default_factory=dict)
    refusals: Annotated[Mapping[str, str], OMITTED] = field(default_factory=dict)
    parts: Annotated[Mapping[str, Amount], OMITTED] = field(default_factory=dict)
    bounds_by_part: Annotated[Mapping[str, Mapping[str, Amount]], OMITTED] = field(default_factory=dict)
    lower: Annotated[Amount, OMITTED] = 0.0
    lower_by: Annotated[str, OMITTED] = "unnamed"
    attack: Annotated[Amount, OMITTED] = 0.0
    total_variation: Annotated[Amount | None, OMITTED] = None
    units: Annotated[Count | None, OMITTED] = None
    accepted_delta: Annotated[Amount | None, OMITTED] = None
    others: Annotated[Words, BESIDE] = field(default_factory=dict)


def charge_facts(charge: Charged) -> ChargeFacts:
    """The facts of its `record` that readers ask for; raises `LedgerDamaged` for others than dpsweep writes."""
    with turn_read_errors_into_refusal("the record of a charge", LedgerDamaged):
        return ChargeFacts.from_json(charge.record)


def charged_event(charge: Charged) -> PlanEvent | None:
    """The event of a charge; raises `LedgerDamaged` if the stored form is no event."""
    with turn_read_errors_into_refusal("the event of a charge", LedgerDamaged):
        return None if charge.event is None else PlanEvent.from_json(charge.event)


def paid_attempts(charge: Charged) -> int:
    """The number of attempts that a charge pays for."""
    return len(charge.trials) + charge.spares


def recorded_budgets(statement: Statement) -> tuple[Guarantee, ...]:
    """The budget that the account was opened with, and every raise since."""
    return tuple(body.budget for body in map(read_body, statement.entries) if isinstance(body, (Opened, Raised)))


def require_recorded_budget(statement: Statement, budget: Guarantee) -> None:
    """Raises `BadInput`, with the command that raises the budget, unless this one was recorded."""
    if budget not in recorded_budgets(statement):
        epsilon, delta = (text_with_all_digits(one) for one in (budget.epsilon, budget.delta))
        raise BadInput(
            f"Expected the budget of {statement.account} to be {guarantee_text(statement.budget)}, as its account "
            f"stands, got {guarantee_text(budget)}. To raise it: dpsweep budget raise dataset={statement.account} "
            f"budget.epsilon={epsilon} budget.delta={delta}"
        )


def first_swept_plan(statement: Statement) -> str | None:
    """The plan of the first charge that is no cost from outside; None without any. Empty where no plan is known."""
    return next((entry.plan for entry in statement.charges if entry.kind != SpentOutside.kind), None)


def card_charge(attempts: Attempts) -> SealedCharge | None:
    """What the last charge that pays for a card says of its sealed part; None without one."""
    known = [body.sealed for body in attempts.bodies if body.sealed is not None and body.sealed.card is not None]
    return known[-1] if known else None


def card_part(attempts: Attempts) -> int | None:
    """The number of the card's sealed part; None without a card."""
    return None if (charge := card_charge(attempts)) is None else charge.card


def part_text(charge: SealedCharge, unit: str) -> str:
    """The part that a card reads, in words."""
    share = f"{100 * charge.parts.share / charge.parts.parts:.3g} %"
    units = "the public test records" if charge.parts.public else f"the {unit}s"
    return f"sealed part {charge.card} of {charge.parts.parts}, about {share} of {units}, which chose nothing"


def guaranteed(policy: Policy, reserved: Mapping[str, Decimal]) -> tuple[float, float]:
    """(epsilon, delta) that the reserved amounts imply: the sums of both, and a filter's converted divergence."""
    sums = [_float_rounded_up(reserved.get(name, Decimal(0))) for name in (EPSILON, DELTA)]
    divergence = _float_rounded_up(reserved.get(DIVERGENCE, Decimal(0)))
    if divergence and isinstance(policy, RenyiFilter):
        return max(0.0, divergence + policy.conversion_term) + sums[0], policy.delta + sums[1]
    return sums[0], sums[1]


def reserved_amounts(statement: Statement) -> tuple[float, float]:
    """(epsilon, delta) that charges have reserved."""
    return guaranteed(statement.balance.policy, statement.balance.reserved)


def remaining_amounts(statement: Statement) -> tuple[float, float]:
    """(epsilon, delta) that later charges may still take; 0 for a closed account."""
    if statement.balance.closed:
        return 0.0, 0.0
    pairs = zip((statement.budget.epsilon, statement.budget.delta), reserved_amounts(statement), strict=True)
    epsilon, delta = (subtract_decimals_exactly(*map(shortest_decimal_of_float, pair)) for pair in pairs)
    return float(max(Decimal(0), epsilon)), float(max(Decimal(0), delta))


def remaining_phrase(balance: Balance, takes: Mapping[str, float]) -> str:
    """The rest and the limit of each amount that a charge takes, in digits that show whether it takes more."""
    limits, left = balance.policy.amount_limits(balance.budget), balance.left
    return " and ".join(
        f"{name} {demand_and_remainder_texts(more, left.get(name, Decimal(0)), name)[1]} of "
        f"{limit_text(name, limits[name])}"
        for name, more in takes.items()
    )


def refusal_text(account: str, balance: Balance, cost: Guarantee, takes: Mapping[str, float]) -> str:
    """The message for a charge of `cost` that takes these amounts and does not fit: the numbers and the next step."""
    if balance.closed:
        return f"The account of {account} was closed; nothing more is charged on it."
    texts = {EPSILON: epsilon_text_rounded_up(cost.epsilon), DELTA: delta_text_rounded_up(cost.delta)}
    texts |= {name: demand_and_remainder_texts(more, balance.left[name], name)[0] for name, more in takes.items()}
    divergence = f", which takes {DIVERGENCE} {texts[DIVERGENCE]}" if DIVERGENCE in texts else ""
    return (
        f"This costs epsilon {texts[EPSILON]} at delta {texts[DELTA]}{divergence}; on {account} "
        f"{remaining_phrase(balance, takes)} are left."
    )


def policy_name(policy: Policy) -> str:
    """How commands and reports call a policy."""
    return f"Renyi filter of order {policy.order:g}" if isinstance(policy, RenyiFilter) else policy.tag


def sharing_sentence(policy: Policy, budget: Guarantee) -> str:
    """How sweeps share the budget: every sweep takes its own delta, or those with a divergence share one."""
    if budget.promises_nothing:
        return "The data were declared public, so no budget limits their use."
    epsilon, delta = (text_with_all_digits(policy.amount_limits(budget)[name]) for name in (EPSILON, DELTA))
    if isinstance(policy, RenyiFilter):
        own = f"epsilon {text_with_all_digits(policy.epsilon)} and one delta {text_with_all_digits(policy.delta)}"
        shared = f"Plans with a Renyi divergence at order {policy.order:g} share {own}"
        return f"{shared}; every other charge takes its own out of {epsilon} and {delta}."
    return f"Charges add up: the epsilons of all sweeps may reach {epsilon}, their deltas {delta}."


def limit_text(name: str, limit: Decimal) -> str:
    """The limit of an amount, digit by digit as a user typed it; a divergence is computed, so rounded down."""
    return epsilon_text_rounded_down(limit) if name == DIVERGENCE else text_with_all_digits(limit)


def _float_rounded_up(amount: Decimal) -> float:
    """The nearest float to the amount, or the next one above it if the nearest is written as less."""
    near = float(amount)
    return near if shortest_decimal_of_float(near) >= amount else math.nextafter(near, math.inf)
