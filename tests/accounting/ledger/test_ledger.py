"""The ledger's promises: charges never fall, nobody overspends, and a new name is no new budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import BadInput, BudgetRefused, ContractBroken
from dpsweep.accounting.events.build import PlanEvent, gaussian
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.ledger.bodies import Ended
from dpsweep.accounting.ledger.composition_policy import RenyiFilter
from dpsweep.accounting.ledger.data_fingerprint import Content, Fingerprint, Key
from dpsweep.accounting.ledger.ledger import Ledger
from tests.accounting import accounts
from tests.accounting.accounts import BUDGET, ONE, charge, start
from tests.charges import charge_event, start_attempts
from tests.databases import Place

ledger = accounts.ledger


def test_charges_add_up_to_the_budget_exactly_and_not_beyond(ledger: Ledger) -> None:
    """Ten times 1e-5 is 1e-4: as floats it is not."""
    for number in range(10):
        charge(ledger, plan=f"p{number}")
    assert ledger.statement("digits").remaining_epsilon_and_delta == (0.0, 0.0)
    assert ledger.statement("digits").reserved_epsilon_and_delta == (10.0, 1e-4)
    with pytest.raises(BudgetRefused, match=r"epsilon 0\.00100 .* epsilon 0 of 10 and delta 0 of 0\.0001 are left"):
        charge(ledger, plan="more", cost=Guarantee(epsilon=0.001, delta=0.0))
    assert len(ledger.statement("digits").charges) == 10
    assert ledger.verify_and_count_entries() == 11


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
    assert ledger.statement("digits").reserved_epsilon_and_delta == (0.0, 0.0)


def test_the_record_beside_a_charge_says_nothing_else_about_its_cost(ledger: Ledger) -> None:
    charge(ledger)
    (entry,) = ledger.statement("digits").charges
    assert (entry.body["epsilon"], entry.body["takes"]) == (1.0, {"epsilon": 1.0, "delta": 1e-5})


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
            lambda other=other: ledger.open_account_or_check_neighbours("digits", other),
            lambda other=other: ledger.open_account_or_check_budget("digits", other),
            lambda other=other: ledger.raise_budget("digits", other),
            lambda other=other: ledger.record_outside_cost("digits", other, "a count"),
        ):
            with pytest.raises(BadInput, match="different neighbours do not add up") as refused:
                request()
            assert "raise" not in str(refused.value)
    assert ledger.verify_and_count_entries() == 1


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
    assert ledger.statement("digits").number_of_started_attempts("p", "a") == 0


def test_a_receipt_says_where_the_chain_ended_at_its_start(ledger: Ledger) -> None:
    charge(ledger)
    first, second = start_attempts(ledger, "digits", plan="p", trials=["a", "b"])
    assert (first.entries, second.entries) == (3, 4)
    assert [entry.digest for entry in ledger.statement("digits").entries][3:] == [second.head]
    assert ledger.verify_and_count_entries([End(entries=3, head=first.head)]) == 4


def test_spare_attempts_go_to_whichever_trial_needs_them_and_are_counted(ledger: Ledger) -> None:
    bought = charge(ledger, spares=2)
    start(ledger, "a", "b")
    assert start(ledger, "b", "a") == [("b", 2, bought), ("a", 2, bought)]
    assert ledger.statement("digits", "p").attempts_of_plan("p").number_of_spare_attempts == 0
    for trial in ("a", "b", "uncharged"):
        with pytest.raises(ContractBroken, match="covered by no charge"):
            start(ledger, trial)


def test_an_attempt_keeps_the_charge_that_it_was_started_on(ledger: Ledger) -> None:
    """Also where a later charge covers its trial once more: a checkpoint belongs to one charge."""
    first = charge(ledger, spares=1)
    start(ledger, "a", "a")
    charge(ledger, trials=("a",))
    (receipt,) = ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"])
    assert (receipt.attempt, receipt.resume, receipt.charge) == (2, 1, first)
    start(ledger, "a")
    with pytest.raises(ContractBroken):
        start(ledger, "a")


def test_going_on_costs_nothing_and_needs_a_start(ledger: Ledger) -> None:
    first = charge(ledger)
    with pytest.raises(ContractBroken, match="never started"):
        ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"])
    start(ledger, "a")
    before = ledger.statement("digits").reserved_epsilon_and_delta
    receipts = ledger.record_resumes_and_return_receipts(
        "digits", plan="p", trials=["a"]
    ) + ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a", "a"])
    assert [(one.attempt, one.resume, one.charge) for one in receipts] == [(1, 1, first), (1, 2, first), (1, 3, first)]
    assert ledger.statement("digits").reserved_epsilon_and_delta == before
    assert ledger.statement("digits").number_of_started_attempts("p", "a") == 1


def test_an_attempt_that_has_ended_does_not_resume(ledger: Ledger) -> None:
    charge(ledger)
    start(ledger, "a")
    for resume, status in enumerate(("interrupted", "finished")):
        ended = Ended(trial="a", attempt=1, resume=resume, realised={"status": status})
        if resume:
            ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"])
        ledger.record_ended_attempts("digits", plan="p", ended=[ended])
    with pytest.raises(ContractBroken, match="Attempt 1 at trial a has ended"):
        ledger.record_resumes_and_return_receipts("digits", plan="p", trials=["a"])


def test_settling_never_refunds_and_is_written_once(ledger: Ledger) -> None:
    charge(ledger)
    before = ledger.statement("digits").reserved_epsilon_and_delta
    start(ledger, "a")
    for status in ("killed", "finished", "failed"):
        ended = Ended(trial="a", attempt=1, resume=0, realised={"status": status, "attempt": 7})
        ledger.record_ended_attempts("digits", plan="p", ended=[ended, ended])
    statement = ledger.statement("digits")
    assert statement.reserved_epsilon_and_delta == before
    settled = [(entry.body["status"], entry.body["attempt"]) for entry in statement.entries if entry.kind == "settle"]
    assert settled == [("killed", 1)]
    assert statement.attempts_of_plan("p").last_sessions_without_recorded_end() == ()
    with pytest.raises(ContractBroken, match="without having started"):
        ledger.record_ended_attempts("digits", plan="p", ended=[Ended(trial="b", attempt=1, resume=0, realised={})])


def test_reopening_checks_the_budget_and_says_how_to_raise_it(ledger: Ledger) -> None:
    assert ledger.open_account_or_check_budget("digits", BUDGET).budget == BUDGET
    with pytest.raises(BadInput, match=r"to be new; it is open with epsilon 10"):
        ledger.open_account("digits", BUDGET)
    higher = Guarantee(epsilon=12.0, delta=1e-4)
    with pytest.raises(BadInput, match=r"dpsweep budget raise dataset=digits budget\.epsilon=12"):
        ledger.open_account_or_check_budget("digits", higher)
    assert ledger.open_account_or_check_neighbours("digits", higher).budget == BUDGET
    assert ledger.raise_budget("digits", higher).budget == higher
    assert ledger.open_account_or_check_budget("digits", higher).budget == higher
    assert ledger.open_account_or_check_budget("digits", BUDGET).budget == higher, "a value once recorded is no news"
    for no_higher in (BUDGET, higher, Guarantee(epsilon=20.0, delta=1e-5)):
        with pytest.raises(BadInput, match="already, and is never lowered"):
            ledger.raise_budget("digits", no_higher)
    for unknown in (ledger.statement, ledger.close_account):
        with pytest.raises(BadInput, match="to be open"):
            unknown("nosuch")


def test_a_closed_account_finishes_what_was_charged_and_takes_nothing_more(ledger: Ledger) -> None:
    charge(ledger)
    assert ledger.close_account("digits").remaining_epsilon_and_delta == (0.0, 0.0)
    assert start(ledger, "a")
    with pytest.raises(BudgetRefused, match="was closed"):
        charge(ledger, plan="more")
    for request in (lambda: ledger.close_account("digits"), lambda: ledger.raise_budget("digits", BUDGET)):
        with pytest.raises(BadInput, match="closed"):
            request()
    assert ledger.verify_and_count_entries() == 4


def test_what_was_spent_outside_is_never_refused_and_counts(ledger: Ledger) -> None:
    statement = ledger.record_outside_cost("digits", Guarantee(epsilon=12.0, delta=1e-5), "the paper of 2019")
    assert (statement.reserved_epsilon_and_delta, statement.remaining_epsilon_and_delta) == ((12.0, 1e-5), (0.0, 9e-5))
    with pytest.raises(BudgetRefused):
        charge(ledger)
    with pytest.raises(BadInput, match="finite"):
        ledger.record_outside_cost("digits", Guarantee(epsilon=float("inf"), delta=0.0), "all of it")
    assert ledger.verify_and_count_entries() == 2


def test_accounts_are_apart_and_have_names(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    charge(ledger)
    assert ledger.account_names() == ("digits", "other")
    assert ledger.statement("other").reserved_epsilon_and_delta == (0.0, 0.0)
    for name in ("", "a\x00b", "two\nlines", "half \ud800 a sign"):
        with pytest.raises(BadInput, match="to be a name"):
            ledger.open_account(name, BUDGET)


KEY, OTHER_KEY = Key(secret=bytes(32)), Key(secret=bytes(range(32)))


def of(*contents: bytes, key: Key = KEY) -> Fingerprint:
    return key.fingerprint(Content.from_chunks([content]) for content in contents)


def test_data_are_recognised_under_another_name(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    assert ledger.record_data_and_return_message("digits", of(b"one", b"two")) == ""
    assert ledger.record_data_and_return_message("digits", of(b"two", b"one")) == ""
    assert ledger.verify_and_count_entries() == 3, "what is known is not written again"
    for same_or_shared in (of(b"one", b"two"), of(b"two", b"three")):
        with pytest.raises(
            BadInput, match="known as the data of the account digits, and a new name gives no new budget"
        ):
            ledger.record_data_and_return_message("other", same_or_shared)
    assert ledger.record_data_and_return_message("other", of(b"three")) == ""
    assert "not those that were charged before" in ledger.record_data_and_return_message("digits", of(b"one", b"four"))
    with pytest.raises(BadInput, match="known as the data of the account other"):
        ledger.record_data_and_return_message("digits", of(b"one", b"three"))
    assert ledger.verify_and_count_entries() == 5


def test_another_key_is_said_instead_of_every_data_set_looking_new(ledger: Ledger) -> None:
    ledger.open_account("other", BUDGET)
    ledger.record_data_and_return_message("digits", of(b"one"))
    for account in ("digits", "other"):
        with pytest.raises(BadInput, match=r"it is another one\. Put back a copy of it"):
            ledger.record_data_and_return_message(account, of(b"one", key=OTHER_KEY))


FILTER = RenyiFilter(order=8.0, epsilon=6.0, delta=5e-5)
RUN = PlanEvent(training=gaussian(noise_multiplier=2.0))


def test_a_filter_takes_divergences_and_says_which_part_is_short(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET, FILTER)
    limit = float(FILTER.amount_limits(BUDGET)["divergence"])
    for number in range(int(limit)):  # each takes 8 / (2 * 2 * 2) = 1
        charge_event(ledger, "digits", plan=f"p{number}", trials=["a"], event=RUN)
    with pytest.raises(BudgetRefused, match=r"on digits divergence 0\.\d+ of 5\.\d+ are left"):
        charge_event(ledger, "digits", plan="more", trials=["a"], event=RUN)
    statement = ledger.statement("digits")
    assert statement.reserved_epsilon_and_delta[1] == 5e-5
    assert statement.reserved_epsilon_and_delta[0] <= 6
    with pytest.raises(BudgetRefused, match=r"epsilon 4.000 of 4 and delta 5e-5 of 5e-5 are left"):
        charge(ledger, cost=Guarantee(epsilon=4.001, delta=1e-5))
    charge(ledger, cost=Guarantee(epsilon=4.0, delta=1e-5))
    assert "divergence" in statement.charge_refusal_text(ONE, RUN)
    assert ledger.verify_and_count_entries() == int(limit) + 2


def test_a_raise_leaves_the_filter_as_it_was_opened(place: Place) -> None:
    ledger = Ledger(place.address)
    with pytest.raises(BadInput, match="to hold the filter's part"):
        ledger.open_account("digits", Guarantee(epsilon=5.0, delta=1e-4), FILTER)
    ledger.open_account("digits", BUDGET, FILTER)
    before = FILTER.amount_limits(BUDGET)
    balance = ledger.raise_budget("digits", Guarantee(epsilon=20.0, delta=1e-4)).balance
    after = balance.policy.amount_limits(balance.budget)
    assert after["divergence"] == before["divergence"]
    assert after["epsilon"] == before["epsilon"] + 10


def test_the_ledger_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "mine.sqlite"))
    assert Ledger(Ledger.user_ledger_place()).path == tmp_path / "mine.sqlite"
    assert Ledger(Ledger.user_ledger_place()).folder_for_local_files == tmp_path
    monkeypatch.setenv("DPSWEEP_LEDGER", "postgresql://me:hemligt@somewhere/books")
    away = Ledger(Ledger.user_ledger_place())
    assert (away.path, away.name) == (None, "postgresql+psycopg://me:***@somewhere/books")
    assert away.folder_for_local_files == home / "data" / "dpsweep"
    monkeypatch.delenv("DPSWEEP_LEDGER")
    assert Ledger(Ledger.user_ledger_place()).path == home / "data" / "dpsweep" / "ledger.sqlite"
