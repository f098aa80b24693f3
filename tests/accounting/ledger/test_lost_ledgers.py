"""Ledgers that were made anew are found, by sums and by receipts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.accounting import accounts
from tests.accounting.accounts import BUDGET, charge, start
from tests.databases import Place, Server

ledger = accounts.ledger


@pytest.mark.parametrize("seq", [2, 4])
@pytest.mark.parametrize("edit", ["'\"1.0\"', '\"0.1\"'", "'\"closed\": false', '\"closed\": true'"])
def test_a_chain_made_anew_with_another_balance_is_found(place: Place, tmp_path: Path, edit: str, seq: int) -> None:
    """Whoever computes the hashes again must also add up, even where there is no mirror."""
    ledger = Ledger(place.address, home=tmp_path)
    ledger.open_account("digits", BUDGET)
    charge(ledger)
    start(ledger, "a", "b")
    charge(ledger, plan="q")
    place.tamper(f"UPDATE entries SET balance = replace(balance, {edit}) WHERE seq = {seq}")
    _sign_again(place)
    with pytest.raises(LedgerDamaged, match=rf"balance in entry {seq} .* does not follow"):
        verify_entries(ledger.chain)


def test_an_account_that_was_never_opened_is_found(place: Place, tmp_path: Path) -> None:
    ledger = Ledger(place.address, home=tmp_path)
    ledger.open_account("digits", BUDGET)
    charge(ledger)
    place.tamper("UPDATE entries SET account = 'another' WHERE seq = 2")
    _sign_again(place)
    with pytest.raises(LedgerDamaged, match=r"Entry 2 .* does not follow"):
        verify_entries(ledger.chain)


def _sign_again(place: Place) -> None:
    from dpsweep.accounting.chain.hash_chain import digest_of_row

    columns = ("seq", "account", "kind", "plan", "body", "balance", "who", "at")
    with closing(place.connect()) as connection:
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM entries ORDER BY seq").fetchall()
        ((previous,),) = connection.execute("SELECT previous FROM entries WHERE seq = 1").fetchall()
        for values in rows:
            row = dict(zip(columns, values, strict=True)) | {"previous": previous}
            previous = digest_of_row(row)
            connection.execute(
                f"UPDATE entries SET previous = '{row['previous']}', digest = '{previous}' WHERE seq = {row['seq']}"
            )
        connection.commit()


def test_another_ledger_as_long_is_found_by_a_receipt(tmp_path: Path) -> None:
    ledgers = [Ledger(tmp_path / name / "ledger.sqlite") for name in ("one", "two")]
    for ledger in ledgers:
        ledger.open_account("digits", BUDGET)
        for _ in range(3):
            charge(ledger, plan=ledger.name)
    first, *_, last = (End(entries=entry.seq, head=entry.digest) for entry in ledgers[1].statement("digits").entries)
    assert verify_entries(ledgers[1].chain, [first, last]) == 4
    with pytest.raises(LedgerDamaged, match="does not have entry 1 as a receipt remembers it"):
        verify_entries(ledgers[0].chain, [first, last])


def test_a_receipt_from_a_longer_ledger_is_found(ledger: Ledger) -> None:
    with pytest.raises(LedgerDamaged, match="does not have entry 9 as a receipt remembers it"):
        verify_entries(ledger.chain, [End(entries=9, head="0" * 64)])
    assert verify_entries(ledger.chain, [End()])


def test_two_ledgers_of_one_database_are_not_taken_for_one_another(server: Server) -> None:
    for _ in range(2):
        ledger = Ledger(server.place().address)
        ledger.open_account("digits", BUDGET)
        assert verify_entries(ledger.chain) == 1
