"""Alternatives that fit the rest of a budget: fewer runs, more noise, another rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsweep.accounting.codec import shortest_decimal_of_float
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent, worst_of_events
from dpsweep.accounting.ledger.book import DELTA, EPSILON, Statement
from dpsweep.accounting.ledger.statement import policy_name
from dpsweep.accounting.notation import (
    delta_text_rounded_down,
    epsilon_text_rounded_down,
    epsilon_text_rounded_up,
    noise_text_rounded_up,
)
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.pricing.rule_prices import Offer, may_sweep_run_under_rule, offer_of_each_rule
from dpsweep.accounting.pricing.solver import trials_of_runs_at_noises
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.selection.interface import SelectionRule


@dataclass(frozen=True, kw_only=True)
class RequiredNoise:
    """The least noise at which a whole search under a rule fits, its largest cost then, and that of one run alone."""

    noise_multiplier: float
    epsilon: float
    single_run: float


def offers_under_each_rule(priced: PricedPlan) -> tuple[Offer, ...]:
    """The price of the plan's search under its own rule and under each available rule that would run.

    A plan with a final run has its own rule alone: under another one its points would be other runs.
    """
    plan = priced.plan

    def is_rule_offered(rule: SelectionRule) -> bool:
        return rule == priced.rule or (not plan.final_runs and may_sweep_run_under_rule(rule, plan.priced_events))

    rules = {label: rule for label, rule in priced.offers().items() if is_rule_offered(rule)}
    return offer_of_each_rule(
        rules, plan.priced_events, priced.panel, delta=plan.delta, adjacency=plan.adjacency, unit=plan.unit
    )


def is_offer_admitted(priced: PricedPlan, offer: Offer, room: RemainingBudget) -> bool:
    """Whether the account admits the plan's search under the rule of an offer."""
    if offer.quote is None:
        return False
    event = offer.rule.event(priced.plan.priced_events)
    return room.balance.has_room(room.balance.policy.amounts_of_charge(offer.quote.guarantee, event))


def required_noise_to_fit_budget(
    priced: PricedPlan, rule: SelectionRule, trials: Sequence[Trial], room: RemainingBudget
) -> RequiredNoise | None:
    """The noise at which a search over these trials is admitted; None if no noise is enough.

    The noise of the held-out records' scores follows: it is chosen so that they cost no more.
    """
    if room.is_empty:
        return None
    terms = priced.terms_under_rule(rule)
    runs, fixed = [priced.run_of(trial) for trial in trials], _noises_of_earlier_phases(priced.plan, trials)

    def single_run_events(noise: float) -> Iterator[PlanEvent]:
        return (PlanEvent(training=run.training_event(own or noise)) for run, own in zip(runs, fixed, strict=True))

    def search_training_event(noise: float) -> PlanEvent:
        return terms.search_event(single_run_events(noise))

    def search_event_with_scores(noise: float) -> PlanEvent:
        return terms.search_event(
            trial.event_with_final_run
            for trial in trials_of_runs_at_noises(runs, [own or noise for own in fixed], terms)
        )

    try:
        noise = room.least_admitted_noise(search_training_event, start=trials[0].config["privacy"]["noise_multiplier"])
        event = search_training_event(noise)
        if not room.is_charged_by_claim(event):  # scores match training in epsilon, not in the policy's amounts
            noise = room.least_admitted_noise(search_event_with_scores, start=noise)
            event = search_event_with_scores(noise)
    except (BadInput, UnsupportedEvent):
        return None
    if any(own is not None and own <= noise for own in fixed):
        return None
    run = PlanEvent(training=worst_of_events(one.training for one in single_run_events(noise)))
    return RequiredNoise(
        noise_multiplier=noise,
        epsilon=float(room.amounts_left[EPSILON]) if room.is_charged_by_claim(event) else terms.epsilon_of_event(event),
        single_run=terms.epsilon_of_event(run),
    )


