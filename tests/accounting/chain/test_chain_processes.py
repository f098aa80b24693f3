"""The store among processes: one writer at a time, and what was acknowledged outlives whoever wrote it."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dpsweep.accounting.chain import sqlite_file
from dpsweep.accounting.chain.sqlite_file import SqliteFile
from dpsweep.accounting.errors import BudgetRefused, DpsweepError, LedgerDamaged
from dpsweep.accounting.guarantee import Guarantee
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.ledger.upkeep import verify_entries
from tests.accounting.books import BUDGET, charge, charged, processes
from tests.databases import Place


def _let_go(pipes: list[Connection]) -> None:
    """All at once, when the last one is ready."""
    for pipe in pipes:
        assert pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")


in_a_file_at_least = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)
"""For races of many processes, which take seconds."""


def _race(pipe: Connection, address: str, number: int) -> None:
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(charge(Ledger(address), plan=f"p{number}", cost=Guarantee(epsilon=6e5, delta=1e-9)))
    except BudgetRefused:
        pipe.send(None)


@in_a_file_at_least
def test_of_eight_processes_racing_for_the_last_slot_one_wins(books: Ledger, place: Place) -> None:
    with processes(_race, [(place.address, number) for number in range(8)]) as pipes:
        _let_go(pipes)
        won = [pipe.recv() for pipe in pipes]
    assert sum(seq is not None for seq in won) == 1
    assert reserved_amounts(books.statement("digits")) == (6e5, 1e-9)
    assert verify_entries(books.chain) == 2


def _crowd(pipe: Connection, address: str, number: int) -> None:
    ledger, seen = Ledger(address), 0
    pipe.send("ready")
    pipe.recv()
    ledger.open_account("digits", BUDGET)
    for turn in range(10):
        charge(ledger, plan=f"p{number}-{turn}")
        seen = max(seen, verify_entries(ledger.chain))
    pipe.send(seen)


def test_a_crowd_that_opens_charges_and_verifies_at_once_takes_turns(place: Place) -> None:
    """The file or the tables are made once, and no transaction fails to serialize."""
    with processes(_crowd, [(place.address, number) for number in range(6)]) as pipes:
        _let_go(pipes)
        seen = [pipe.recv() for pipe in pipes]
    assert max(seen) == verify_entries(Ledger(place.address).chain) == 61
    assert charged(Ledger(place.address)) == set(range(2, 62))


def _charge_on(pipe: Connection, address: str) -> None:
    ledger = Ledger(address)
    while True:
        pipe.send(charge(ledger))


def _killed_at_random(place: Place, rounds: int) -> None:
    """A writer is killed; what it was told is there, and at most the one line that it was not told of besides."""
    ledger, moments = Ledger(place.address), random.Random(rounds)
    ledger.open_account("digits", BUDGET)
    told: set[int] = set()
    for _ in range(rounds):
        with processes(_charge_on, [(place.address,)]) as (pipe,):
            told |= {pipe.recv() for _ in range(moments.randint(1, 3))}
            time.sleep(moments.uniform(0, 0.01))
        with suppress(EOFError):
            while True:
                told.add(pipe.recv())
        found = charged(ledger)
        assert told <= found
        assert verify_entries(ledger.chain) >= len(found) + 1
    assert len(charged(ledger) - told) <= rounds


@in_a_file_at_least
def test_a_killed_writer_leaves_a_whole_ledger_with_all_that_was_acknowledged(place: Place) -> None:
    _killed_at_random(place, 20)


@pytest.mark.long
def test_two_hundred_killed_writers_leave_a_whole_ledger(place: Place) -> None:
    _killed_at_random(place, 200)


def _fill_disk(pipe: Connection, address: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    ledger = Ledger(address)
    try:
        for _ in range(1000):
            pipe.send(charge(ledger, record={"padding": "x" * 1000}))
    except LedgerDamaged as refusal:
        pipe.send(str(refusal))


def test_a_full_disk_charges_nothing_more_and_keeps_all(file: Ledger) -> None:
    known: set[int] = set()
    with processes(_fill_disk, [(str(file.path),)]) as (pipe,):
        while isinstance(told := pipe.recv(), int):
            known.add(told)
    assert "cannot be written or read: disk I/O error" in told
    assert len(known) > 10
    assert charged(file) >= known
    assert len(charged(file) - known) <= 1
    assert verify_entries(file.chain) == len(charged(file)) + 1
    charge(file)


def _work_unprivileged(pipe: Connection, address: str) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for work in (
        lambda: charge(Ledger(address)),
        lambda: Ledger(address).open_account("new", BUDGET),
    ):
        try:
            pipe.send(work())
        except DpsweepError as refusal:
            pipe.send(refusal)


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o755, 0o444), (0o555, 0o644), (0o000, 0o644)])
def test_what_cannot_be_written_is_one_sentence_and_nothing_is_charged(folder_mode: int, file_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "books", "ledger.sqlite")
        ledger = Ledger(path)
        ledger.open_account("digits", BUDGET)
        path.chmod(file_mode)
        path.parent.chmod(folder_mode)
        with processes(_work_unprivileged, [(str(path),)]) as (pipe,):
            told = [pipe.recv(), pipe.recv()]
        path.parent.chmod(0o755)
        assert all(isinstance(refusal, LedgerDamaged) for refusal in told), told
        assert all(len(str(refusal).splitlines()) == 1 and str(path) in str(refusal) for refusal in told)
        assert verify_entries(ledger.chain) == 1


def test_a_file_that_is_busy_while_it_is_made_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that change its journal's mode at once, one is told that it is locked before its timeout."""
    ledger, pauses = Ledger(tmp_path / "ledger.sqlite"), []

    connect = SqliteFile.connect

    def at_once(file: SqliteFile, mode: str) -> sqlite3.Connection:
        connection = connect(file, mode)
        connection.execute("PRAGMA busy_timeout=0").close()
        return connection

    monkeypatch.setattr(SqliteFile, "connect", at_once)
    with closing(_read(tmp_path / "ledger.sqlite")) as reader:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                reader.rollback()

        monkeypatch.setattr(sqlite_file.time, "sleep", pause)
        ledger.open_account("digits", BUDGET)
    assert len(pauses) == 3
    assert verify_entries(ledger.chain) == 1


def test_waiting_for_a_file_that_is_busy_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "LOCK_SECONDS", 0.05)
    with (
        closing(_read(tmp_path / "ledger.sqlite")),
        pytest.raises(LedgerDamaged, match="in use by another process, and is whole: database is locked"),
    ):
        Ledger(tmp_path / "ledger.sqlite").open_account("digits", BUDGET)


def _read(path: Path) -> sqlite3.Connection:
    """A connection in the middle of reading the file, which is empty and has no write-ahead log."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN").close()
    connection.execute("SELECT * FROM sqlite_master").fetchall()
    return connection
