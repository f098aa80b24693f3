"""The price of a card: the least noise at which its query costs no more than the search without it.

A sealed part is one more population, so up to that cost the card adds nothing to the price of the plan.
"""

from __future__ import annotations

from dataclasses import replace

from dpsweep.accounting.events.build import PlanEvent, no_access
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.search_price import PricedSearch
from dpsweep.accounting.records.card import Card


def search_priced_with_card(
    search: PricedSearch,
    *,
    panel: Panel,
    delta: float,
    budget: Guarantee,
    exact: bool,
    threshold: float | str | None,
) -> tuple[PricedSearch, Card]:
    """The search with its card, priced as a whole; the card of public records is `exact`.

    The threshold costs nothing.
    """
    adjacency = budget.adjacency

    def epsilon_at_noise(noise: float) -> float:
        query = Card(noise_std=noise).event_with_query(PlanEvent(training=no_access()), adjacency)
        return panel.epsilon(query, delta, adjacency)

    noise = 0.0 if exact else calibrate_noise(epsilon_at_noise, search.quote.epsilon)
    card = Card(noise_std=noise, threshold=threshold)
    event = card.event_with_query(search.event, adjacency)
    return replace(search, event=event, quote=panel.quote(event, delta, adjacency, budget.unit)), card
