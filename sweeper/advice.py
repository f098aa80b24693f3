"""What would fit the rest of a budget instead: fewer runs, more noise, another rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from accounting.calibration import largest_count
from accounting.errors import BadInput, UnsupportedEvent
from accounting.events import PlanEvent, worst
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


def fit(priced: PricedPlan, rule: SelectionRule, trials: Sequence[Trial], epsilon: float) -> Fit | None:
    """The noise that a search over these trials needs to cost at most `epsilon`; None where no noise is enough.

    The held-out records' scores follow: their noise is chosen so that they cost no more.
    """
    terms = _terms(priced, rule)
    declared = [declare(trial.config) for trial in trials]

    def trials_at(noise: float) -> list[PlanEvent]:
        return [PlanEvent(training=one.training(noise)) for one in declared]

    try:
        noise = terms.noise(trials_at, epsilon)
    except (BadInput, UnsupportedEvent):
        return None
    run = worst(trial.training for trial in trials_at(noise))
    return Fit(
        noise_multiplier=noise,
        single_run=terms.panel.epsilon(PlanEvent(training=run), terms.delta, terms.adjacency),
    )


def advice(priced: PricedPlan, trials: Sequence[Trial], statement: Statement) -> str:
    """What would fit instead, or how to go on."""
    epsilon, delta = statement.left
    command = f"dpsweep budget raise dataset={priced.plan.account} budget.epsilon=..."
    raise_it = f"`{command}` raises the budget on the record."
    if delta < priced.plan.delta:
        return f"What would fit: privacy.delta={delta:g}, if that is above 0. {raise_it}"
    if epsilon <= 0:
        return f"Nothing more fits. {raise_it}"
    noisier = fit(priced, priced.rule, trials, epsilon)
    return f"{what_fits(priced, trials, epsilon, offers_of(priced), noisier)} {raise_it}"


def what_fits(
    priced: PricedPlan, trials: Sequence[Trial], epsilon: float, offers: Sequence[Offer], noisier: Fit | None
) -> str:
    """Each way to come down to `epsilon`, in one sentence; `noisier` is the plan's own fit where it is known."""
    return f"What would fit: {', or '.join(_ways(priced, trials, epsilon, offers, noisier))}."


def _ways(
    priced: PricedPlan, trials: Sequence[Trial], epsilon: float, offers: Sequence[Offer], noisier: Fit | None
) -> Iterator[str]:
    terms, events = _terms(priced, priced.rule), [trial.event for trial in trials]
    fewer = largest_count(lambda count: terms.epsilon(events[:count]), epsilon, most=len(events) - 1)
    yield f"{fewer or 'not one'} of these {len(events)} runs at this noise"
    if noisier is not None:
        asked = f" (privacy.epsilon={math.floor(epsilon * 1000) / 1000:g})" if priced.plan.target_epsilon else ""
        yield f"the whole grid with a noise multiplier of at least {noisier.noise_multiplier:g}{asked}"
    for offer in offers:
        if offer.rule != priced.rule and offer.epsilon <= epsilon:
            yield f"tuning={offer.label} at epsilon {math.ceil(offer.epsilon * 1000) / 1000:g}"


def _terms(priced: PricedPlan, rule: SelectionRule) -> Terms:
    """The plan's own terms under another rule."""
    return Terms(rule=rule, panel=priced.panel, delta=priced.plan.delta, adjacency=priced.plan.adjacency)
