"""Composition of the charges of an account: fixed when the account is opened, and never chosen afterwards.

Later grids depend on the results of earlier ones, so sweeps compose adaptively. Two theorems cover that, `Addition` and
`RenyiFilter` (`accounting/ledger/renyi_filter.py`); neither covers taking the smaller of the two results afterwards.

The guarantee covers the budget as a whole. A raise is a person's recorded decision: the guarantee is that of the last
budget if the decision did not itself depend on released results.

A record is either trained on or held out, and a plan takes the larger of the two costs. So for each record the amounts
of its own side are at most the amounts taken, plan by plan, and so are their sums, also if the larger side differs
between plans, and if another plan splits the records differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from dpsweep.accounting.codec import KIND, Read, Stored, read_kind, shortest_decimal_of_float, to_json
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.types import PlanEvent
from dpsweep.accounting.guarantee import Guarantee

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.renyi_filter import RenyiFilter

EPSILON, DELTA, DIVERGENCE = "epsilon", "delta", "divergence"  # the amounts that an account counts
Amounts = Mapping[str, Decimal]
_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])  # sums of floats: 1e308 down to 1e-340


class Policy(Protocol):
    """How an account counts: its amounts, their limits under a budget, and the amounts that a charge takes."""

    @property
    def name(self) -> str:
        """How commands and reports call it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `policy_from_config` restores an equal policy."""

    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The limit of each amount; raises `BadInput` for a budget that it cannot hold."""

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The amounts that a charge of `cost` takes; `event` is None if it is not known."""


class StoredPolicyForm(Stored):
    """A policy: its stored form is `{"kind": tag, **fields}`."""

    tag: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {KIND: self.tag} | to_json(self)


@dataclass(frozen=True, kw_only=True)
class Addition(StoredPolicyForm):
    """Basic composition: every charge costs one (epsilon, delta), by any accountant, and these add up.

    *Guarantee*: (sum of epsilons, sum of deltas), also if each charge depends on the releases of earlier ones.
    *Source*: basic composition (Dwork and Roth 2014, Theorem 3.16); for budgets fixed beforehand and charges chosen
    adaptively, Rogers, Roth, Ullman, Vadhan 2016, Theorem 3.6.
    """

    tag: ClassVar[str] = "addition"
    name: ClassVar[str] = "addition"

    def amount_limits(self, budget: Guarantee) -> Amounts:
        """The budget itself; a vacuous budget has no limits."""
        if budget.promises_nothing:
            return dict.fromkeys((EPSILON, DELTA), Decimal("Infinity"))
        return {EPSILON: shortest_decimal_of_float(budget.epsilon), DELTA: shortest_decimal_of_float(budget.delta)}

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The cost itself."""
        return {EPSILON: cost.epsilon, DELTA: cost.delta}


def policies() -> Mapping[str, type[Addition | RenyiFilter]]:
    """The class of each tag; a tag means one class for ever."""
    from dpsweep.accounting.ledger.renyi_filter import RenyiFilter

    return {kind.tag: kind for kind in (Addition, RenyiFilter)}


def policy_from_config(form: Any) -> Policy:
    """The policy of a stored form, one of our own; raises `BadInput` if it names none or has invalid fields."""
    try:
        kind, fields = read_kind(policies(), KIND, form)
        return kind(**fields)
    except (ValueError, TypeError) as cause:
        raise BadInput(f"Expected a stored policy to name an account's policy: {str(cause).rstrip('.')}.") from cause


StoredPolicy = Annotated[Policy, Read(read=lambda name, form: policy_from_config(form))]


def add_decimals_exactly(left: Decimal, right: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(left, right)


def subtract_decimals_exactly(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference; infinity less any amount is infinity."""
    return left if left.is_infinite() else _EXACT.subtract(left, right)
