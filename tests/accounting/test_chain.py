"""The store's promises: lines are only ever added, one writer at a time, and what was acknowledged outlives a crash."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accounting import chain, lines
from accounting.chain import Chain
from accounting.errors import BadInput, BudgetRefused, DpsweepError, LedgerDamaged
from accounting.guarantee import Guarantee
from accounting.ledger import Ledger
from tests.databases import Place, Server, in_file

BUDGET = Guarantee(epsilon=1e6, delta=0.5)
ONE = Guarantee(epsilon=1.0, delta=1e-9)

ALONE = multiprocessing.get_context("forkserver")
ALONE.set_forkserver_preload(["accounting.ledger", "sqlalchemy.dialects.postgresql.psycopg"])


@pytest.fixture
def books(place: Place) -> Ledger:
    ledger = Ledger(place.address)
    ledger.open("digits", BUDGET)
    return ledger


@pytest.fixture
def file(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "books" / "ledger.sqlite")
    ledger.open("digits", BUDGET)
    return ledger


def charge(ledger: Ledger, plan: str = "p", cost: Guarantee = ONE, record: dict[str, Any] | None = None) -> int:
    return ledger.charge("digits", plan=plan, trials=["a"], cost=cost, record=record or {}).seq


def charged(ledger: Ledger) -> set[int]:
    return {entry.seq for entry in ledger.statement("digits").charges}


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
    assert books.verify() == 1


def test_sqlite_flushes_every_commit(file: Ledger) -> None:
    assert file.path is not None
    with Chain(file.path)._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_sqlite_refuses_what_replaces_a_line_without_deleting_it(file: Ledger) -> None:
    assert file.path is not None
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        in_file(file.path).run("INSERT OR REPLACE INTO entries SELECT * FROM entries")


def test_postgresql_refuses_to_truncate(server: Server) -> None:
    place = server.place()
    Ledger(place.address).open("digits", BUDGET)
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
    (["DELETE FROM entries WHERE seq = 1"], 1),
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
    assert books.verify() == 4
    place.tamper(*edits)
    with pytest.raises(LedgerDamaged, match=f"Entry {first} "):
        books.verify()


def test_an_altered_line_is_never_read_as_whole_and_nothing_is_charged_on_it(books: Ledger, place: Place) -> None:
    """The account's own balance, and not only the end of the chain: another account was charged since."""
    charge(books)
    books.open("other", BUDGET)
    place.tamper("UPDATE entries SET balance = replace(balance, '1.0', '0.5') WHERE seq = 2")
    for work in (lambda: charge(books), lambda: books.statement("digits")):
        with pytest.raises(LedgerDamaged, match="Entry 2 "):
            work()
    place.tamper("UPDATE entries SET account = 'others' WHERE seq = 3")
    with pytest.raises(LedgerDamaged, match="Entry 3 "):
        books.open("third", BUDGET)


def test_an_unknown_schema_is_refused_and_left_alone(books: Ledger, place: Place) -> None:
    place.run(f"UPDATE schema SET version = {chain.SCHEMA + 1}")
    works = (books.accounts, books.verify, lambda: charge(books), lambda: books.find("new", BUDGET))
    for work in works:
        with pytest.raises(LedgerDamaged, match=f"schema={chain.SCHEMA + 1} to be {chain.SCHEMA}: .* another version"):
            work()
    place.run(f"UPDATE schema SET version = {chain.SCHEMA}")
    assert books.verify() == 1


