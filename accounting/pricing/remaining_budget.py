"""The rest of an account's budget, as its policy counts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from dpsweep.accounting.codec import shortest_decimal_of_float
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.book import (
    DELTA,
    EPSILON,
    Addition,
    Amounts,
    Balance,
    Statement,
    subtract_decimals_exactly,
)
from dpsweep.accounting.notation import delta_text_rounded_down, epsilon_text_rounded_down
from dpsweep.accounting.pricing.calibration import LARGEST_COUNT, calibrate_noise, largest_affordable_count
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.priced_plan import PricedPlan


@dataclass(frozen=True, kw_only=True)
class RemainingBudget:
    """The rest of an account for one more charge at a `delta` fixed beforehand, priced by a panel.

    *Guarantee*: the ledger admits a charge if its `share` is at most 1 and the account has not changed.
    """

    balance: Balance
    panel: Panel
    delta: float

    @classmethod
    def for_plan(cls, priced: PricedPlan, statement: Statement | None) -> RemainingBudget:
        """The rest for this plan, in its account or in the one that it would open."""
        plan = priced.plan
        fresh = Balance(budget=plan.budget, policy=Addition(), reserved={})
        return cls(balance=fresh if statement is None else statement.balance, panel=priced.panel, delta=plan.delta)

    @property
    def amounts_left(self) -> Amounts:
        """The rest of each amount that the policy counts."""
        return self.balance.left

    @property
    def is_empty(self) -> bool:
        """Whether only events without cost are admitted."""
        return not any(amount > 0 for name, amount in self.amounts_left.items() if name != DELTA)

    def amounts_of_charge(self, event: PlanEvent) -> Mapping[str, float]:
        """The amounts that a charge for this event would take."""
        epsilon = (
            self.panel.epsilon(event, self.delta, self.balance.budget.adjacency)
            if self.is_charged_by_claim(event)
            else math.inf
        )
        return self._amounts_of_charge_at_epsilon(epsilon, event)

    def number_of_admissible_repeats(self, takes: Mapping[str, float]) -> int:
        """How often a charge that takes these amounts would be admitted, one after another."""
        left = self.amounts_left
        parts = [
            (left.get(name, Decimal(0)), shortest_decimal_of_float(more)) for name, more in takes.items() if more > 0
        ]
        return min((int(rest // more) for rest, more in parts if rest.is_finite()), default=LARGEST_COUNT)

    def rest_after_charge_phrase(self, takes: Mapping[str, float]) -> str:
        """A phrase with the rest of each amount after a charge that takes these."""
        rests = {
            name: subtract_decimals_exactly(self.amounts_left[name], shortest_decimal_of_float(more))
            for name, more in takes.items()
        }
        return " and ".join(
            f"{name} {(delta_text_rounded_down if name == DELTA else epsilon_text_rounded_down)(max(Decimal(0), rest))}"
            for name, rest in rests.items()
        )

    def is_charged_by_claim(self, event: PlanEvent) -> bool:
        """Whether the policy counts the claim for this event, and not the event itself."""
        return EPSILON in self._amounts_of_charge_at_epsilon(math.inf, event)

    def has_each_amount_left(self, takes: Mapping[str, float]) -> bool:
        """Whether each amount that the charge takes has a rest above 0."""
        return all(self.amounts_left.get(name, 0) > 0 for name in takes)

    def can_higher_budget_make_room(self, takes: Mapping[str, float]) -> bool:
        """Whether a higher budget would raise the limit of an amount that the charge takes."""
        budget = self.balance.budget
        now, then = (
            self.balance.policy.amount_limits(one) for one in (budget, replace(budget, epsilon=2 * budget.epsilon))
        )
        return not self.balance.closed and any(then[name] > now[name] for name in takes)

    def fraction_taken_by_event(self, event: PlanEvent) -> float:
        """The fraction of the rest that a charge for this event takes: at most 1 if it is admitted, else above.

        Beyond admission, the fraction ignores delta, since neither noise nor the number of runs changes it.
        """
        takes = self.amounts_of_charge(event)
        part = max(
            0.0 if more <= 0 else more / float(left) if (left := self.amounts_left.get(name, 0)) > 0 else math.inf
            for name, more in takes.items()
            if name != DELTA
        )
        return min(part, 1.0) if self.balance.has_room(takes) else max(part, math.nextafter(1.0, 2.0))

    def least_admitted_noise(self, event_at: Callable[[float], PlanEvent], start: float) -> float:
        """The least noise at which `event_at(noise)` is admitted; the search begins at `start`.

        Raises `BadInput` if no noise is enough.
        """
        return calibrate_noise(lambda noise: self.fraction_taken_by_event(event_at(noise)), 1.0, start)

    def largest_admitted_count(self, event_of: Callable[[int], PlanEvent], limit: int) -> int:
        """The largest count up to `limit` at which `event_of(count)` is admitted."""
        return largest_affordable_count(lambda count: self.fraction_taken_by_event(event_of(count)), 1.0, most=limit)

    def _amounts_of_charge_at_epsilon(self, epsilon: float, event: PlanEvent) -> Mapping[str, float]:
        return self.balance.policy.amounts_of_charge(
            replace(self.balance.budget, epsilon=epsilon, delta=self.delta), event
        )
