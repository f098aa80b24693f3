"""Composition of the charges of an account: fixed when the account is opened, and never chosen afterwards.

Later grids depend on the results of earlier ones, so sweeps compose adaptively. Two theorems cover that; neither of
them covers taking the smaller of the two results afterwards:

* `Addition`: every plan costs one (epsilon, delta), by any accountant, and these add up.
* `RenyiFilter`: the budget is split beforehand between plans that have a Renyi divergence at one order, which add up at
  that order, and all other plans, which add up as above.

The guarantee covers the budget as a whole. Say "reserved" and "left": "spent so far" would be a privacy odometer, which
costs more. A raise is a person's recorded decision: the guarantee is that of the last budget if the decision did not
itself depend on released results.

A record is either trained on or held out, and a plan takes the larger of the two costs. So for each record the amounts
of its own side are at most the amounts taken, plan by plan, and so are their sums, also if the larger side differs
between plans, and if another plan splits the records differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from functools import partial
from typing import Annotated, Any, ClassVar

from dpsweep.accounting.codec import Checked, Delta, Positive, StoredForm, shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.notation import epsilon_text_rounded_up, text_with_all_digits
from dpsweep.accounting.stored_names.stored_classes import KIND, build_from_stored_form, class_name_as_written
from dpsweep.accounting.stored_names.tags import tag_of_class
from dpsweep.accounting.validation import require_json_object, require_number_between

EPSILON, DELTA, DIVERGENCE = "epsilon", "delta", "divergence"
"""The amounts that an account counts: sums of (epsilon, delta), and the Renyi divergence of a filter's charges."""

Amounts = Mapping[str, Decimal]

