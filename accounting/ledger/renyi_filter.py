"""The Renyi filter: adaptively chosen charges that add up at one order, up to a threshold fixed beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dpsweep.accounting.codec import Delta, Positive, number_in, shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.types import PlanEvent
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger import book
from dpsweep.accounting.ledger.book import DELTA, DIVERGENCE, EPSILON


@dataclass(frozen=True, kw_only=True)
class RenyiFilter(book.Policy):
    """Composition at one Renyi `order` for plans with a divergence; the rest of the budget is for other charges.

    `epsilon` and `delta` are the filter's part of the budget and never change: the theorem needs a threshold that was
    fixed beforehand, so a raise widens the rest alone. *Guarantee*: the filter's part and the others' part, each under
    adaptive choice, and so their sum in any interleaving: except on events whose probabilities are the others' deltas,
    the others add at most their epsilons to the privacy loss, and leave the filter's moment E[exp((order - 1) loss)]
    unchanged. *Source*: Feldman and Zrnic 2021 (Individual Privacy Accounting via a Renyi Filter), Theorem 4.5, for the
    filter; Canonne, Kamath, Steinke 2020, Proposition 12, for its conversion; Kairouz, Oh, Viswanath 2015, Theorem 3.3,
    for the events; Haney et al. 2023 (Concurrent Composition for Interactive Differential Privacy with Adaptive
    Privacy-Loss Parameters) for interleaving in general.
    """

    tag: ClassVar[str] = "renyi_filter"
    order: Annotated[float, number_in("(1, inf)")]
    epsilon: Positive
    delta: Delta

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conversion_term >= self.epsilon:
            which = f"which the conversion from order {self.order:g} at delta={self.delta} takes before anything runs"
            raise ValueError(f"Expected epsilon={self.epsilon} > {self.conversion_term:.4f}, {which}.")

    def amount_limits(self, budget: Guarantee) -> book.Amounts:
        """The divergence that converts to the filter's part, and the rest of the budget, which must hold both."""
        if budget.promises_nothing:
            raise BadInput("Expected policy=addition for data declared public: a filter has nothing to promise there.")
        pairs = ((budget.epsilon, self.epsilon), (budget.delta, self.delta))
        epsilon, delta = (book.subtract_decimals_exactly(*map(shortest_decimal_of_float, pair)) for pair in pairs)
        if min(epsilon, delta) < 0:
            whole, part = f"{budget.epsilon} and {budget.delta}", f"{self.epsilon} and {self.delta}"
            raise BadInput(f"Expected the budget, {whole}, to hold the filter's part, {part}.")
        divergence = shortest_decimal_of_float(math.nextafter(self.epsilon - self.conversion_term, 0))
        return {DIVERGENCE: divergence, EPSILON: epsilon, DELTA: delta}

    def amounts_of_charge(self, cost: Guarantee, event: PlanEvent | None) -> Mapping[str, float]:
        """The divergence of the event if a bound on it is known, else the cost."""
        with suppress(UnsupportedEvent):
            if event is not None:
                return {DIVERGENCE: self.divergence(event, cost)}
        return book.Addition().amounts_of_charge(cost, event)

    def divergence(self, event: PlanEvent, cost: Guarantee) -> float:
        """An upper bound, the largest over the populations; raises `UnsupportedEvent` if none is known for one."""
        from dpsweep.accounting.accountants.rdp import ORDERS, Rdp  # scipy: .2 s that no other policy needs

        rdp = Rdp(orders=tuple(sorted({*ORDERS, self.order})))
        curves = [rdp.renyi_curve(part, cost.adjacency) for part in event.events_by_population.values()]
        return max(float(curve[rdp.orders.index(self.order)]) for curve in curves)

    @property
    def conversion_term(self) -> float:
        """The term that the conversion adds to the divergence."""
        return math.log1p(-1 / self.order) - (math.log(self.delta) + math.log(self.order)) / (self.order - 1)
