"""What would fit, under every policy that an account can have: the advice is admitted, and a little more is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BudgetRefused
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Addition, Policy, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.upkeep import charge_outside, close_account
from dpsweep.accounting.pricing.alternatives import (
    advice_sentences_to_fit_budget,
    fitting_ways_sentence,
    offers_under_each_rule,
    required_noise_to_fit_budget,
)
from dpsweep.accounting.pricing.calibration import DIGITS
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.remaining_budget import RemainingBudget

Compose = Callable[[Sequence[str]], PricedPlan]

LIGHT = ("dataset=digits", "trainer=dpnsgd", "steps=3", "accountant=rdp", "accountant.witnesses=[]")
GRID = (*LIGHT, "trainer.regularizer=0.1,1", "trainer.lr=2,8")
BUDGET = Guarantee(epsilon=24.0, delta=1e-4)
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)
POLICIES = pytest.mark.parametrize("policy", [Addition(), FILTER], ids=["addition", "filter"])


def opened(ledger: Ledger, policy: Policy, taken: float = 0.0) -> Statement:
    """An account with this policy, of which a plan has taken some epsilon by its claim alone."""
    ledger.open_account("digits", BUDGET, policy)
    if taken:
        charge_outside(ledger, "digits", Guarantee(epsilon=taken, delta=0.0), "a pilot study")
    return ledger.statement("digits")


def admitted(priced: PricedPlan, ledger: Ledger) -> bool:
    """Whether the ledger itself takes the plan."""
    try:
        ledger.charge(
            "digits",
            plan=priced.plan.id,
            trials=[trial.id for trial in priced.plan.trials],
            rule=priced.plan.rule,
            points=priced.plan.priced_events,
            delta=priced.plan.delta,
            opinions=priced.panel,
            record={"reason": "plan"},
        )
    except BudgetRefused:
        return False
    return True


@POLICIES
def test_the_advised_noise_is_admitted_and_one_percent_less_is_not(
    compose_priced: Compose, ledger: Ledger, policy: Policy
) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=23.9"])
    found = required_noise_to_fit_budget(
        priced, priced.rule, priced.plan.trials, RemainingBudget.for_plan(priced, opened(ledger, policy, taken=3.0))
    )
    assert found is not None
    less = found.noise_multiplier * (0.99 - 10 ** (1 - DIGITS))
    assert not admitted(compose_priced([*GRID, f"privacy.noise_multiplier={less}"]), ledger)
    assert admitted(compose_priced([*GRID, f"privacy.noise_multiplier={found.noise_multiplier}"]), ledger)


@POLICIES
def test_the_advised_epsilon_is_admitted(compose_priced: Compose, ledger: Ledger, policy: Policy) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=23.9"])
    said = advice_sentences_to_fit_budget(priced, priced.plan.trials, opened(ledger, policy, taken=3.0))
    epsilon = float(said.partition("privacy.epsilon=")[2].partition(")")[0])
    assert admitted(compose_priced([*GRID, f"privacy.epsilon={epsilon}"]), ledger)


@POLICIES
def test_the_advised_number_of_runs_is_admitted_and_one_more_is_not(
    compose_priced: Compose, ledger: Ledger, policy: Policy
) -> None:
    line = (*LIGHT, "trainer.regularizer=1", "privacy.noise_multiplier=1")
    priced = compose_priced([*line, f"trainer.lr={_lrs(16)}"])
    said = advice_sentences_to_fit_budget(priced, priced.plan.trials, opened(ledger, policy, taken=3.0))
    runs = int(said.removeprefix("What would fit: ").partition(" of these 16 runs")[0])
    assert 1 < runs < 15
    assert not admitted(compose_priced([*line, f"trainer.lr={_lrs(runs + 1)}"]), ledger)
    assert admitted(compose_priced([*line, f"trainer.lr={_lrs(runs)}"]), ledger)


def _lrs(count: int) -> str:
    return ",".join(str(lr) for lr in range(1, count + 1))


@pytest.mark.parametrize(
    ("epsilon", "delta", "fits", "raised"),
    [
        (1.0, 9.5e-5, "What would fit: privacy.delta=5e-6. ", "budget.delta=..."),
        (1.0, 1e-4, "Nothing more fits. ", "budget.delta=..."),
        (24.0, 1e-4, "Nothing more fits. ", "budget.epsilon=... budget.delta=..."),
        (24.0, 1e-6, "Nothing more fits. ", "budget.epsilon=..."),
    ],
    ids=["less delta is left", "no delta is left", "nothing is left", "no epsilon is left"],
)
def test_the_advice_raises_the_part_of_the_budget_that_is_short(
    compose_priced: Compose, ledger: Ledger, epsilon: float, delta: float, fits: str, raised: str
) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=8", "privacy.delta=1e-5"])
    opened(ledger, Addition())
    charge_outside(ledger, "digits", Guarantee(epsilon=epsilon, delta=delta), "a pilot study")
    said = advice_sentences_to_fit_budget(priced, priced.plan.trials, ledger.statement("digits"))
    assert said == f"{fits}`dpsweep budget raise dataset=digits {raised}` raises the budget on the record."


@POLICIES
def test_other_rules_are_offered_if_the_ledger_would_take_them(
    compose_priced: Compose, ledger: Ledger, policy: Policy
) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=23.9", "tuning=auto"])
    offers = offers_under_each_rule(priced)
    said = fitting_ways_sentence(
        priced, priced.plan.trials, RemainingBudget.for_plan(priced, opened(ledger, policy, taken=3.9)), offers, None
    )
    found = {offer.label for offer in offers if f"tuning={offer.label} " in said}
    for offer in offers:
        if offer.quote is not None and offer.rule != priced.rule:
            account = ledger.statement("digits")
            event = offer.rule.event(priced.plan.priced_events)
            amounts = account.balance.policy.amounts_of_charge(offer.quote.guarantee, event)
            takes = account.balance.has_room(amounts)
            assert (offer.label in found) is takes
    assert found


def test_a_filter_takes_plans_that_a_sum_would_not(compose_priced: Compose, ledger: Ledger) -> None:
    """Many small plans: each claim holds the cost of its own conversion, and a filter pays for one."""
    priced = compose_priced([*GRID, "privacy.epsilon=1"])
    filtered, summed = (
        RemainingBudget.for_plan(priced, Statement(account="digits", balance=balance, entries=()))
        for balance in (
            replace(opened(ledger, FILTER).balance),
            replace(opened(Ledger(ledger.path.with_name("other.sqlite")), Addition()).balance),
        )
    )
    assert filtered.fraction_taken_by_event(priced.plan.event) < summed.fraction_taken_by_event(priced.plan.event) / 2


def test_a_share_of_one_is_the_last_that_is_admitted(compose_priced: Compose, ledger: Ledger) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=3"])
    exact = replace(BUDGET, epsilon=priced.quote.epsilon)
    ledger.open_account("digits", exact)
    assert RemainingBudget.for_plan(priced, ledger.statement("digits")).fraction_taken_by_event(priced.plan.event) == 1
    charge_outside(ledger, "digits", Guarantee(epsilon=1e-12, delta=0.0), "nearly nothing")
    assert RemainingBudget.for_plan(priced, ledger.statement("digits")).fraction_taken_by_event(priced.plan.event) > 1


def test_a_delta_that_is_gone_fits_nothing_however_little_it_costs(compose_priced: Compose, ledger: Ledger) -> None:
    ledger.open_account("digits", BUDGET)
    charge_outside(ledger, "digits", Guarantee(epsilon=0.0, delta=9.5e-5), "deltas only")
    statement = ledger.statement("digits")
    priced = compose_priced([*GRID, "privacy.epsilon=1"])
    assert (
        required_noise_to_fit_budget(
            priced, priced.rule, priced.plan.trials, RemainingBudget.for_plan(priced, statement)
        )
        is None
    )
    assert "privacy.delta=5e-6" in advice_sentences_to_fit_budget(priced, priced.plan.trials, statement)


def test_a_delta_that_is_just_enough_is_not_called_too_small(compose_priced: Compose, ledger: Ledger) -> None:
    """The rest is a decimal, and the float 1e-4 is a little above it."""
    ledger.open_account("digits", Guarantee(epsilon=3.0, delta=3e-4))
    for _ in range(2):
        charge_outside(ledger, "digits", Guarantee(epsilon=1.0, delta=1e-4), "an earlier sweep")
    priced = compose_priced([*GRID, "privacy.epsilon=2", "privacy.delta=1e-4"])
    words = advice_sentences_to_fit_budget(priced, priced.plan.trials, ledger.statement("digits"))
    assert "privacy.delta" not in words
    assert "noise" in words


def test_no_raise_is_advised_where_it_makes_no_room(compose_priced: Compose, ledger: Ledger) -> None:
    priced = compose_priced([*GRID, "privacy.epsilon=30"])
    assert "no raise makes room" in advice_sentences_to_fit_budget(priced, priced.plan.trials, opened(ledger, FILTER))
    ledger.open_account("mnist", BUDGET)
    assert "budget raise" in advice_sentences_to_fit_budget(priced, priced.plan.trials, ledger.statement("mnist"))


def test_nothing_fits_a_closed_account(compose_priced: Compose, ledger: Ledger) -> None:
    opened(ledger, Addition())
    priced = compose_priced([*GRID, "privacy.epsilon=1"])
    room = RemainingBudget.for_plan(priced, close_account(ledger, "digits"))
    assert room.is_empty
    assert required_noise_to_fit_budget(priced, priced.rule, priced.plan.trials, room) is None
    assert room.fraction_taken_by_event(priced.plan.event) > 1
