"""The outlook of a plan before it is charged: whether the account admits it, and which alternatives would fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.ledger.statement import policy_name, remaining_phrase
from dpsweep.accounting.pricing.alternatives import (
    RequiredNoise,
    fitting_ways_sentence,
    is_offer_admitted,
    offers_under_each_rule,
    required_noise_to_fit_budget,
)
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.pricing.rule_prices import Offer


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A plan compared with the account that it would be charged to.

    `admitted` says that the account admits the plan, `times` how many such plans, one after another, and `rest` is
    a phrase with the rest of each amount that it takes; all keep their defaults if the plan or the account has data
    declared public.
    """

    admitted: bool = False
    times: int = 0
    rest: str = ""


@dataclass(frozen=True, kw_only=True)
class RuleOutlooks:
    """All available rules, by what each offers; `admitted` has the labels of those that the account admits.

    `needs` holds the noise that each needs, if it was asked for. `advice` names alternatives that fit if the plan
    itself does not, and is empty otherwise.
    """

    offers: tuple[Offer, ...]
    admitted: frozenset[str]
    needs: Mapping[str, RequiredNoise | None]
    advice: str


def compare_plan_with_account(priced: PricedPlan, statement: Statement | None) -> Outlook:
    """The plan compared with this account, or with the one that it would open if there is none."""
    if priced.plan.has_public_data or (statement is not None and statement.budget.promises_nothing):
        return Outlook()
    room = RemainingBudget.for_plan(priced, statement)
    takes = room.balance.policy.amounts_of_charge(priced.quote.guarantee, priced.plan.event)
    rest = f"{remaining_phrase(room.balance, takes)} left ({policy_name(room.balance.policy)})"
    return Outlook(
        admitted=room.balance.has_room(takes),
        times=room.number_of_admissible_repeats(takes),
        rest="" if statement is None else "the account was closed" if room.balance.closed else rest,
    )


def rule_outlooks(priced: PricedPlan, statement: Statement | None, *, fits: bool) -> RuleOutlooks:
    """Every available rule; with `fits`, also the noise at which each would be admitted."""
    room, trials = RemainingBudget.for_plan(priced, statement), priced.plan.trials
    offers, needs = offers_under_each_rule(priced), {}
    if fits:
        needs = {offer.label: required_noise_to_fit_budget(priced, offer.rule, trials, room) for offer in offers}
    takes = room.balance.policy.amounts_of_charge(priced.quote.guarantee, priced.plan.event)
    advice = ""
    if room.has_each_amount_left(takes) and not room.balance.has_room(takes):
        own = next((needs.get(offer.label) for offer in offers if offer.rule == priced.rule), None)
        advice = fitting_ways_sentence(priced, trials, room, offers, own)
    admitted = frozenset(offer.label for offer in offers if is_offer_admitted(priced, offer, room))
    return RuleOutlooks(offers=offers, admitted=admitted, needs=needs, advice=advice)
