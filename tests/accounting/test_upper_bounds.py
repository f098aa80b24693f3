"""The price is the least bound of the trusted theorems: whoever is outside may raise it or refuse it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpsweep.accounting import upper_bounds
from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, PlanEvent, compose, gaussian, poisson_gaussian, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.selection.rules import PrivateSelection
from dpsweep.accounting.upper_bounds import quote_for_charge, upper_bound

ADD = Adjacency.ADD_OR_REMOVE_ONE
RUN = repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5), 20)
PLAN = PlanEvent(training=RUN, validation=gaussian(noise_multiplier=4.0))


@dataclass(frozen=True)
class Scaled:
    """PLD's bound times a number: a third party's accountant."""

    by: float
    name: str = "third"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return self.by * Pld().epsilon(event, delta, adjacency)

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return 0.0


def test_it_is_the_least_of_pld_and_rdp_for_the_dearest_population() -> None:
    parts = PLAN.events_by_population.values()
    least = [min(one.epsilon(part, 1e-5, ADD) for one in (Pld(), Rdp())) for part in parts]
    assert upper_bound(PLAN, 1e-5, ADD) == max(least)
    assert Panel(claimants=(Pld(), Rdp())).quote(PLAN, 1e-5, ADD).epsilon == max(least)


@pytest.mark.parametrize("by", [0.9999, 1.5])
@pytest.mark.parametrize("others", [(), (Pld(), Rdp())], ids=["alone", "beside"])
def test_an_accountant_that_is_named_raises_the_price_and_never_lowers_it(
    by: float, others: tuple[Accountant, ...]
) -> None:
    search = PrivateSelection(mean=3.0).event([PLAN] * 2)
    panel, least = Panel(claimants=(Scaled(by),), witnesses=others), upper_bound(search, 1e-5, ADD)
    quote = panel.quote(search, 1e-5, ADD)
    assert quote.epsilon == panel.epsilon(search, 1e-5, ADD) == max(1.0, by) * least
    assert quote.claimed_by == ("third" if by > 1 else "PLD")
    assert quote.bounds_by_part["training"][quote.claimed_by] == quote.parts["training"]


def test_no_accountant_claims_what_no_theorem_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unable(Scaled):
        def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
            raise UnsupportedEvent("no theorem")

    monkeypatch.setattr("dpsweep.accounting.pricing.panel.TRUSTED", (Unable(1.0),))
    with pytest.raises(UnsupportedEvent, match="no theorem"):
        Panel(claimants=(Prv(),)).quote(PlanEvent(training=RUN), 1e-5, ADD)


def test_a_quote_below_the_price_is_refused_and_one_above_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    panel, least = Panel(claimants=(Rdp(),)), upper_bound(PLAN, 1e-5, ADD)
    quote = quote_for_charge(PLAN, 1e-5, ADD, "patient", panel)
    assert quote.epsilon == Rdp().epsilon(RUN, 1e-5, ADD) > least
    assert quote.guarantee.unit == "patient"
    for cheap in (0.999 * least, float("nan")):
        monkeypatch.setattr(Panel, "quote", lambda *_, cheap=cheap: type("Quote", (), {"epsilon": cheap})())
        with pytest.raises(AccountantsDisagree, match="nothing was charged"):
            quote_for_charge(PLAN, 1e-5, ADD, "record", panel)


def test_a_plan_and_its_charge_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def counted(epsilon: Callable[..., float]) -> Callable[..., float]:
        def count(self: object, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
            asked.append(delta)
            return epsilon(self, event, delta, adjacency)

        return count

    for kind in (Pld, Rdp):
        monkeypatch.setattr(kind, "epsilon", counted(kind.epsilon))
    panel, delta = Panel(claimants=(Pld(), Rdp())), 1.25e-5
    price = panel.quote(PlanEvent(training=compose([RUN, RUN])), delta, ADD).epsilon
    before = asked.count(delta)
    assert upper_bound(PlanEvent(training=compose([RUN, RUN])), delta, ADD) == price
    assert asked.count(delta) == before > 0


def test_what_is_priced_at_another_delta_or_for_other_neighbours_is_not_remembered() -> None:
    one = PlanEvent(training=gaussian(noise_multiplier=4.0))
    prices = {upper_bound(one, delta, adjacency) for delta in (1e-5, 1e-6) for adjacency in Adjacency}
    assert len(prices) == 4


def test_nothing_that_prices_a_charge_reads_what_others_say_a_price_is() -> None:
    """No function here takes a number that is a price; what it imports of the house is below it."""
    functions = [one for _, one in inspect.getmembers(upper_bounds, inspect.isfunction)]
    names = {
        name
        for one in functions
        if one.__module__ == upper_bounds.__name__
        for name in inspect.signature(one).parameters
    }
    assert not names & {"epsilon", "cost", "quote", "bound", "price"}
    tree = ast.parse(Path(upper_bounds.__file__).read_text())
    rooms = {
        node.module.split(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dpsweep")
    }
    assert rooms == {"accountants", "errors", "events", "guarantee"}
