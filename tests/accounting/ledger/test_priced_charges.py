"""The ledger prices what it charges: nobody hands it a number, and a line with a lower one is found."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting import upper_bounds
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, BadInput, BudgetRefused, LedgerDamaged, UnderCharged
from dpsweep.accounting.events.build import PlanEvent, gaussian, noisy_table, non_private, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger import upkeep
from dpsweep.accounting.ledger.book import Addition, Charged, Policy, append_body, read_body
from dpsweep.accounting.ledger.charges import require_paid_charges
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.statement import charged_event
from dpsweep.accounting.ledger.upkeep import charge_outside, verify_entries
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.upper_bounds import PRICES, upper_bound
from tests.charges import PANEL, charge_cost, charge_event

BUDGET = Guarantee(epsilon=100.0, delta=1e-3)
RUN = PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5), 20))
OTHER = PlanEvent(training=gaussian(noise_multiplier=8.0), validation=gaussian(noise_multiplier=2.0))
FILTER = RenyiFilter(order=4.0, epsilon=20.0, delta=9e-5)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    return ledger


def charge(
    ledger: Ledger, rule: Mapping[str, Any], points: list[PlanEvent], account: str = "digits", **more: Any
) -> Charged:
    values = {"plan": "p", "trials": ["a"], "delta": 1e-5, "opinions": PANEL, "record": {}} | more
    body = read_body(ledger.charge(account, rule=rule, points=points, **values))
    assert isinstance(body, Charged)
    return body


class WithoutDelta:
    """Opinions whose quote claims a smaller delta than the one that was asked for."""

    total_variation = PANEL.total_variation

    def quote(self, *asked: Any) -> Quote:
        quote = PANEL.quote(*asked)
        return replace(quote, guarantee=replace(quote.guarantee, delta=0.0))


def test_opinions_lower_no_delta_of_a_charge(ledger: Ledger) -> None:
    assert charge(ledger, {"kind": "composition"}, [RUN], opinions=WithoutDelta()).takes["delta"] == 1e-5


def test_no_function_of_the_book_takes_a_price_but_for_a_cost_from_outside() -> None:
    methods = dict(inspect.getmembers(Ledger, inspect.isfunction))
    for name, method in {**methods, **dict(inspect.getmembers(upkeep, inspect.isfunction))}.items():
        parameters = inspect.signature(method).parameters
        assert not parameters.keys() & {"epsilon", "quote", "event", "bound", "price"}, name
        kinds = {
            key
            for key, one in parameters.items()
            if "Guarantee" in str(one.annotation) or "Quote" in str(one.annotation)
        }
        assert kinds <= ({"cost"} if name == "charge_outside" else {"budget"}), name
    assert [*inspect.signature(methods["charge"]).parameters] == [
        *("self", "account", "plan", "trials", "rule", "points", "delta", "opinions", "record", "query", "spares"),
        "sealed",
    ]


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "composition"},
        {"kind": "private_selection", "mean": 3.0},
        {"kind": "random_stopping", "gamma": 0.2, "delta": 1e-6},
        {"kind": "final", "rule": {"kind": "composition"}},
    ],
    ids=lambda rule: rule["kind"],
)
def test_a_charge_takes_the_price_of_its_rule_over_its_points(ledger: Ledger, rule: Mapping[str, Any]) -> None:
    points = [RUN, OTHER, RUN]
    if rule["kind"] == "final":
        points = [replace(point, final=RUN) for point in points]
    body = charge(ledger, rule, points)
    event = charged_event(body)
    assert event is not None
    assert body.epsilon == upper_bound(event, 1e-5, BUDGET.adjacency)
    assert body.takes == {"epsilon": body.epsilon, "delta": 1e-5}
    assert body.record["rule"]["kind"] == rule["kind"]
    assert sum(one.runs for one in body.points) == 3
    assert require_paid_charges(ledger.statement("digits")) == 1


def test_a_card_is_priced_with_its_search(ledger: Ledger) -> None:
    query = noisy_table(noise_std=0.5, adjacency=BUDGET.adjacency)
    body = charge(ledger, {"kind": "composition"}, [RUN], query=query)
    assert body.epsilon == upper_bound(PlanEvent(training=query), 1e-5, BUDGET.adjacency)
    assert body.record["parts"].keys() == {"training", "sealed"}
    assert require_paid_charges(ledger.statement("digits")) == 1


def test_the_neighbours_and_the_unit_are_those_of_the_account(ledger: Ledger) -> None:
    fixed = replace(BUDGET, adjacency=Adjacency.REPLACE_ONE, unit="patient")
    ledger.open_account("faces", fixed)
    one = PlanEvent(training=gaussian(noise_multiplier=2.0))
    prices = [charge(ledger, {"kind": "composition"}, [one], account).epsilon for account in ("digits", "faces")]
    assert prices == [upper_bound(one, 1e-5, adjacency) for adjacency in Adjacency]
    assert prices[1] > prices[0]


def test_an_accountant_that_is_named_raises_the_charge(ledger: Ledger) -> None:
    least = upper_bound(RUN, 1e-5, BUDGET.adjacency)
    for named in (Rdp(), Prv()):
        body = charge(ledger, {"kind": "composition"}, [RUN], opinions=Panel(claimants=(named,)))
        assert body.epsilon == max(least, named.epsilon(RUN.training, 1e-5, BUDGET.adjacency))
    assert require_paid_charges(ledger.statement("digits")) == 2


def test_data_that_were_declared_public_take_any_price(ledger: Ledger) -> None:
    ledger.open_account("open", Guarantee(epsilon=float("inf"), delta=1e-4))
    assert charge(ledger, {"kind": "composition"}, [PlanEvent(training=non_private())], "open").epsilon == float("inf")
    assert require_paid_charges(ledger.statement("open")) == 1
    with pytest.raises(BudgetRefused, match="epsilon inf"):
        charge(ledger, {"kind": "composition"}, [PlanEvent(training=non_private())])


def test_a_rule_that_is_none_of_ours_prices_nothing(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="to name a selection rule"):
        charge(ledger, {"_target_": "os.getcwd"}, [RUN])


def cheap(quote: Quote, epsilon: float = 0.05) -> Quote:
    parts = dict.fromkeys(quote.parts, epsilon)
    return replace(
        quote, guarantee=replace(quote.guarantee, epsilon=epsilon), bounds={"PLD": epsilon}, parts=parts, lower=0.0
    )


def test_a_panel_that_quotes_too_little_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    quote = Panel.quote
    monkeypatch.setattr(Panel, "quote", lambda self, *terms: cheap(quote(self, *terms)))
    with pytest.raises(AccountantsDisagree, match=r"priced at epsilon 0\.05, and costs .*: nothing was charged"):
        charge(ledger, {"kind": "composition"}, [RUN])
    assert not ledger.statement("digits").charges


def forge(ledger: Ledger, change: Callable[[Charged], Charged], account: str = "digits") -> None:
    """A line as the ledger writes it, with another content, in a chain that is whole."""
    (entry,) = ledger.statement(account).charges
    body = read_body(entry)
    assert isinstance(body, Charged)
    with ledger.chain.write_transaction() as lines:
        assert lines is not None
        append_body(lines, account, change(body), plan="forged")


FORGED: Mapping[str, Callable[[Charged], Charged]] = {
    "a lower price": lambda body: replace(body, epsilon=0.05, takes={"epsilon": 0.05, "delta": 1e-5}),
    "a price that the account does not take": lambda body: replace(body, takes={"epsilon": 0.05, "delta": 1e-5}),
    "a larger delta": lambda body: replace(body, delta=1e-9),
    "a cheaper event": lambda body: replace(body, event=PlanEvent(training=gaussian(noise_multiplier=99.0)).to_json()),
    "fewer runs": lambda body: replace(body, points=(replace(body.points[0], runs=1),)),
    "more runs": lambda body: replace(body, points=(replace(body.points[0], runs=3),)),
    "runs without end": lambda body: replace(body, points=(replace(body.points[0], runs=10**15),)),
    "no rule": lambda body: replace(body, record={key: one for key, one in body.record.items() if key != "rule"}),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_line_that_takes_less_than_its_price_is_damage(ledger: Ledger, change: Callable[[Charged], Charged]) -> None:
    charge(ledger, {"kind": "composition"}, [RUN, RUN])
    assert require_paid_charges(ledger.statement("digits")) == 1
    forge(ledger, change)
    assert verify_entries(ledger.chain) == 3, "the chain and its balances are whole"
    with pytest.raises(LedgerDamaged, match="ntry 3"):
        require_paid_charges(ledger.statement("digits"))


def test_what_a_later_version_prices_higher_is_under_charged_until_it_is_taken(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge(ledger, {"kind": "composition"}, [RUN])
    charge_another = partial(charge, ledger, {"kind": "composition"}, [OTHER], plan="q")
    monkeypatch.setattr(upper_bounds, "PRICES", PRICES + 1)
    known = upper_bound(RUN, 1e-5, BUDGET.adjacency)
    assert require_paid_charges(ledger.statement("digits")) == 1
    for later, held in ((known * (1 + 1e-7), True), (0.9 * known, True), (known + 0.25, False)):
        monkeypatch.setattr(upper_bounds, "upper_bound", lambda *_, later=later: later)
        if held:
            assert require_paid_charges(ledger.statement("digits")) == 1
    with pytest.raises(UnderCharged, match=r"under-charged by epsilon 0\.25") as late:
        require_paid_charges(ledger.statement("digits"))
    assert late.value.exit_code == 9
    note = str(late.value).partition('--note "')[2].partition('"')[0]
    charge_outside(ledger, "digits", Guarantee(epsilon=0.2, delta=0.0), note)
    for again in (lambda: require_paid_charges(ledger.statement("digits")), charge_another):
        with pytest.raises(UnderCharged, match=r"by epsilon 0\.05"):
            again()
    assert len(ledger.statement("digits").charges) == 2, "the account waits"
    charge_outside(ledger, "digits", Guarantee(epsilon=0.05, delta=0.0), note)
    assert require_paid_charges(ledger.statement("digits")) == 1
    monkeypatch.setattr(upper_bounds, "upper_bound", upper_bound)
    charge_another()


def test_a_filter_that_lacks_divergence_is_paid_the_whole_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "other.sqlite")
    ledger.open_account("digits", BUDGET, FILTER)
    charge_event(ledger, "digits", plan="p", trials=["a"], event=RUN)
    monkeypatch.setattr(upper_bounds, "PRICES", PRICES + 1)
    known = RenyiFilter.divergence
    monkeypatch.setattr(RenyiFilter, "divergence", lambda *asked: 2 * known(*asked))
    with pytest.raises(UnderCharged) as late:
        require_paid_charges(ledger.statement("digits"))
    words = shlex.split(str(late.value).partition("To take it: ")[2].rstrip("."))
    epsilon, delta = (float(words[words.index(name) + 1]) for name in ("--epsilon", "--delta"))
    assert (epsilon, delta) == (pytest.approx(upper_bound(RUN, 1e-5, BUDGET.adjacency)), 1e-5)
    charge_outside(ledger, "digits", Guarantee(epsilon=epsilon, delta=delta), words[-1])
    assert require_paid_charges(ledger.statement("digits")) == 1


@pytest.mark.parametrize("policy", [Addition(), FILTER], ids=["addition", "filter"])
def test_charges_hold_by_either_policy_and_costs_without_an_event_are_taken_as_they_are(
    tmp_path: Path, policy: Policy
) -> None:
    ledger = Ledger(tmp_path / "other.sqlite")
    ledger.open_account("digits", BUDGET, policy)
    charge_event(ledger, "digits", plan="p", trials=["a"], event=OTHER)
    charge_cost(ledger, "digits", plan="q", trials=["a"], cost=Guarantee(epsilon=1.0, delta=1e-5))
    charge_outside(ledger, "digits", Guarantee(epsilon=1.0, delta=1e-5), "a pilot study")
    assert require_paid_charges(ledger.statement("digits")) == 2
