"""Ledgers that were cut, lost, replaced or made anew are found, by sums, by receipts and by this machine's memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dpsweep.accounting.chain.hash_chain import End
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.remembered_ends import Memory, RememberedEnd
from tests.accounting import accounts
from tests.accounting.accounts import BUDGET, charge, start
from tests.accounting.losses import memory_of
from tests.databases import Place, Server

ledger = accounts.ledger


@pytest.mark.parametrize("seq", [2, 4])
@pytest.mark.parametrize("edit", ["'\"1.0\"', '\"0.1\"'", "'\"closed\": false', '\"closed\": true'"])
def test_a_chain_made_anew_with_another_balance_is_found(place: Place, edit: str, seq: int) -> None:
    """Whoever computes the hashes again must also add up."""
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    charge(ledger)
    start(ledger, "a", "b")
    charge(ledger, plan="q")
    place.tamper(f"UPDATE entries SET balance = replace(balance, {edit}) WHERE seq = {seq}")
    _sign_again(place)
    with pytest.raises(LedgerDamaged, match=rf"balance in entry {seq} .* does not follow"):
        ledger.verify_and_count_entries()


def test_an_account_that_was_never_opened_is_found(place: Place) -> None:
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    charge(ledger)
    place.tamper("UPDATE entries SET account = 'another' WHERE seq = 2")
    _sign_again(place)
    with pytest.raises(LedgerDamaged, match=r"Entry 2 .* does not follow"):
        ledger.verify_and_count_entries()


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


Loss = Callable[[Place, Ledger], None]


def _cut(place: Place, ledger: Ledger) -> None:
    place.tamper("DELETE FROM entries WHERE seq > 2")


def _empty(place: Place, ledger: Ledger) -> None:
    place.tamper("DELETE FROM entries")


def _drop(place: Place, ledger: Ledger) -> None:
    if ledger.path is None:
        place.run("DROP TABLE entries", "DROP TABLE schema")
    else:
        shutil.rmtree(ledger.path.parent)


@pytest.mark.parametrize("loss", [_cut, _empty, _drop])
def test_a_ledger_that_was_cut_lost_or_replaced_is_not_opened_anew(place: Place, ledger: Ledger, loss: Loss) -> None:
    charge(ledger)
    charge(ledger, plan="q")
    assert ledger.verify_and_count_entries() == 3
    loss(place, ledger)
    again = Ledger(place.address)
    for work in (
        again.verify_and_count_entries,
        lambda: again.open_account_or_check_neighbours("digits", BUDGET),
        lambda: again.open_account("new", BUDGET),
    ):
        with pytest.raises(LedgerDamaged, match="this machine remembers: it was cut short, or another one was") as said:
            work()
    for path in str(said.value).rpartition("delete ")[2].rstrip(".").split(" and "):
        Path(path).unlink()
    again.open_account_or_check_neighbours("digits", BUDGET)
    assert again.verify_and_count_entries() in (1, 2), "forgotten on purpose"


def test_another_ledger_as_long_is_found_by_a_receipt_and_by_this_machine(tmp_path: Path) -> None:
    ledgers = [Ledger(tmp_path / name / "ledger.sqlite") for name in ("one", "two")]
    for ledger in ledgers:
        ledger.open_account("digits", BUDGET)
        for _ in range(3):
            charge(ledger, plan=ledger.name)
    ledgers[0].verify_and_count_entries()
    end = ledgers[0].chain_end()
    with pytest.raises(LedgerDamaged, match="has others than the first 4 that a receipt remembers"):
        ledgers[1].verify_and_count_entries(
            [End(entries=1, head=ledgers[1].statement("digits").entries[0].digest), end]
        )
    shutil.copy(tmp_path / "two" / "ledger.sqlite", tmp_path / "one" / "ledger.sqlite")
    with pytest.raises(LedgerDamaged, match="has others than the first 4 that this machine remembers"):
        ledgers[0].verify_and_count_entries()


def test_a_receipt_from_a_longer_ledger_is_found(ledger: Ledger) -> None:
    with pytest.raises(LedgerDamaged, match="has 1 entries and not the 2 that a receipt remembers"):
        ledger.verify_and_count_entries([End(entries=2, head="0" * 64)])
    assert ledger.verify_and_count_entries([End(), ledger.chain_end()]) == 1


def test_what_this_machine_remembers_only_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remembered = RememberedEnd(identity="a" * 32, place="somewhere")
    assert remembered.read() == Memory()

    def remember(count: int) -> None:
        remembered.check_writable_and_count_known_entries(Memory())
        remembered.remember_later_end(Memory(), Memory(end=End(entries=count, head=f"{count:064x}"), balances={}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, [3, 9, 1, 27, 2, 8, 20, 5]))
    assert remembered.read() == Memory(end=End(entries=27, head=f"{27:064x}"), balances={})
    assert remembered.path.stat().st_mode & 0o777 == 0o600
    assert RememberedEnd(identity="b" * 32, place="somewhere").read() == Memory()


def test_a_damaged_or_impossible_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_account("digits", BUDGET)
    ledger.verify_and_count_entries()
    path = memory_of(ledger).path
    path.write_text("{")
    with pytest.raises(LedgerDamaged, match=rf"delete {path}\.$"):
        ledger.verify_and_count_entries()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerDamaged, match=r"cannot be remembered in .*: Not a directory; XDG_STATE_HOME"):
        ledger.verify_and_count_entries()


def test_two_ledgers_of_one_database_are_not_taken_for_one_another(server: Server) -> None:
    for _ in range(2):
        ledger = Ledger(server.place().address)
        ledger.open_account("digits", BUDGET)
        assert ledger.verify_and_count_entries() == 1
