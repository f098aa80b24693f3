"""The one look at a model without privacy that an account may have, as its ledger knows it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.bodies import Released, ReleaseManifest
from dpsweep.accounting.ledger.ledger import Ledger
from tests.accounting.books import BUDGET, ONE


def charge(ledger: Ledger, plan: str) -> str:
    return ledger.charge_trials_and_return_entry("digits", plan=plan, trials=["a"], cost=ONE, record={}).digest


def release(ledger: Ledger, plan: str, digest: str) -> None:
    manifest = ReleaseManifest(charge=digest, folder="release", manifest="m")
    ledger.record_release("digits", plan=plan, winner=Released(charge=digest, winner="w"), manifest=manifest)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    return ledger


def test_an_account_is_looked_at_once_after_all_its_sweeps_are_released(book: Ledger) -> None:
    first, other = charge(book, "p"), charge(book, "q")
    release(book, "p", first)
    with pytest.raises(BadInput, match=r"Expected every charged sweep on digits to be released .*: q is not"):
        book.record_reference("digits", plan="p", trial="a", by="somebody")
    release(book, "q", other)
    before = book.statement("digits").reserved_epsilon_and_delta
    book.record_reference("digits", plan="p", trial="a", by="somebody")
    assert book.statement("digits").reserved_epsilon_and_delta == before
    with pytest.raises(BadInput, match=r"Expected digits to have no reference yet: .* with the settings of plan p"):
        book.record_reference("digits", plan="q", trial="a", by="somebody")


def test_a_repeat_after_a_release_has_to_be_released_too(book: Ledger) -> None:
    release(book, "p", charge(book, "p"))
    assert book.statement("digits").plans_with_unreleased_charge() == ()
    charge(book, "p")
    assert book.statement("digits").plans_with_unreleased_charge() == ("p",)


def test_plans_that_are_charged_later_know_of_the_look(book: Ledger) -> None:
    release(book, "p", charge(book, "p"))
    book.record_reference("digits", plan="p", trial="a", by="somebody")
    charge(book, "q")
    statement = book.statement("digits")
    assert statement.reference_entry is not None
    assert statement.reference_entry_before_last_charge("p") is None
    assert statement.reference_entry_before_last_charge("q") == statement.reference_entry


def test_a_repeat_after_the_look_may_have_been_chosen_by_it(book: Ledger) -> None:
    release(book, "p", charge(book, "p"))
    book.record_reference("digits", plan="p", trial="a", by="somebody")
    charge(book, "p")
    statement = book.statement("digits")
    assert statement.reference_entry_before_last_charge("p") == statement.reference_entry


def test_public_data_need_no_reference(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("public", Guarantee(epsilon=math.inf, delta=0.5))
    with pytest.raises(BadInput, match="Expected the data of public to be private"):
        ledger.record_reference("public", plan="p", trial="a", by="somebody")
