"""The ledger's promises: charges never fall, nobody overspends, and a new name is no new budget."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken
from dpsweep.accounting.events.build import PlanEvent, gaussian
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.book import Addition, Ended, Fingerprint
from dpsweep.accounting.ledger.data_fingerprint import Content, Key, new_data_message, record_data
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.renyi_filter import RenyiFilter
from dpsweep.accounting.ledger.statement import recorded_budgets, refusal_text, remaining_amounts, reserved_amounts
from dpsweep.accounting.ledger.upkeep import (
    charge_outside,
    close_account,
    raise_budget,
    user_ledger_place,
    verify_entries,
)
from tests.accounting import accounts
from tests.accounting.accounts import BUDGET, charge, start
from tests.charges import charge_event, start_attempts
from tests.databases import Place

ledger = accounts.ledger


def test_charges_add_up_to_the_budget_exactly_and_not_beyond(ledger: Ledger) -> None:
    """Ten times 1e-5 is 1e-4: as floats it is not."""
    for number in range(10):
        charge(ledger, plan=f"p{number}")
    assert remaining_amounts(ledger.statement("digits")) == (0.0, 0.0)
    assert reserved_amounts(ledger.statement("digits")) == (10.0, 1e-4)
    with pytest.raises(BudgetRefused) as refused:
        charge(ledger, plan="more", cost=Guarantee(epsilon=0.001, delta=0.0))
    said = refusal_text("digits", **refused.value.facts)
    assert re.search(r"epsilon 0\.00100 .* epsilon 0 of 10 and delta 0 of 0\.0001 are left", said)
    assert len(ledger.statement("digits").charges) == 10
    assert verify_entries(ledger.chain) == 11


def test_an_account_that_was_never_opened_has_no_statement_and_asking_creates_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "none.sqlite")
    assert ledger.statement_or_none("digits") is None
    assert not (tmp_path / "none.sqlite").exists()
    with pytest.raises(BadInput, match="Expected account=digits to be open"):
        ledger.attempts_of_plan("digits", "p")
    ledger.open_account("digits", BUDGET)
    assert ledger.statement_or_none("faces") is None
    assert ledger.statement_or_none("digits") == ledger.statement("digits")
    assert not ledger.attempts_of_plan("digits", "p").charges


@pytest.mark.parametrize(
    "cost",
    [
        Guarantee(epsilon=10.001, delta=1e-5),
        Guarantee(epsilon=1.0, delta=1.01e-4),
        Guarantee(epsilon=float("inf"), delta=1e-5),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_charged(ledger: Ledger, cost: Guarantee) -> None:
    with pytest.raises(BudgetRefused):
        charge(ledger, cost=cost)
    assert reserved_amounts(ledger.statement("digits")) == (0.0, 0.0)


def test_the_record_beside_a_charge_says_nothing_else_about_its_cost(ledger: Ledger) -> None:
    charge(ledger)
    (entry,) = ledger.statement("digits").charges
    assert (entry.body["epsilon"], entry.body["takes"]) == (1.0, {"epsilon": 1.0, "delta": 1e-5})


def test_what_an_entry_says_is_not_changed_in_memory(ledger: Ledger) -> None:
    """Entries are kept by the process, so whoever reads them shares them."""
    charge(ledger)
    (entry,) = ledger.statement("digits").charges
    for form in (entry.body, entry.body["takes"], entry.balance["reserved"]):
        with pytest.raises(TypeError, match="does not support item assignment"):
            form["epsilon"] = 0.0


@pytest.mark.parametrize(("trials", "spares"), [(("a", "a"), 0), (("a",), -1)])
def test_a_charge_is_for_one_attempt_at_each(ledger: Ledger, trials: tuple[str, ...], spares: int) -> None:
    with pytest.raises(ValueError, match="to be distinct and spares="):
        charge(ledger, trials=trials, spares=spares)


def test_the_neighbours_of_an_account_are_fixed_when_it_is_opened(ledger: Ledger) -> None:
    """One sentence, no advice to raise a budget that could not help."""
    for other in (
        Guarantee(epsilon=5.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE),
        Guarantee(epsilon=5.0, delta=1e-5, unit="patient"),
    ):
        for request in (
            lambda other=other: ledger.open_account("digits", other),
            lambda other=other: raise_budget(ledger, "digits", other),
            lambda other=other: charge_outside(ledger, "digits", other, "a count"),
        ):
            with pytest.raises(BadInput, match="different neighbours do not add up") as refused:
                request()
            assert "raise" not in str(refused.value)
    assert verify_entries(ledger.chain) == 1


def test_an_attempt_needs_a_charge_that_no_earlier_attempt_used(ledger: Ledger) -> None:
    with pytest.raises(ContractBroken, match="covered by no charge"):
        start(ledger, "a")
    first = charge(ledger)
    assert start(ledger, "a") == [("a", 1, first)]
    with pytest.raises(ContractBroken, match="Attempt 2 at trial a"):
        start(ledger, "a")
    second = charge(ledger, trials=("a",))
    assert start(ledger, "a", "b") == [("a", 2, second), ("b", 1, first)]


def test_starting_several_attempts_is_all_or_nothing(ledger: Ledger) -> None:
    charge(ledger, trials=("a",))
    with pytest.raises(ContractBroken):
        start(ledger, "a", "uncharged")
    assert ledger.statement("digits").attempts_of_plan("p").started["a"] == 0


def test_a_receipt_says_where_the_chain_ended_at_its_start(ledger: Ledger) -> None:
    charge(ledger)
    first, second = start_attempts(ledger, "digits", plan="p", trials=["a", "b"])
    assert (first.entries, second.entries) == (3, 4)
    assert [entry.digest for entry in ledger.statement("digits").entries][3:] == [second.head]
    assert verify_entries(ledger.chain, [End(entries=3, head=first.head)]) == 4


def test_spare_attempts_go_to_whichever_trial_needs_them_and_are_counted(ledger: Ledger) -> None:
    bought = charge(ledger, spares=2)
    start(ledger, "a", "b")
    assert start(ledger, "b", "a") == [("b", 2, bought), ("a", 2, bought)]
    assert ledger.statement("digits", "p").attempts_of_plan("p").spares == 0
    for trial in ("a", "b", "uncharged"):
        with pytest.raises(ContractBroken, match="covered by no charge"):
            start(ledger, trial)


def test_an_attempt_keeps_the_charge_that_it_was_started_on(ledger: Ledger) -> None:
    """Also where a later charge covers its trial once more: a checkpoint belongs to one charge."""
    first = charge(ledger, spares=1)
    start(ledger, "a", "a")
    charge(ledger, trials=("a",))
    (receipt,) = ledger.resume("digits", plan="p", trials=["a"])
    assert (receipt.attempt, receipt.resume, receipt.charge) == (2, 1, first)
    start(ledger, "a")
    with pytest.raises(ContractBroken):
        start(ledger, "a")


def test_going_on_costs_nothing_and_needs_a_start(ledger: Ledger) -> None:
    first = charge(ledger)
    with pytest.raises(ContractBroken, match="never started"):
        ledger.resume("digits", plan="p", trials=["a"])
    start(ledger, "a")
    before = reserved_amounts(ledger.statement("digits"))
    receipts = ledger.resume("digits", plan="p", trials=["a"]) + ledger.resume("digits", plan="p", trials=["a", "a"])
    assert [(one.attempt, one.resume, one.charge) for one in receipts] == [(1, 1, first), (1, 2, first), (1, 3, first)]
    assert reserved_amounts(ledger.statement("digits")) == before
    assert ledger.statement("digits").attempts_of_plan("p").started["a"] == 1


def test_an_attempt_that_has_ended_does_not_resume(ledger: Ledger) -> None:
    charge(ledger)
    start(ledger, "a")
    for resume, status in enumerate(("interrupted", "finished")):
        ended = Ended(trial="a", attempt=1, resume=resume, realised={"status": status})
        if resume:
            ledger.resume("digits", plan="p", trials=["a"])
        ledger.end("digits", plan="p", ended=[ended])
    with pytest.raises(ContractBroken, match="Attempt 1 at trial a has ended"):
        ledger.resume("digits", plan="p", trials=["a"])


def test_settling_never_refunds_and_is_written_once(ledger: Ledger) -> None:
    charge(ledger)
    before = reserved_amounts(ledger.statement("digits"))
    start(ledger, "a")
    for status in ("killed", "finished", "failed"):
        ended = Ended(trial="a", attempt=1, resume=0, realised={"status": status, "attempt": 7})
        ledger.end("digits", plan="p", ended=[ended, ended])
    statement = ledger.statement("digits")
    assert reserved_amounts(statement) == before
    settled = [(entry.body["status"], entry.body["attempt"]) for entry in statement.entries if entry.kind == "settle"]
    assert settled == [("killed", 1)]
    assert statement.attempts_of_plan("p").settled.keys() == {("a", 1, 0)}
    with pytest.raises(ContractBroken, match="without having started"):
        ledger.end("digits", plan="p", ended=[Ended(trial="b", attempt=1, resume=0, realised={})])


def test_reopening_checks_the_budget_and_says_how_to_raise_it(ledger: Ledger) -> None:
    assert ledger.open_account("digits", BUDGET).budget == BUDGET
    with pytest.raises(BadInput, match=r"to be new; it is open with epsilon 10"):
        ledger.open_account("digits", BUDGET, Addition())
    higher = Guarantee(epsilon=12.0, delta=1e-4)
    assert ledger.open_account("digits", higher).budget == BUDGET
    assert raise_budget(ledger, "digits", higher).budget == higher
    assert recorded_budgets(ledger.open_account("digits", BUDGET)) == (BUDGET, higher)
    for no_higher in (BUDGET, higher, Guarantee(epsilon=20.0, delta=1e-5)):
        with pytest.raises(BadInput, match="already, and is never lowered"):
            raise_budget(ledger, "digits", no_higher)
    for unknown in (ledger.statement, partial(close_account, ledger)):
        with pytest.raises(BadInput, match="to be open"):
            unknown("nosuch")


def test_a_closed_account_finishes_what_was_charged_and_takes_nothing_more(ledger: Ledger) -> None:
    charge(ledger)
    assert remaining_amounts(close_account(ledger, "digits")) == (0.0, 0.0)
    assert start(ledger, "a")
    with pytest.raises(BudgetRefused) as refused:
        charge(ledger, plan="more")
    assert "was closed" in refusal_text("digits", **refused.value.facts)
    for request in (lambda: close_account(ledger, "digits"), lambda: raise_budget(ledger, "digits", BUDGET)):
        with pytest.raises(BadInput, match="closed"):
            request()
    assert verify_entries(ledger.chain) == 4


def test_what_was_spent_outside_is_never_refused_and_counts(ledger: Ledger) -> None:
    statement = charge_outside(ledger, "digits", Guarantee(epsilon=12.0, delta=1e-5), "the paper of 2019")
    assert (reserved_amounts(statement), remaining_amounts(statement)) == ((12.0, 1e-5), (0.0, 9e-5))
    with pytest.raises(BudgetRefused):
        charge(ledger)
    with pytest.raises(BadInput, match="finite"):
        charge_outside(ledger, "digits", Guarantee(epsilon=float("inf"), delta=0.0), "all of it")
    assert verify_entries(ledger.chain) == 2


def test_accounts_are_apart_and_have_names(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    charge(ledger)
    assert ledger.account_names() == ("digits", "other")
    assert reserved_amounts(ledger.statement("other")) == (0.0, 0.0)
    for name in ("", "a\x00b", "two\nlines", "half \ud800 a sign"):
        with pytest.raises(BadInput, match="to be a name"):
            ledger.open_account(name, BUDGET)


KEY, OTHER_KEY = Key(secret=bytes(32)), Key(secret=bytes(range(32)))


def of(*contents: bytes, key: Key = KEY) -> Fingerprint:
    return key.fingerprint(Content.from_chunks([content]) for content in contents)


def test_data_are_recognised_under_another_name(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    record_data(ledger, "digits", of(b"one", b"two"))
    record_data(ledger, "digits", of(b"two", b"one"))
    assert verify_entries(ledger.chain) == 3, "what is known is not written again"
    for same_or_shared in (of(b"one", b"two"), of(b"two", b"three")):
        with pytest.raises(BadInput, match="known as the data of the account digits, and a new name gives no new"):
            new_data_message(same_or_shared, "other", ledger)
        with pytest.raises(BadInput, match="name=other to be digits"):
            record_data(ledger, "other", same_or_shared)
    assert new_data_message(of(b"three"), "other", ledger) == ""
    record_data(ledger, "other", of(b"three"))
    assert "not those that were charged before" in new_data_message(of(b"one", b"four"), "digits", ledger)
    record_data(ledger, "digits", of(b"one", b"four"))
    assert new_data_message(of(b"one", b"four"), "digits", ledger) == ""
    with pytest.raises(BadInput, match="name=digits to be other"):
        record_data(ledger, "digits", of(b"one", b"three"))
    assert verify_entries(ledger.chain) == 5


def test_another_key_is_said_instead_of_every_data_set_looking_new(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    record_data(ledger, "digits", of(b"one"))
    for account in ("digits", "other"):
        with pytest.raises(BadInput, match=r"it is another one\. Put back a copy of it"):
            new_data_message(of(b"one", key=OTHER_KEY), account, ledger)


FILTER = RenyiFilter(order=8.0, epsilon=6.0, delta=5e-5)
RUN = PlanEvent(training=gaussian(noise_multiplier=2.0))


def test_a_filter_takes_divergences_and_says_which_part_is_short(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET, FILTER)
    limit = float(FILTER.amount_limits(BUDGET)["divergence"])
    for number in range(int(limit)):  # each takes 8 / (2 * 2 * 2) = 1
        charge_event(ledger, "digits", plan=f"p{number}", trials=["a"], event=RUN)
    with pytest.raises(BudgetRefused) as refused:
        charge_event(ledger, "digits", plan="more", trials=["a"], event=RUN)
    said = refusal_text("digits", **refused.value.facts)
    assert re.search(r"takes divergence 1\.\d+; on digits divergence 0\.\d+ of 5\.\d+ are left", said)
    statement = ledger.statement("digits")
    assert reserved_amounts(statement)[1] == 5e-5
    assert reserved_amounts(statement)[0] <= 6
    with pytest.raises(BudgetRefused) as refused:
        charge(ledger, cost=Guarantee(epsilon=4.001, delta=1e-5))
    assert "epsilon 4.000 of 4 and delta 5e-5 of 5e-5 are left" in refusal_text("digits", **refused.value.facts)
    charge(ledger, cost=Guarantee(epsilon=4.0, delta=1e-5))
    assert verify_entries(ledger.chain) == int(limit) + 2


def test_a_raise_leaves_the_filter_as_it_was_opened(place: Place) -> None:
    ledger = Ledger(place.address)
    with pytest.raises(BadInput, match="to hold the filter's part"):
        ledger.open_account("digits", Guarantee(epsilon=5.0, delta=1e-4), FILTER)
    ledger.open_account("digits", BUDGET, FILTER)
    before = FILTER.amount_limits(BUDGET)
    balance = raise_budget(ledger, "digits", Guarantee(epsilon=20.0, delta=1e-4)).balance
    after = balance.policy.amount_limits(balance.budget)
    assert after["divergence"] == before["divergence"]
    assert after["epsilon"] == before["epsilon"] + 10


def test_the_ledger_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "mine.sqlite"))
    assert Ledger(user_ledger_place()).path == tmp_path / "mine.sqlite"
    assert Ledger(user_ledger_place()).folder_for_local_files == tmp_path
    monkeypatch.setenv("DPSWEEP_LEDGER", "postgresql://me:hemligt@somewhere/books")
    away = Ledger(user_ledger_place())
    assert (away.path, away.name) == (None, "postgresql+psycopg://me:***@somewhere/books")
    assert away.folder_for_local_files == home / "data" / "dpsweep"
    monkeypatch.delenv("DPSWEEP_LEDGER")
    assert Ledger(user_ledger_place()).path == home / "data" / "dpsweep" / "ledger.sqlite"
