"""The store's promises: lines are only ever added, and what was altered, cut or lost is said."""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsweep.accounting.chain import hash_chain, sqlite_file
from dpsweep.accounting.chain.hash_chain import Chain
from dpsweep.accounting.chain.sqlite_file import SqliteFile
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.accounting.books import BUDGET, charge, charged
from tests.databases import Place, Server, in_file


def copied(seq: str) -> str:
    """Puts lines in once more, under another number."""
    rest = "account, kind, plan, body, balance, who, at, previous, digest"
    return f"INSERT INTO entries SELECT {seq}, {rest} FROM entries"


@pytest.mark.parametrize(
    "statement", ["UPDATE entries SET body = '{}'", "DELETE FROM entries", copied("seq + 7"), copied("0")]
)
def test_the_database_itself_refuses_all_but_one_more_line(books: Ledger, place: Place, statement: str) -> None:
    with pytest.raises(Exception, match="append-only"):
        place.run(statement)
    assert verify_entries(books.chain) == 1


def test_sqlite_flushes_every_commit(file: Ledger) -> None:
    assert file.path is not None
    with Chain(file.path).database.open_session() as session:
        assert session.run("PRAGMA journal_mode")[0]["journal_mode"] == "wal"
        assert session.run("PRAGMA synchronous")[0]["synchronous"] == 2
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_sqlite_refuses_what_replaces_a_line_without_deleting_it(file: Ledger) -> None:
    assert file.path is not None
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        in_file(file.path).run("INSERT OR REPLACE INTO entries SELECT * FROM entries")


def test_postgresql_refuses_to_truncate(server: Server) -> None:
    place = server.place()
    Ledger(place.address).open_account("digits", BUDGET)
    with pytest.raises(Exception, match="append-only"):
        place.run("TRUNCATE entries")


EDITS = [
    (["UPDATE entries SET body = replace(body, '1.0', '0.1') WHERE seq = 2"], 2),
    (["UPDATE entries SET balance = replace(balance, '1.0', '0.5') WHERE seq = 2"], 2),
    (["UPDATE entries SET account = 'another' WHERE seq = 3"], 3),
    (["UPDATE entries SET at = 'earlier' WHERE seq = 3"], 3),
    (["UPDATE entries SET who = 'somebody else' WHERE seq = 3"], 3),
    (["UPDATE entries SET previous = digest WHERE seq = 4"], 4),
    (["DELETE FROM entries WHERE seq = 2"], 2),
    (["UPDATE entries SET seq = 9 WHERE seq = 2"], 2),
    (["UPDATE entries SET seq = -seq WHERE seq IN (2, 3)", "UPDATE entries SET seq = 5 + seq WHERE seq < 0"], 2),
    ([copied("5") + " WHERE seq = 4"], 5),
    ([copied("0") + " WHERE seq = 1"], 1),
    ([copied("-5") + " WHERE seq = 1"], 1),
]


@pytest.mark.parametrize(("edits", "first"), EDITS)
def test_every_inner_change_is_found_and_named(books: Ledger, place: Place, edits: list[str], first: int) -> None:
    for number in range(3):
        charge(books, plan=f"p{number}")
    assert verify_entries(books.chain) == 4
    place.tamper(*edits)
    with pytest.raises(LedgerDamaged, match=f"Entry {first} "):
        verify_entries(books.chain)


def test_an_altered_line_is_never_read_as_whole_and_nothing_is_charged_on_it(books: Ledger, place: Place) -> None:
    """The account's own balance, and not only the end of the chain: another account was charged since."""
    charge(books)
    books.open_account("other", BUDGET)
    place.tamper("UPDATE entries SET balance = replace(balance, '1.0', '0.5') WHERE seq = 2")
    for work in (lambda: charge(books), lambda: books.statement("digits")):
        with pytest.raises(LedgerDamaged, match="Entry 2 "):
            work()
    place.tamper("UPDATE entries SET account = 'others' WHERE seq = 3")
    with pytest.raises(LedgerDamaged, match="Entry 3 "):
        books.open_account("third", BUDGET)


def test_an_unknown_schema_is_refused_and_left_alone(books: Ledger, place: Place) -> None:
    known = hash_chain.SCHEMA
    place.run(f"UPDATE schema SET version = {known + 1}")
    works = (
        books.account_names,
        partial(verify_entries, books.chain),
        lambda: charge(books),
        lambda: books.open_account("new", BUDGET),
    )
    for work in works:
        with pytest.raises(LedgerDamaged, match=f"schema={known + 1} to be {known}: another version"):
            work()
    place.run(f"UPDATE schema SET version = {known}")
    assert verify_entries(books.chain) == 1


