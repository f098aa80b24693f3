"""The price of an event: the least bound of the trusted theorems, which nobody outside can lower.

The ledger charges `quote_for_charge` and takes no number from anybody. Each bound is rounded up where it is computed,
and has the rounding of noise in it. Rule: where one may rise by more than `CLOSE`, raise `PRICES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.types import DpEvent, PlanEvent
from dpsweep.accounting.guarantee import Adjacency

TRUSTED = (Pld(), Rdp())
PRICES = 2  # the version of the bounds, which a charge records
CLOSE = 1e-6  # bounds closer than this, relatively, are the same number: machines differ in the last digits


class Opinion(Protocol):
    """What somebody outside says that an event costs, and what a charge records of it."""

    @property
    def epsilon(self) -> float:
        """The claim."""

    def to_record(self) -> Mapping[str, Any]:
        """What a charge records beside its amounts."""


class Opinions(Protocol):
    """Accountants that may raise a price, and witnesses that may refuse it by `AccountantsDisagree`."""

    def quote(self, event: PlanEvent, delta: float, adjacency: Adjacency, unit: str = "record") -> Opinion:
        """The price by their opinion."""

    def total_variation(self, event: PlanEvent, adjacency: Adjacency) -> float | None:
        """An upper bound on that between neighbours' results; None if none is known."""


def upper_bound(event: PlanEvent, delta: float, adjacency: Adjacency) -> float:
    """The largest, over the populations, of the least bound of `TRUSTED` on each.

    *Guarantee*: at every delta in (0, 1) never below the true epsilon of `event` under `adjacency`. Raises
    `UnsupportedEvent` if no theorem bounds one of its populations.
    """
    largest = 0.0
    for part in event.events_by_population.values():
        bounds, refusals = [], []
        for accountant in TRUSTED:
            try:
                bounds.append(trusted_bound(accountant, part, delta, adjacency))
            except UnsupportedEvent as refusal:
                refusals.append(str(refusal))
        if not bounds:
            raise UnsupportedEvent(f"No accountant can bound this plan: {' '.join(refusals)}")
        largest = max(largest, min(bounds))
    return largest


@lru_cache(maxsize=256)
def trusted_bound(accountant: Pld | Rdp, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
    """The bound of one of `TRUSTED`; kept, so that a plan and its charge compute it once."""
    epsilon = accountant.epsilon(event, delta, adjacency)
    if not epsilon >= 0:
        raise ArithmeticError(f"Expected epsilon={epsilon} of {accountant.name} to be a number >= 0.")
    return epsilon


def quote_for_charge(event: PlanEvent, delta: float, adjacency: Adjacency, unit: str, opinions: Opinions) -> Opinion:
    """The price that a charge takes: `upper_bound`, or a larger one by these opinions.

    Raises `AccountantsDisagree` if they put it lower, or contradict each other.
    """
    bound = upper_bound(event, delta, adjacency)
    quote = opinions.quote(event, delta, adjacency, unit)
    if not quote.epsilon >= bound:
        raise AccountantsDisagree(
            f"This was priced at epsilon {quote.epsilon}, and costs {bound}: nothing was charged."
        )
    return quote
