"""How the charges of an account add up: fixed when the account is opened, and never chosen afterwards.

Later grids depend on what earlier ones showed, so sweeps compose adaptively. Two theorems cover that, and taking the
smaller of the two afterwards is covered by neither:

* `Addition`: every plan is one (epsilon, delta), by any accountant, and these add up.
* `RenyiFilter`: the budget is split beforehand between plans that have a Renyi divergence at one order, which add up at
  that order, and all others, which add up as above.

What is guaranteed is the budget as a whole. Speak of reserved and left; "spent so far" would be an odometer, which
costs more. A raise is a person's decision on the record: the guarantee is that of the last budget where the decision
did not itself depend on what was released.

A record is trained on or held out, and a plan takes the larger of what either costs. So for each record the amounts of
its own side are at most what was taken, plan by plan, and so are their sums: also where the plans' larger sides differ,
and where another plan splits the records otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import Any, Protocol

from dpsweep.accounting.accountants.rdp import ORDERS, Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.names.stored_classes import KIND, build_own, written_name
from dpsweep.accounting.names.tags import tag_of_class
from dpsweep.accounting.notation import epsilon_up, typed

EPSILON, DELTA, DIVERGENCE = "epsilon", "delta", "divergence"
"""What an account counts: of (epsilon, delta) charges their sums, of a filter's charges their Renyi divergence."""

Amounts = Mapping[str, Decimal]

_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
"""Holds any sum of floats: they have digits from 1e308 down to 1e-340."""


