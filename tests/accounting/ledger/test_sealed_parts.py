"""Sealed parts in the ledger: each is given to one charge, and only if nothing may have read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.book import Charged, body_of_kind, sealed_charges
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.sealed_parts import SealedCharge, SealedParts, number_of_fresh_part
from dpsweep.accounting.ledger.statement import card_part
from dpsweep.accounting.ledger.upkeep import charge_outside
from tests.accounting.books import BUDGET, ONE
from tests.charges import charge_cost

ASKED = SealedCharge(parts=SealedParts(share=0.1, parts=2), records="cut", card=1)
WITHOUT = replace(ASKED, card=None)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    return ledger


def charge(ledger: Ledger, sealed: SealedCharge | None, plan: str = "p") -> int | None:
    entry = charge_cost(ledger, "digits", plan=plan, trials=["a"], cost=ONE, sealed=sealed)
    body = body_of_kind(entry, Charged)
    return None if body.sealed is None else body.sealed.card


def test_each_charge_of_a_card_has_the_next_part(book: Ledger) -> None:
    assert [charge(book, ASKED), charge(book, WITHOUT), charge(book, ASKED, "q")] == [1, None, 2]
    assert card_part(book.statement("digits", "q").attempts_of_plan("q")) == 2
    with pytest.raises(BadInput, match="none is left"):
        charge(book, ASKED, "r")
    assert len(book.statement("digits").charges) == 3, "a refused card charges nothing"
    charge(book, WITHOUT, "r")


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(WITHOUT, records="cut otherwise"),
        replace(WITHOUT, parts=SealedParts(share=0.1, parts=3)),
        replace(WITHOUT, parts=SealedParts(share=0.1, parts=2, public=True)),
    ],
    ids=["without parts", "other records", "other parts", "public"],
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_no_part_is_fresh_once_a_charge_may_have_read_any_unit(
    book: Ledger, other: SealedCharge | None, first: bool
) -> None:
    for sealed in (other, ASKED) if first else (ASKED, other):
        if sealed is ASKED and first:
            with pytest.raises(BadInput, match="none is left"):
                charge(book, sealed)
        else:
            charge(book, sealed)
    with pytest.raises(BadInput, match="none is left"):
        charge(book, ASKED, "q")


def test_no_part_is_fresh_after_a_cost_from_outside(book: Ledger) -> None:
    charge_outside(book, "digits", Guarantee(epsilon=1.0, delta=1e-9), "a study")
    assert sealed_charges(book.statement("digits").entries) == (None,)
    with pytest.raises(BadInput, match="none is left"):
        charge(book, ASKED)


def test_parts_are_counted_over_the_whole_account() -> None:
    one = SealedParts(share=0.1, parts=1)
    assert number_of_fresh_part([replace(ASKED, parts=one)], replace(ASKED, parts=one)) is None
    assert number_of_fresh_part([WITHOUT, ASKED, WITHOUT], ASKED) == 2


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"parts": 0}, {"parts": 1.5}])
def test_parts_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises((ValueError, TypeError)):
        SealedParts(**{"share": 0.1, "parts": 2, **wrong})  # type: ignore[arg-type]