def test_order_is_that_of_the_lines_also_when_the_clock_goes_back(
    books: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime(1999, 12, 31, tzinfo=UTC)

    charge(books, "p0")
    monkeypatch.setattr(lines, "datetime", Earlier)
    charge(books, "p1")
    entries = books.statement("digits").charges
    assert [entry.plan for entry in entries] == ["p0", "p1"]
    assert entries[1].at == "1999-12-31T00:00:00+00:00" < entries[0].at
    assert books.verify() == 3


def test_looking_makes_nothing(place: Place, tmp_path: Path) -> None:
    ledger = Ledger(place.address)
    assert (ledger.accounts(), ledger.verify(), ledger.end().entries) == ((), 0, 0)
    with pytest.raises(BadInput, match="to be open"):
        ledger.statement("digits")
    with pytest.raises(BadInput, match="to be open"):
        charge(ledger)
    assert not (tmp_path / "books").exists()
    with pytest.raises(Exception, match=r"entries|unable to open"):
        place.run("SELECT * FROM entries")


@contextmanager
def processes(target: Any, arguments: list[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    """One process for each, begun at once; what each says comes out of its pipe."""
    pipes, running = [], []
    for own in arguments:
        ours, theirs = ALONE.Pipe()
        running.append(ALONE.Process(target=target, args=(theirs, *own)))
        running[-1].start()
        theirs.close()
        pipes.append(ours)
    try:
        yield pipes
    finally:
        for process in running:
            process.kill()
            process.join()


def _let_go(pipes: list[Connection]) -> None:
    """All at once, when the last one is ready."""
    for pipe in pipes:
        assert pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")


def _race(pipe: Connection, address: str, number: int) -> None:
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(charge(Ledger(address), plan=f"p{number}", cost=Guarantee(epsilon=6e5, delta=1e-9)))
    except BudgetRefused:
        pipe.send(None)


def test_of_eight_processes_racing_for_the_last_slot_one_wins(books: Ledger, place: Place) -> None:
    with processes(_race, [(place.address, number) for number in range(8)]) as pipes:
        _let_go(pipes)
        won = [pipe.recv() for pipe in pipes]
    assert sum(seq is not None for seq in won) == 1
    assert books.statement("digits").reserved == (6e5, 1e-9)
    assert books.verify() == 2


def _crowd(pipe: Connection, address: str, number: int) -> None:
    ledger, seen = Ledger(address), 0
    pipe.send("ready")
    pipe.recv()
    ledger.find("digits", BUDGET)
    for turn in range(10):
        charge(ledger, plan=f"p{number}-{turn}")
        seen = max(seen, ledger.verify())
    pipe.send(seen)


def test_a_crowd_that_opens_charges_and_verifies_at_once_takes_turns(place: Place) -> None:
    """The file or the tables are made once, and no transaction fails to serialize."""
    with processes(_crowd, [(place.address, number) for number in range(6)]) as pipes:
        _let_go(pipes)
        seen = [pipe.recv() for pipe in pipes]
    assert max(seen) == Ledger(place.address).verify() == 61
    assert charged(Ledger(place.address)) == set(range(2, 62))


def _charge_on(pipe: Connection, address: str) -> None:
    ledger = Ledger(address)
    while True:
        pipe.send(charge(ledger))


def _killed_at_random(place: Place, rounds: int) -> None:
    """A writer is killed; what it was told is there, and at most the one line that it was not told of besides."""
    ledger, moments = Ledger(place.address), random.Random(rounds)
    ledger.open("digits", BUDGET)
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
        assert ledger.verify() >= len(found) + 1
    assert len(charged(ledger) - told) <= rounds


def test_a_killed_writer_leaves_a_whole_ledger_with_all_that_was_acknowledged(place: Place) -> None:
    _killed_at_random(place, 20)


@pytest.mark.long
def test_two_hundred_killed_writers_leave_a_whole_ledger(place: Place) -> None:
    _killed_at_random(place, 200)


def test_a_full_database_charges_nothing_more_and_keeps_all(file: Ledger) -> None:
    def filled(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count=60").close()

    assert file.path is not None
    full = Ledger(file.path)
    sa.event.listen(full._chain._engine, "connect", filled)
    known = set()
    with pytest.raises(LedgerDamaged, match="full"):
        for _ in range(1000):
            known.add(charge(full, record={"padding": "x" * 1000}))
    assert known == charged(file)
    assert file.verify() == len(known) + 1
    assert charge(file) == len(known) + 2, "and goes on where there is room again"


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
    assert file.verify() == len(charged(file)) + 1
    charge(file)


def _work_unprivileged(pipe: Connection, address: str) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for work in (lambda: charge(Ledger(address)), lambda: Ledger(address).find("new", BUDGET)):
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
        ledger.open("digits", BUDGET)
        path.chmod(file_mode)
        path.parent.chmod(folder_mode)
        with processes(_work_unprivileged, [(str(path),)]) as (pipe,):
            told = [pipe.recv(), pipe.recv()]
        path.parent.chmod(0o755)
        assert all(isinstance(refusal, LedgerDamaged) for refusal in told), told
        assert all(len(str(refusal).splitlines()) == 1 and str(path) in str(refusal) for refusal in told)
        assert ledger.verify() == 1


def test_a_folder_that_vanished_is_said_and_not_made_anew(file: Ledger) -> None:
    assert file.path is not None
    charge(file)
    shutil.rmtree(file.path.parent)
    with pytest.raises(BadInput, match="to be open"):
        charge(file)
    assert not file.path.parent.exists()


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_truncated_file_is_said(file: Ledger, share: float) -> None:
    assert file.path is not None
    for number in range(60):
        charge(file, plan=f"p{number}", record={"padding": "x" * 500})
    os.truncate(file.path, int(file.path.stat().st_size * share))
    for work in (file.verify, lambda: charge(file)):
        with pytest.raises(LedgerDamaged, match=r"ledger\.sqlite"):
            work()


def test_files_that_are_no_ledger_are_refused_and_left_alone(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(b"not a database at all" * 100)
    (tmp_path / "folder").mkdir()
    for path in (noise, tmp_path / "folder", noise / "below"):
        with pytest.raises(LedgerDamaged, match=path.name):
            Ledger(path).find("digits", BUDGET)
    assert noise.read_bytes() == b"not a database at all" * 100


def test_waiting_for_another_writer_has_an_end(books: Ledger, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "LOCK_SECONDS", 0.2)
    lock = {"?": "BEGIN IMMEDIATE", "%s": "BEGIN; LOCK TABLE schema IN EXCLUSIVE MODE"}[place.mark]
    with closing(place.connect()) as other:
        other.execute(lock)
        started = time.monotonic()
        with pytest.raises(LedgerDamaged, match="lock"):
            charge(books)
        assert 0.1 < time.monotonic() - started < 5
        assert books.verify() == 1, "readers do not wait"
    assert charge(books) == 2


def test_a_ledger_that_is_moved_by_a_link_keeps_its_lines(file: Ledger, tmp_path: Path) -> None:
    """Names are quoted: a file may be called anything."""
    assert file.path is not None
    odd = tmp_path / "50% of? #my books"
    odd.mkdir()
    (odd / "ledger & more.sqlite").symlink_to(file.path)
    assert charge(Ledger(odd / "ledger & more.sqlite")) == 2
    assert file.verify() == 2
    assert [path.name for path in odd.iterdir()] == ["ledger & more.sqlite"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://me:hemligt@host/books", "mysql://... to be a file or an address"),
        ("sqlite:////tmp/books", "sqlite://... to be a file or an address"),
        ("postgresql://me:hemligt@host:port/books", "to be a file or an address"),
    ],
)
def test_other_addresses_are_refused_without_their_password(address: str, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Ledger(address)
    assert said in str(refusal.value)
    assert "hemligt" not in str(refusal.value)


def test_a_driver_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(LedgerDamaged, match=r"pip install 'dpsweep\[postgres\]'$") as refusal:
        Ledger("postgresql://me:hemligt@host/books")
    assert "hemligt" not in str(refusal.value)


def _refused(address: str) -> str:
    with pytest.raises(LedgerDamaged) as refusal:
        Ledger(address).find("digits", BUDGET)
    sentence = str(refusal.value)
    assert len(sentence.splitlines()) == 1
    assert "hemligt" not in sentence
    return sentence


def test_a_server_that_does_not_answer_or_open_is_said_without_the_password(server: Server) -> None:
    server.place()
    with closing(server.connect()) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    for told, address in {
        "No such file or directory": "postgresql://me:hemligt@/books?host=/nowhere&password=hemligt",
        "Connection refused": "postgresql://me:hemligt@127.0.0.1:1/books",
        "password authentication failed": server.address(user="guarded:hemligt"),
        "does not exist": server.address(database="nosuch"),
    }.items():
        assert told in _refused(address)
    assert "hemligt" not in Ledger("postgresql://me:hemligt@host/books?password=hemligt").name


def test_a_connection_that_drops_in_mid_transaction_charges_nothing(server: Server) -> None:
    place = server.place()
    ledger = Ledger(place.address)
    ledger.open("digits", BUDGET)
    drop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    with pytest.raises(LedgerDamaged, match="cannot be written or read"), Chain(place.address).writing() as opened:
        assert opened is not None
        opened.append(account="digits", kind="charge", plan="p", body={}, balance={})
        place.run(f"{drop} pg_backend_pid()")
    assert ledger.verify() == 1
    assert charge(ledger) == 2


def test_a_role_that_may_only_insert_charges_and_can_change_nothing(server: Server) -> None:
    place = server.place()
    Ledger(place.address).open("digits", BUDGET)
    schema = place.address.rpartition("%3D")[2]
    place.run(
        "CREATE ROLE clerk LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO clerk",
        "GRANT SELECT, INSERT ON entries TO clerk",
        "GRANT SELECT, UPDATE ON schema TO clerk",
    )
    ledger = Ledger(server.address(schema, "clerk"))
    assert charge(ledger) == 2
    ledger.find("other", BUDGET)
    assert ledger.verify() == 3
    with closing(server.connect(schema, "clerk")) as connection:
        for forbidden in (*place.unguard, "DELETE FROM entries", "TRUNCATE entries", "DROP TABLE entries"):
            with pytest.raises(Exception, match=r"must be owner|permission denied"):
                connection.execute(forbidden)


def _hold(pipe: Connection, address: str) -> None:
    with Ledger(address).hold("digits-p", "Plan p"):
        pipe.send(os.getpid())
        pipe.recv()


def test_a_lock_names_its_holder_and_ends_with_it(server: Server) -> None:
    place = server.place()
    ledger = Ledger(place.address)
    with processes(_hold, [(place.address,)]) as (pipe,):
        pid = pipe.recv()
        with (
            pytest.raises(BadInput, match=rf"^Plan p is being run by process {pid} on \S+; nothing was started\.$"),
            ledger.hold("digits-p", "Plan p"),
        ):
            raise AssertionError
        with ledger.hold("digits-q", "Plan q"):
            pass
    deadline = time.monotonic() + 10
    while True:
        try:
            with ledger.hold("digits-p", "Plan p"):
                break
        except BadInput:
            assert time.monotonic() < deadline
    with ledger.hold("digits-p", "Plan p"):
        pass


def test_a_file_is_not_locked_by_a_connection(file: Ledger) -> None:
    with pytest.raises(ValueError, match="to be a database on a server"), file.hold("digits-p", "Plan p"):
        pass