class Policy(Protocol):
    """Which amounts an account counts, how much of each its budget allows, and what a charge takes of them."""

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        ...

    def limits(self, budget: Guarantee) -> Amounts:
        """How much of each amount may be reserved; raises `BadInput` where the budget cannot be split as declared."""
        ...

    def takes(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """What a charge of `cost` takes; `event` is what will run, None where only the cost is known."""
        ...

    def guaranteed(self, budget: Guarantee, reserved: Amounts) -> tuple[float, float]:
        """(epsilon, delta) that the reserved amounts stand for, at most the budget's unless more was recorded."""
        ...

    def sharing(self, budget: Guarantee) -> str:
        """One sentence on how sweeps share the budget, its delta included."""
        ...


@dataclass(frozen=True, kw_only=True)
class Addition:
    """Epsilons add up, and deltas do.

    *Guarantee*: (sum of epsilons, sum of deltas), also where each charge depends on what earlier ones released.
    *Source*: basic composition (Dwork and Roth 2014, Theorem 3.16); for budgets fixed beforehand and charges chosen
    adaptively, Rogers, Roth, Ullman, Vadhan 2016, Theorem 3.6.
    """

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return "addition"

    def limits(self, budget: Guarantee) -> Amounts:
        """The budget itself; where it promises nothing, nothing is counted out of it."""
        if budget.vacuous:
            return dict.fromkeys((EPSILON, DELTA), Decimal("Infinity"))
        return {EPSILON: exact(budget.epsilon), DELTA: exact(budget.delta)}

    def takes(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The cost itself."""
        return {EPSILON: cost.epsilon, DELTA: cost.delta}

    def guaranteed(self, budget: Guarantee, reserved: Amounts) -> tuple[float, float]:
        """The sums."""
        return _others(reserved)

    def sharing(self, budget: Guarantee) -> str:
        """Every sweep takes its own delta."""
        if budget.vacuous:
            return "The data were declared public: nothing is promised about them, so nothing runs out."
        return (
            f"Charges add up: each sweep takes its epsilon and its privacy.delta out of {typed(budget.epsilon)} and "
            f"{typed(budget.delta)}."
        )


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """Plans with a Renyi divergence add up at one `order`; the rest of the budget is for charges that have none.

    `epsilon` and `delta` are the filter's part of the budget, for ever; what is left of it is for the others, and a
    raise widens their part alone, since the theorem is about a filter whose threshold was fixed beforehand.
    *Guarantee*: the filter's part and the others' part, each under adaptive choice, and so their sum, however the two
    take turns: outside of events that have the others' deltas as their chances, what the others add to the privacy loss
    is at most their epsilons, and their turns leave the filter's moment E[exp((order - 1) loss)] as it was.
    *Source*: Feldman and Zrnic 2021 (Individual Privacy Accounting via a Renyi Filter), Theorem 4.5, for the filter;
    Canonne, Kamath, Steinke 2020, Proposition 12, for its conversion; Kairouz, Oh, Viswanath 2015, Theorem 3.3, for the
    events; Haney et al. 2023 (Concurrent Composition for Interactive Differential Privacy with Adaptive Privacy-Loss
    Parameters) for taking turns in general.
    """

    order: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (1 < self.order < math.inf):
            raise ValueError(f"Expected order={self.order} > 1.")
        if not (0 < self.epsilon < math.inf):
            raise ValueError(f"Expected epsilon={self.epsilon} > 0.")
        if not (0 < self.delta < 1):
            raise ValueError(f"Expected delta={self.delta} in (0, 1).")
        if self._conversion >= self.epsilon:
            raise ValueError(
                f"Expected epsilon={typed(self.epsilon)} > {epsilon_up(self._conversion)}, which the conversion from "
                f"order {self.order:g} at delta={typed(self.delta)} takes before anything runs."
            )

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return f"Renyi filter of order {self.order:g}"

    def limits(self, budget: Guarantee) -> Amounts:
        """The divergence that converts to the filter's part, and what the budget holds beside it."""
        if budget.vacuous:
            raise BadInput("Expected policy=addition for data declared public: a filter has nothing to promise there.")
        others = subtract(exact(budget.epsilon), exact(self.epsilon)), subtract(exact(budget.delta), exact(self.delta))
        if min(others) < 0:
            raise BadInput(
                f"Expected budget.epsilon={typed(budget.epsilon)} and budget.delta={typed(budget.delta)} to hold the "
                f"filter's part, {typed(self.epsilon)} and {typed(self.delta)}."
            )
        divergence = exact(math.nextafter(self.epsilon - self._conversion, 0))
        return {DIVERGENCE: divergence, EPSILON: others[0], DELTA: others[1]}

    def takes(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The divergence of what will run where there is a bound on it, the cost where there is none."""
        try:
            return {DIVERGENCE: self.divergence(event, cost)} if event is not None else _black_box(cost)
        except UnsupportedEvent:
            return _black_box(cost)

    def divergence(self, event: PlanEvent, cost: Guarantee) -> float:
        """The larger of the divergences for training and for held-out records, an upper bound.

        Raises `UnsupportedEvent` where no bound at a single order is known for one of them.
        """
        accountant = Rdp(orders=tuple(sorted({*ORDERS, self.order})))
        place = accountant.orders.index(self.order)
        return max(float(accountant.curve(part, cost.adjacency)[place]) for part in event.parts.values())

    def guaranteed(self, budget: Guarantee, reserved: Amounts) -> tuple[float, float]:
        """The converted divergence, where there is any, and the sums of the others."""
        divergence, others = upward(reserved.get(DIVERGENCE, Decimal(0))), _others(reserved)
        if divergence == 0:
            return others
        return max(0.0, divergence + self._conversion) + others[0], self.delta + others[1]

    def sharing(self, budget: Guarantee) -> str:
        """Plans with a divergence share one delta."""
        others = self.limits(budget)
        return (
            f"Plans with a Renyi divergence at order {self.order:g} share epsilon {typed(self.epsilon)} and one delta "
            f"{typed(self.delta)}; every other charge takes its own out of {typed(others[EPSILON])} and "
            f"{typed(others[DELTA])}."
        )

    @property
    def _conversion(self) -> float:
        """What the conversion adds to the divergence."""
        return math.log1p(-1 / self.order) - (math.log(self.delta) + math.log(self.order)) / (self.order - 1)


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """`{"kind": tag, **fields}`, as ledgers store it."""
    fields: dict[str, Any] = asdict(policy)  # type: ignore[call-overload]
    return {KIND: tag_of_class(type(policy))} | fields


def policy_from_config(config: Mapping[str, Any]) -> Policy:
    """The policy of such a form, or of a configuration; `BadInput` where it names none or its fields make no sense.

    A ledger is read by others than wrote it: nothing but a policy of ours is imported or called.
    """
    try:
        policy: Policy = build_own(config, "policy")
    except (ValueError, TypeError) as cause:
        raise BadInput(
            f"Expected policy={written_name(config)} to name an account's policy: {str(cause).rstrip('.')}."
        ) from cause
    return policy


def exact(value: float) -> Decimal:
    """The decimal that is written for a float: ten times 1e-5 is 1e-4."""
    return Decimal(repr(float(value)))


def stored_amount(name: str, value: object) -> Decimal:
    """What a stored charge takes or a balance has reserved: never less than nothing, since no charge gives back."""
    amount = exact(float(value)) if isinstance(value, (int, float)) else Decimal(str(value))
    if not amount >= 0 or (amount.is_finite() and amount.adjusted() > 308):
        raise ValueError(f"Expected {name}={value!r} to be a number >= 0.")
    return amount


def add(left: Decimal, right: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(left, right)


def subtract(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference; of infinity, all of it is left."""
    return left if left.is_infinite() else _EXACT.subtract(left, right)


def _others(reserved: Amounts) -> tuple[float, float]:
    return upward(reserved.get(EPSILON, Decimal(0))), upward(reserved.get(DELTA, Decimal(0)))


def upward(amount: Decimal) -> float:
    """The float that is written like the amount, or the next one above it."""
    near = float(amount)
    return near if exact(near) >= amount else math.nextafter(near, math.inf)


def _black_box(cost: Guarantee) -> Mapping[str, float]:
    return {EPSILON: cost.epsilon, DELTA: cost.delta}