_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
"""Holds any sum of floats: they have digits from 1e308 down to 1e-340."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """Basic composition: epsilons add up, and deltas add up.

    *Guarantee*: (sum of epsilons, sum of deltas), also if each charge depends on the releases of earlier ones.
    *Source*: basic composition (Dwork and Roth 2014, Theorem 3.16); for budgets fixed beforehand and charges chosen
    adaptively, Rogers, Roth, Ullman, Vadhan 2016, Theorem 3.6.
    """

    name: ClassVar[str] = "addition"

    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The limit of each amount: the budget itself; a vacuous budget has no limits."""
        if budget.promises_nothing:
            return dict.fromkeys((EPSILON, DELTA), Decimal("Infinity"))
        return {EPSILON: shortest_decimal_of_float(budget.epsilon), DELTA: shortest_decimal_of_float(budget.delta)}

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The amounts that a charge of `cost` takes: the cost itself. `event` is its event, None if it is not known."""
        return {EPSILON: cost.epsilon, DELTA: cost.delta}

    def guaranteed_epsilon_and_delta(self, budget: Guarantee, reserved: Amounts) -> tuple[float, float]:
        """(epsilon, delta) that the reserved amounts imply: the sums of both."""
        return float_rounded_up(reserved.get(EPSILON, Decimal(0))), float_rounded_up(reserved.get(DELTA, Decimal(0)))

    def budget_sharing_sentence(self, budget: Guarantee) -> str:
        """One sentence on how sweeps share the budget: every sweep takes its own delta."""
        if budget.promises_nothing:
            return "The data were declared public, so no budget limits their use."
        return (
            f"Charges add up: the epsilons of all sweeps may reach {text_with_all_digits(budget.epsilon)}, their "
            f"deltas {text_with_all_digits(budget.delta)}."
        )


@dataclass(frozen=True, kw_only=True)
class RenyiFilter(Checked):
    """Composition at one Renyi `order` for plans with a divergence; the rest of the budget is for other charges.

    `epsilon` and `delta` are the filter's part of the budget and never change; the rest is for the other charges, and a
    raise widens the rest alone, since the theorem needs a filter whose threshold was fixed beforehand.
    *Guarantee*: the filter's part and the others' part, each under adaptive choice, and so their sum in any
    interleaving: except on events whose probabilities are the others' deltas, the others add at most their epsilons to
    the privacy loss, and their charges leave the filter's moment E[exp((order - 1) loss)] unchanged.
    *Source*: Feldman and Zrnic 2021 (Individual Privacy Accounting via a Renyi Filter), Theorem 4.5, for the filter;
    Canonne, Kamath, Steinke 2020, Proposition 12, for its conversion; Kairouz, Oh, Viswanath 2015, Theorem 3.3, for the
    events; Haney et al. 2023 (Concurrent Composition for Interactive Differential Privacy with Adaptive Privacy-Loss
    Parameters) for interleaving in general.
    """

    order: Annotated[float, partial(require_number_between, above=1)]
    epsilon: Positive
    delta: Delta

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._epsilon_conversion_term >= self.epsilon:
            raise ValueError(
                f"Expected epsilon={text_with_all_digits(self.epsilon)} > "
                f"{epsilon_text_rounded_up(self._epsilon_conversion_term)}, which the conversion from order "
                f"{self.order:g} at delta={text_with_all_digits(self.delta)} takes before anything runs."
            )

    @property
    def name(self) -> str:
        """How commands and reports call it."""
        return f"Renyi filter of order {self.order:g}"

    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The divergence that converts to the filter's part, and the rest of the budget.

        Raises `BadInput` if the budget cannot be split as declared.
        """
        if budget.promises_nothing:
            raise BadInput("Expected policy=addition for data declared public: a filter has nothing to promise there.")
        pairs = ((budget.epsilon, self.epsilon), (budget.delta, self.delta))
        others = [subtract_decimals_exactly(*map(shortest_decimal_of_float, pair)) for pair in pairs]
        if min(others) < 0:
            raise BadInput(
                f"Expected the budget, {budget}, to hold the filter's part, {text_with_all_digits(self.epsilon)} and "
                f"{text_with_all_digits(self.delta)}."
            )
        divergence = shortest_decimal_of_float(math.nextafter(self.epsilon - self._epsilon_conversion_term, 0))
        return {DIVERGENCE: divergence, EPSILON: others[0], DELTA: others[1]}

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The divergence of the event if a bound on it is known, else the cost."""
        with suppress(UnsupportedEvent):
            if event is not None:
                return {DIVERGENCE: self.renyi_divergence_of_event(event, cost)}
        return Addition().amounts_of_charge(cost, event)

    def renyi_divergence_of_event(self, event: PlanEvent, cost: Guarantee) -> float:
        """An upper bound: the larger of the divergences for training and for held-out records.

        Raises `UnsupportedEvent` if no bound at a single order is known for one of them.
        """
        from dpsweep.accounting.accountants.rdp import ORDERS, Rdp  # scipy: .2 s that no other policy needs

        accountant = Rdp(orders=tuple(sorted({*ORDERS, self.order})))
        place = accountant.orders.index(self.order)
        return max(
            float(accountant.renyi_curve(part, cost.adjacency)[place]) for part in event.events_by_population.values()
        )

    def guaranteed_epsilon_and_delta(self, budget: Guarantee, reserved: Amounts) -> tuple[float, float]:
        """The converted divergence, if there is any, plus the sums of the others."""
        divergence = float_rounded_up(reserved.get(DIVERGENCE, Decimal(0)))
        others = Addition().guaranteed_epsilon_and_delta(budget, reserved)
        if divergence == 0:
            return others
        return max(0.0, divergence + self._epsilon_conversion_term) + others[0], self.delta + others[1]

    def budget_sharing_sentence(self, budget: Guarantee) -> str:
        """Says that plans with a divergence share one delta."""
        own = f"epsilon {text_with_all_digits(self.epsilon)} and one delta {text_with_all_digits(self.delta)}"
        others = " and ".join(text_with_all_digits(self.amount_limits(budget)[name]) for name in (EPSILON, DELTA))
        return (
            f"Plans with a Renyi divergence at order {self.order:g} share {own}; every other charge takes its own out "
            f"of {others}."
        )

    @property
    def _epsilon_conversion_term(self) -> float:
        """The term that the conversion adds to the divergence."""
        return math.log1p(-1 / self.order) - (math.log(self.delta) + math.log(self.order)) / (self.order - 1)


Policy = Addition | RenyiFilter
"""How an account counts: its amounts, their limits under a budget, and the amounts that a charge takes."""


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """`{"kind": tag, **fields}`, as ledgers store it."""
    return {KIND: tag_of_class(type(policy))} | asdict(policy)


def policy_from_config(config: Mapping[str, Any]) -> Policy:
    """The policy of a stored form or a configuration; raises `BadInput` if it names none or has invalid fields.

    A ledger's reader may not trust its writer: only our own policies are imported or called.
    """
    try:
        policy: Policy = build_from_stored_form(config, "policy")
    except (ValueError, TypeError) as cause:
        raise BadInput(
            f"Expected policy={class_name_as_written(config)} to name an account's policy: {str(cause).rstrip('.')}."
        ) from cause
    return policy


StoredPolicy = Annotated[
    Policy,
    StoredForm(read=lambda name, stored: policy_from_config(require_json_object(name, stored)), write=policy_to_json),
]


def add_decimals_exactly(left: Decimal, right: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(left, right)


def subtract_decimals_exactly(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference; infinity less any amount is infinity."""
    return left if left.is_infinite() else _EXACT.subtract(left, right)


def float_rounded_up(amount: Decimal) -> float:
    """The nearest float to the amount, or the next one above it if the nearest is written as less."""
    near = float(amount)
    return near if shortest_decimal_of_float(near) >= amount else math.nextafter(near, math.inf)
