"""What would fit the rest of a budget instead: fewer runs, more noise, another rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accounting.calibration import largest_count
from accounting.errors import BadInput, UnsupportedEvent
from accounting.events import PlanEvent
from accounting.ledger import Statement
from accounting.offers import Offer, price_list
from accounting.plan import Trial
from accounting.selection import SelectionRule
from sweeper.compose import PricedPlan
from sweeper.declaration import declare
from sweeper.solve import Terms


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The least noise at which a whole search under a rule fits, and what one run alone costs at that noise."""

    noise_multiplier: float
    single_run: float


def offers_of(priced: PricedPlan) -> tuple[Offer, ...]:
    """What the plan's search would cost under each rule that could have been chosen."""
    plan = priced.plan
    return price_list(
        priced.offers, priced.events, priced.panel, delta=plan.delta, adjacency=plan.adjacency, unit=plan.unit
    )


def terms_of(priced: PricedPlan, rule: SelectionRule) -> Terms:
    """The plan's own terms under another rule."""
    return Terms(rule=rule, panel=priced.panel, delta=priced.plan.delta, adjacency=priced.plan.adjacency)


def fit(priced: PricedPlan, offer: Offer, epsilon: float) -> Fit | None:
    """The noise that an offer needs to cost at most `epsilon`; None where no noise is enough.

    The held-out records' scores follow: their noise is chosen so that they cost no more.
    """
    terms = terms_of(priced, offer.rule)
    declared = [declare(trial.config) for trial in priced.plan.trials]

    def trials_at(noise: float) -> list[PlanEvent]:
        return [PlanEvent(training=one.training(noise)) for one in declared]

    try:
        noise = terms.noise(trials_at, epsilon)
    except (BadInput, UnsupportedEvent):
        return None
    alone = max(
        terms.panel.epsilon(one, terms.delta, terms.adjacency)
        for one in {repr(one): one for one in trials_at(noise)}.values()
    )
    return Fit(noise_multiplier=noise, single_run=alone)


def advice(priced: PricedPlan, trials: Sequence[Trial], statement: Statement) -> str:
    """What would fit instead, or how to go on."""
    epsilon, delta = statement.left
    raise_it = (
        f"`dpsweep budget raise dataset={priced.plan.account} budget.epsilon=...` raises the budget on the record."
    )
    if delta < priced.plan.delta:
        return f"What would fit: privacy.delta={delta:g}, if that is above 0. {raise_it}"
    if epsilon <= 0:
        return f"Nothing more fits. {raise_it}"
    return f"{what_fits(priced, trials, epsilon, offers_of(priced))} {raise_it}"


def what_fits(priced: PricedPlan, trials: Sequence[Trial], epsilon: float, offers: Sequence[Offer]) -> str:
    """Each way to come down to `epsilon`, in one sentence."""
    return f"What would fit: {', or '.join(_ways(priced, trials, epsilon, offers))}."


def _ways(priced: PricedPlan, trials: Sequence[Trial], epsilon: float, offers: Sequence[Offer]) -> Iterator[str]:
    terms = terms_of(priced, priced.rule)
    events = [trial.event for trial in trials]
    fewer = largest_count(lambda count: terms.epsilon(events[:count]), epsilon, most=len(events) - 1)
    yield f"{fewer or 'not one'} of these {len(events)} runs at this noise"
    declared = [declare(trial.config) for trial in trials]
    try:
        noise = terms.noise(lambda noise: [PlanEvent(training=one.training(noise)) for one in declared], epsilon)
    except (BadInput, UnsupportedEvent):
        pass
    else:
        asked = f" (privacy.epsilon={math.floor(epsilon * 1000) / 1000:g})" if priced.plan.target_epsilon else ""
        yield f"the whole grid with a noise multiplier of at least {noise:g}{asked}"
    for offer in offers:
        if offer.rule != priced.rule and offer.epsilon <= epsilon:
            yield f"tuning={offer.label} at epsilon {math.ceil(offer.epsilon * 1000) / 1000:g}"
