"""The outlook of a plan before it is charged: whether the account admits it, and which alternatives would fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.pricing.alternatives import (
    RequiredNoise,
    fitting_ways_sentence,
    is_offer_admitted,
    offers_under_each_rule,
    required_noise_to_fit_budget,
)
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget
from dpsweep.accounting.pricing.rule_prices import Offer, cheapest_offer_showing_results


@dataclass(frozen=True, kw_only=True)
class RuleOutlook:
    """The terms of one rule: whether the account admits the search under it, and whether it is the cheapest to take.

    `taken` marks the plan's own rule.
    """

    offer: Offer
    admitted: bool
    taken: bool
    cheapest: bool


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
    """All available rules; `needs` holds the noise that each needs, if it was asked for.

    `advice` names alternatives that fit if the plan itself does not, and is empty otherwise.
    """

    rules: tuple[RuleOutlook, ...]
    needs: Mapping[str, RequiredNoise | None]
    advice: str


def compare_plan_with_account(priced: PricedPlan, statement: Statement | None) -> Outlook:
    """The plan compared with this account, or with the one that it would open if there is none."""
    if priced.plan.has_public_data or (statement is not None and statement.budget.promises_nothing):
        return Outlook()
    room = RemainingBudget.for_plan(priced, statement)
    takes = room.balance.policy.amounts_of_charge(priced.quote.guarantee, priced.plan.event)
    return Outlook(
        admitted=room.balance.has_room_for_amounts(takes),
        times=room.number_of_admissible_repeats(takes),
        rest="" if statement is None else _remaining_amounts_phrase(room, takes),
    )


def _remaining_amounts_phrase(room: RemainingBudget, takes: Mapping[str, float]) -> str:
    """A phrase with the rest of each amount that the plan takes."""
    if room.balance.closed:
        return "the account was closed"
    return f"{room.balance.remaining_amounts_phrase(takes)} left ({room.balance.policy.name})"


def rule_outlooks(priced: PricedPlan, statement: Statement | None, *, show: str, fits: bool) -> RuleOutlooks:
    """Every available rule; with `fits`, also the noise at which each would be admitted."""
    room = RemainingBudget.for_plan(priced, statement)
    offers = offers_under_each_rule(priced)
    needs = {
        offer.label: required_noise_to_fit_budget(priced, offer.rule, priced.plan.trials, room)
        for offer in offers
        if fits
    }
    best = cheapest_offer_showing_results(offers, show)
    takes = room.balance.policy.amounts_of_charge(priced.quote.guarantee, priced.plan.event)
    advice = ""
    if room.has_each_amount_left(takes) and not room.balance.has_room_for_amounts(takes):
        own = next((needs.get(offer.label) for offer in offers if offer.rule == priced.rule), None)
        advice = fitting_ways_sentence(priced, priced.plan.trials, room, offers, own)
    rules = (
        RuleOutlook(
            offer=offer,
            admitted=is_offer_admitted(priced, offer, room),
            taken=offer.rule == priced.rule,
            cheapest=offer is best,
        )
        for offer in offers
    )
    return RuleOutlooks(rules=tuple(rules), needs=needs, advice=advice)