def test_order_is_that_of_the_lines_also_when_the_clock_goes_back(
    books: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime(1999, 12, 31, tzinfo=UTC)

    charge(books, "p0")
    monkeypatch.setattr(hash_chain, "datetime", Earlier)
    charge(books, "p1")
    entries = books.statement("digits").charges
    assert [entry.plan for entry in entries] == ["p0", "p1"]
    assert entries[1].at == "1999-12-31T00:00:00+00:00" < entries[0].at
    assert verify_entries(books.chain) == 3


def test_looking_makes_nothing(place: Place, tmp_path: Path) -> None:
    ledger = Ledger(place.address)
    assert (ledger.account_names(), verify_entries(ledger.chain)) == ((), 0)
    with pytest.raises(BadInput, match="to be open"):
        ledger.statement("digits")
    with pytest.raises(BadInput, match="to be open"):
        charge(ledger)
    assert not (tmp_path / "books").exists()
    with pytest.raises(Exception, match=r"entries|unable to open"):
        place.run("SELECT * FROM entries")


def test_a_full_database_charges_nothing_more_and_keeps_all(file: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SqliteFile.connect

    def filled(place: SqliteFile, mode: str) -> sqlite3.Connection:
        connection = connect(place, mode)
        connection.execute("PRAGMA max_page_count=60").close()
        return connection

    assert file.path is not None
    full = Ledger(file.path)
    known = set()
    with monkeypatch.context() as patch, pytest.raises(LedgerDamaged, match="full"):
        patch.setattr(SqliteFile, "connect", filled)
        for _ in range(1000):
            known.add(charge(full, record={"padding": "x" * 1000}))
    assert known == charged(file)
    assert verify_entries(file.chain) == len(known) + 1
    assert charge(file) == len(known) + 2, "and goes on where there is room again"


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_truncated_file_is_said(file: Ledger, share: float) -> None:
    assert file.path is not None
    for number in range(60):
        charge(file, plan=f"p{number}", record={"padding": "x" * 500})
    os.truncate(file.path, int(file.path.stat().st_size * share))
    for work in (partial(verify_entries, file.chain), lambda: charge(file)):
        with pytest.raises(LedgerDamaged, match=r"ledger\.sqlite"):
            work()


def test_files_that_are_no_ledger_are_refused_and_left_alone(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(b"not a database at all" * 100)
    (tmp_path / "folder").mkdir()
    for path in (noise, tmp_path / "folder", noise / "below"):
        with pytest.raises((BadInput, LedgerDamaged), match=path.name):
            Ledger(path).open_account("digits", BUDGET)
    assert noise.read_bytes() == b"not a database at all" * 100


def test_waiting_for_another_writer_has_an_end(books: Ledger, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "LOCK_SECONDS", 0.2)
    with Chain(place.address).write_transaction():
        with pytest.raises(LedgerDamaged, match="lock"):
            charge(books)
        assert verify_entries(books.chain) == 1, "readers do not wait"
    assert charge(books) == 2


def test_a_ledger_that_is_moved_by_a_link_keeps_its_lines(file: Ledger, tmp_path: Path) -> None:
    """Names are quoted: a file may be called anything."""
    assert file.path is not None
    odd = tmp_path / "50% of? #my books"
    odd.mkdir()
    (odd / "ledger & more.sqlite").symlink_to(file.path)
    assert charge(Ledger(odd / "ledger & more.sqlite")) == 2
    assert verify_entries(file.chain) == 2
    assert [path.name for path in odd.iterdir()] == ["ledger & more.sqlite"]


def test_a_line_that_this_process_has_read_before_is_checked_again_once_it_is_altered(
    books: Ledger, place: Place
) -> None:
    """What is kept of a line that was read belongs to all of its columns: with any other value it is another line."""
    charge(books)
    whole = [books.statement("digits") for _ in range(2)]
    assert whole[0] == whole[1]
    place.tamper("UPDATE entries SET who = who || '!' WHERE seq = 2")
    with pytest.raises(LedgerDamaged, match="Entry 2 "):
        books.statement("digits")
    place.run("UPDATE entries SET who = replace(who, '!', '') WHERE seq = 2")
    assert books.statement("digits") == whole[0]
