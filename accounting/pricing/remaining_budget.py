"""The rest of an account's budget, as its policy counts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.codec import shortest_decimal
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.account import Balance, Statement
from dpsweep.accounting.ledger.composition_policy import DELTA, EPSILON, Addition, Amounts, subtract
from dpsweep.accounting.notation import delta_down, epsilon_down
from dpsweep.accounting.pricing.calibration import LARGEST_COUNT, calibrate_noise, largest_count
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
    def of(cls, priced: PricedPlan, statement: Statement | None) -> RemainingBudget:
        """The rest for this plan, in its account or in the one that it would open."""
        plan = priced.plan
        fresh = Balance(budget=plan.budget, policy=Addition(), reserved={})
        return cls(balance=fresh if statement is None else statement.balance, panel=priced.panel, delta=plan.delta)

    @property
    def left(self) -> Amounts:
        """The rest of each amount that the policy counts."""
        limits = {} if self.balance.closed else self.balance.policy.limits(self.balance.budget)
        return {name: max(Decimal(0), subtract(limit, self._reserved_amount(name))) for name, limit in limits.items()}

    @property
    def empty(self) -> bool:
        """Whether only events without cost are admitted."""
        return not any(amount > 0 for name, amount in self.left.items() if name != DELTA)

    def takes(self, event: PlanEvent) -> Mapping[str, float]:
        """The amounts that a charge for this event would take."""
        epsilon = (
            self.panel.epsilon(event, self.delta, self.balance.budget.adjacency)
            if self.counts_claim(event)
            else math.inf
        )
        return self._amounts_at_epsilon(epsilon, event)

    def times(self, takes: Mapping[str, float]) -> int:
        """How often a charge that takes these amounts would be admitted, one after another."""
        left = self.left
        parts = [(left.get(name, Decimal(0)), shortest_decimal(more)) for name, more in takes.items() if more > 0]
        return min((int(rest // more) for rest, more in parts if rest.is_finite()), default=LARGEST_COUNT)

    def after(self, takes: Mapping[str, float]) -> str:
        """A phrase with the rest of each amount after a charge that takes these."""
        rests = {name: subtract(self.left[name], shortest_decimal(more)) for name, more in takes.items()}
        return " and ".join(
            f"{name} {(delta_down if name == DELTA else epsilon_down)(max(Decimal(0), rest))}"
            for name, rest in rests.items()
        )

    def counts_claim(self, event: PlanEvent) -> bool:
        """Whether the policy counts the claim for this event, and not the event itself."""
        return EPSILON in self._amounts_at_epsilon(math.inf, event)

    def open(self, takes: Mapping[str, float]) -> bool:
        """Whether each amount that the charge takes has a rest above 0."""
        return all(self.left.get(name, 0) > 0 for name in takes)

    def rises(self, takes: Mapping[str, float]) -> bool:
        """Whether a higher budget would raise the limit of an amount that the charge takes."""
        budget = self.balance.budget
        now, then = (self.balance.policy.limits(one) for one in (budget, replace(budget, epsilon=2 * budget.epsilon)))
        return not self.balance.closed and any(then[name] > now[name] for name in takes)

    def share(self, event: PlanEvent) -> float:
        """The fraction of the rest that a charge for this event takes: at most 1 if it is admitted, else above.

        Beyond admission, the fraction ignores delta, since neither noise nor the number of runs changes it.
        """
        takes = self.takes(event)
        part = max(
            (_share_of_amount(more, self.left.get(name, Decimal(0))) for name, more in takes.items() if name != DELTA)
        )
        return min(part, 1.0) if self.balance.admits(takes) else max(part, math.nextafter(1.0, 2.0))

    def noise(self, event_at: Callable[[float], PlanEvent], start: float | None = None) -> float:
        """The least noise at which `event_at(noise)` is admitted; the search begins at `start`.

        Raises `BadInput` if no noise is enough.
        """
        about = self._rough_noise(event_at) if start is None else start
        return calibrate_noise(lambda noise: self.share(event_at(noise)), 1.0, about)

    def most(self, event_of: Callable[[int], PlanEvent], limit: int) -> int:
        """The largest count up to `limit` at which `event_of(count)` is admitted."""
        return largest_count(lambda count: self.share(event_of(count)), 1.0, most=limit)

    def _reserved_amount(self, name: str) -> Decimal:
        return self.balance.reserved.get(name, Decimal(0))

    def _amounts_at_epsilon(self, epsilon: float, event: PlanEvent) -> Mapping[str, float]:
        return self.balance.policy.takes(replace(self.balance.budget, epsilon=epsilon, delta=self.delta), event)

    def _rough_noise(self, event_at: Callable[[float], PlanEvent]) -> float:
        """An approximation of that noise, by Renyi curves alone, which are cheap."""
        quick = replace(self, panel=Panel(claimants=(Rdp(),)))
        try:
            return calibrate_noise(lambda noise: quick.share(event_at(noise)), 1.0)
        except (BadInput, UnsupportedEvent):
            return 1.0


def _share_of_amount(more: float, left: Decimal) -> float:
    if more <= 0:
        return 0.0
    return more / float(left) if left > 0 else math.inf