def advice_sentences_to_fit_budget(priced: PricedPlan, trials: Sequence[Trial], statement: Statement) -> str:
    """The alternatives that would fit, or how to continue."""
    room = RemainingBudget.for_plan(priced, statement)
    takes = room.amounts_of_charge(
        priced.terms_under_rule(priced.rule).search_event(trial.event_with_final_run for trial in trials)
    )
    raise_it = _budget_raise_advice(room, takes, priced.plan.account)
    if not room.has_each_amount_left(takes):
        return f"Nothing more fits. {raise_it}"
    if DELTA in _short_amounts(room, takes):
        return f"What would fit: privacy.delta={delta_text_rounded_down(room.amounts_left[DELTA])}. {raise_it}"
    noisier = required_noise_to_fit_budget(priced, priced.rule, trials, room)
    return f"{fitting_ways_sentence(priced, trials, room, offers_under_each_rule(priced), noisier)} {raise_it}"


def advice_sentences_for_repetition(priced: PricedPlan, event: PlanEvent, statement: Statement) -> str:
    """How to continue where further attempts, which have this event, do not fit: their plan is fixed."""
    room = RemainingBudget.for_plan(priced, statement)
    return (
        "Repeated runs are those of the plan, so neither their noise nor their rule can be another one; "
        "hydra.sweeper.retry=none goes on without them. "
        f"{_budget_raise_advice(room, room.amounts_of_charge(event), priced.plan.account)}"
    )


def fitting_ways_sentence(
    priced: PricedPlan,
    trials: Sequence[Trial],
    room: RemainingBudget,
    offers: Sequence[Offer],
    noisier: RequiredNoise | None,
) -> str:
    """One sentence with each way to reduce the cost to the rest; `noisier` is the plan's own fit if it is known."""
    terms, events = priced.terms_under_rule(priced.rule), [trial.event_with_final_run for trial in trials]
    runs = len(events) if terms.turns is None else len(terms.turns)

    def event_of_first_runs(count: int) -> PlanEvent:
        if terms.turns is None:
            return terms.search_event(events[:count])
        return replace(terms, turns=terms.turns[:count]).search_event(events)

    ways, last = [], ""
    if any(_noises_of_earlier_phases(priced.plan, trials)):
        last = " for its last run"
    elif runs > 1:
        fitting = room.largest_admitted_count(event_of_first_runs, runs - 1)
        ways.append(f"{fitting or 'not one'} of these {runs} runs at this noise")
    else:
        ways.append("nothing at this noise")
    if noisier is not None:
        noise, grid = noise_text_rounded_up(noisier.noise_multiplier), "search" if priced.plan.proposed else "grid"
        target = f" (privacy.epsilon={epsilon_text_rounded_down(noisier.epsilon)})"
        ways.append(
            f"the whole {grid} with a noise multiplier of at least {noise}{last}"
            f"{target if priced.plan.target_epsilon else ''}"
        )
    ways += [
        f"tuning={offer.label} at epsilon {epsilon_text_rounded_up(offer.epsilon)}"
        for offer in offers
        if offer.rule != priced.rule and is_offer_admitted(priced, offer, room)
    ]
    return f"What would fit: {', or '.join(ways)}."


def _noises_of_earlier_phases(plan: Plan, trials: Sequence[Trial]) -> list[float | None]:
    """The fixed noise multipliers: those of all phases of a search but the last."""
    earlier = plan.proposed.phases[:-1] if plan.proposed else ()
    noises = {phase.noise_multiplier for phase in earlier}
    own = (trial.config["privacy"]["noise_multiplier"] for trial in trials)
    return [noise if noise in noises else None for noise in own]


def _budget_raise_advice(room: RemainingBudget, takes: Mapping[str, float], account: str) -> str:
    """How to raise the budget, if that makes room for the charge."""
    if not room.can_higher_budget_make_room(takes):
        return (
            f"The {policy_name(room.balance.policy)} is fixed for as long as the account is; no raise makes room in it."
        )
    short = _short_amounts(room, takes)
    parts = [*(["budget.epsilon=..."] if short != {DELTA} else []), *(["budget.delta=..."] if DELTA in short else [])]
    return f"`dpsweep budget raise dataset={account} {' '.join(parts)}` raises the budget on the record."


def _short_amounts(room: RemainingBudget, takes: Mapping[str, float]) -> set[str]:
    """The names of the amounts of which the charge takes more than is left."""
    left = room.amounts_left
    return {name for name, more in takes.items() if left.get(name, 0) < shortest_decimal_of_float(more)}
