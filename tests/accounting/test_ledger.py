"""The ledger's promises: charges never fall, nobody overspends, edits are refused and found."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from accounting.errors import BadInput, BudgetRefused, ContractBroken, LedgerDamaged
from accounting.guarantee import Adjacency, Guarantee
from accounting.ledger import Ledger

BUDGET = Guarantee(epsilon=10.0, delta=1e-4)
ONE = Guarantee(epsilon=1.0, delta=1e-5)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open("digits", BUDGET)
    return ledger


def charge(ledger: Ledger, plan: str = "p", trials: tuple[str, ...] = ("a", "b"), cost: Guarantee = ONE) -> None:
    ledger.charge("digits", plan=plan, trials=trials, cost=cost, record={"reason": "plan"})


def test_charges_add_up_to_the_budget_exactly_and_not_beyond(ledger: Ledger) -> None:
    """Ten times 1e-5 is 1e-4: as floats it is not."""
    for number in range(10):
        charge(ledger, plan=f"p{number}")
    assert ledger.statement("digits").left == (0.0, 0.0)
    assert ledger.statement("digits").reserved == (10.0, 1e-4)
    with pytest.raises(BudgetRefused, match=r"epsilon=0.001 .* 0 of 10"):
        charge(ledger, plan="more", cost=Guarantee(epsilon=0.001, delta=0.0))
    assert len(ledger.statement("digits").charges) == 10


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
    assert ledger.statement("digits").reserved == (0.0, 0.0)


def test_other_neighbours_are_not_charged_on_this_account(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="replace_one"):
        charge(ledger, cost=Guarantee(epsilon=1.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE))


def test_the_neighbours_of_an_account_are_fixed_when_it_is_opened(ledger: Ledger) -> None:
    """One sentence, no advice to raise a budget that could not help."""
    for budget in (
        Guarantee(epsilon=10.0, delta=1e-4, adjacency=Adjacency.REPLACE_ONE),
        Guarantee(epsilon=50.0, delta=1e-4, unit="patient"),
    ):
        for request in (ledger.open, ledger.raise_budget):
            with pytest.raises(BadInput, match="different neighbours do not add up") as refusal:
                request("digits", budget)
            assert "raise" not in str(refusal.value)
    assert ledger.statement("digits").budget == BUDGET


def test_an_attempt_needs_a_charge_that_no_earlier_attempt_used(ledger: Ledger) -> None:
    with pytest.raises(ContractBroken, match="covered by no charge"):
        ledger.start("digits", plan="p", trials=["a"])
    charge(ledger)
    (receipt,) = ledger.start("digits", plan="p", trials=["a"])
    assert (receipt.plan, receipt.trial, receipt.attempt) == ("p", "a", 1)
    with pytest.raises(ContractBroken, match="Attempt 2 at trial a"):
        ledger.start("digits", plan="p", trials=["a"])
    charge(ledger, trials=("a",))
    assert ledger.start("digits", plan="p", trials=["a"])[0].attempt == 2


def test_starting_several_attempts_is_all_or_nothing(ledger: Ledger) -> None:
    charge(ledger, trials=("a",))
    with pytest.raises(ContractBroken):
        ledger.start("digits", plan="p", trials=["a", "uncharged"])
    assert ledger.statement("digits").started("p", "a") == 0


def test_settling_never_refunds(ledger: Ledger) -> None:
    charge(ledger)
    before = ledger.statement("digits").reserved
    ledger.start("digits", plan="p", trials=["a"])
    for status in ("killed", "finished", "failed"):
        ledger.settle("digits", plan="p", trial="a", attempt=1, realised={"status": status})
    statement = ledger.statement("digits")
    assert statement.reserved == before
    assert [entry.body["status"] for entry in statement.entries if entry.kind == "settle"] == ["killed"]


def test_reopening_checks_the_budget_and_says_how_to_raise_it(ledger: Ledger) -> None:
    assert ledger.open("digits", BUDGET).budget == BUDGET
    higher = Guarantee(epsilon=12.0, delta=1e-4)
    with pytest.raises(BadInput, match=r"dpsweep budget raise dataset=digits budget\.epsilon=12"):
        ledger.open("digits", higher)
    assert ledger.raise_budget("digits", higher).budget == higher
    assert ledger.open("digits", higher).budget == higher
    assert ledger.open("digits", BUDGET).budget == higher, "a value once recorded is no news"
    with pytest.raises(BadInput, match="to be higher"):
        ledger.raise_budget("digits", BUDGET)
    with pytest.raises(BadInput, match="to be open"):
        ledger.raise_budget("nosuch", higher)
    with pytest.raises(BadInput, match="to be open"):
        ledger.statement("nosuch")


def test_accounts_are_apart(ledger: Ledger) -> None:
    ledger.open("other", BUDGET)
    charge(ledger)
    assert ledger.accounts() == ("digits", "other")
    assert ledger.statement("other").reserved == (0.0, 0.0)


@pytest.mark.parametrize("verb", ["UPDATE entries SET body = '{}'", "DELETE FROM entries"])
def test_the_database_itself_refuses_edits(ledger: Ledger, verb: str) -> None:
    with (
        sqlite3.connect(ledger.path) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(verb)


@pytest.mark.parametrize(
    ("edit", "first"),
    [
        ("UPDATE entries SET body = replace(body, '1.0', '0.1') WHERE seq = 2", 2),
        ("UPDATE entries SET at = 'earlier' WHERE seq = 3", 3),
        ("DELETE FROM entries WHERE seq = 2", 2),
        ("UPDATE entries SET seq = CASE seq WHEN 2 THEN -1 ELSE seq END", 1),
    ],
)
def test_inner_changes_are_found_and_named(ledger: Ledger, edit: str, first: int) -> None:
    for number in range(3):
        charge(ledger, plan=f"p{number}")
    assert ledger.verify() == 4
    connection = sqlite3.connect(ledger.path)
    for trigger in ("entries_refuse_update", "entries_refuse_delete"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(edit)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match=f"Entry {first} "):
        ledger.verify()


def test_files_that_are_no_ledger_and_other_versions_are_refused(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "noise").write_bytes(b"not a database at all" * 100)
    with pytest.raises(LedgerDamaged, match="noise"):
        Ledger(tmp_path / "noise").accounts()
    connection = sqlite3.connect(ledger.path)
    connection.execute("UPDATE schema SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged, match="schema=99"):
        ledger.accounts()


def _race(path: Path, number: int) -> int:
    try:
        Ledger(path).charge(
            "digits", plan=f"p{number}", trials=["a"], cost=Guarantee(epsilon=6.0, delta=1e-5), record={}
        )
    except BudgetRefused:
        return 0
    return 1


def test_of_eight_processes_racing_for_the_last_slot_one_wins(ledger: Ledger) -> None:
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        won = pool.starmap(_race, [(ledger.path, number) for number in range(8)])
    assert sum(won) == 1
    assert ledger.statement("digits").reserved == (6.0, 1e-5)
    assert ledger.verify() == 2


def test_the_ledger_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSWEEP_LEDGER", str(tmp_path / "mine.sqlite"))
    assert Ledger.locate() == tmp_path / "mine.sqlite"
    monkeypatch.setenv("DPSWEEP_LEDGER", "postgresql://somewhere/books")
    with pytest.raises(BadInput, match="only SQLite"):
        Ledger.locate()
    monkeypatch.delenv("DPSWEEP_LEDGER")
    assert Ledger.locate().name == "ledger.sqlite"
