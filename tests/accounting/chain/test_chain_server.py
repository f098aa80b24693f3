"""The store on a server: its address, its connections, its roles and its locks."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from io import BytesIO
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from dpsweep.accounting.chain import postgres_server
from dpsweep.accounting.chain.hash_chain import Chain
from dpsweep.accounting.chain.postgres_server import PostgresServer
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import server_lock, verify_entries
from tests.accounting.books import BUDGET, charge, processes
from tests.databases import Server, pooled
from tests.waiting import wait


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://me:hemligt@host/books", "mysql://... to be a file or an address"),
        ("sqlite:////tmp/books", "sqlite://... to be a file or an address"),
        ("postgresql://me:hemligt@host:port/books", "postgresql://... to be a file or an address"),
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
        Ledger(address).open_account("digits", BUDGET)
    sentence = str(refusal.value)
    assert len(sentence.splitlines()) == 1
    assert "hemligt" not in sentence
    return sentence


def test_a_server_that_crashed_and_came_back_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has never answered is not waited for: its address may be wrong."""
    database, down = PostgresServer("postgresql://nobody@127.0.0.1:1/books"), ["starting up"]

    def connect() -> Any:
        if down:
            raise sa.exc.OperationalError("connect", None, ConnectionRefusedError(down.pop()))
        return BytesIO()

    monkeypatch.setattr(database._engine, "connect", connect)
    with pytest.raises(sa.exc.OperationalError), database.open_session():
        pass
    for refused in (0, 3):
        down += ["starting up"] * refused
        with database.open_session():
            assert not down
    monkeypatch.setattr(postgres_server, "RESTART_SECONDS", 0.2)
    down += ["gone"] * 1000
    with pytest.raises(sa.exc.OperationalError), database.open_session():
        pass


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


def test_the_place_of_a_ledger_is_the_same_for_every_role(server: Server) -> None:
    """What a machine remembers of a server's ledger names no role, so another one finds the same ledger there."""
    server.place()
    with closing(server.connect()) as connection:
        connection.execute("CREATE ROLE other LOGIN")
    addresses = [Chain(server.address(user=user)).places[0] for user in ("postgres", "other")]
    assert len(set(addresses)) == 1
    assert "postgres@" not in addresses[0]


def test_a_connection_that_drops_in_mid_transaction_charges_nothing(server: Server) -> None:
    place = server.place()
    ledger = Ledger(place.address)
    ledger.open_account("digits", BUDGET)
    drop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    with (
        pytest.raises(LedgerDamaged, match="cannot be written or read"),
        Chain(place.address).write_transaction() as opened,
    ):
        assert opened is not None
        opened.append(account="digits", kind="charge", plan="p", body={}, balance={})
        place.run(f"{drop} pg_backend_pid()")
    assert verify_entries(ledger.chain) == 1
    assert charge(ledger) == 2


COLUMNS_BUT_WRITER = ("seq + 1", "account", "kind", "plan", "body", "balance", "at", "previous", "digest")


def test_a_role_that_may_only_insert_charges_and_can_change_nothing(server: Server) -> None:
    place = server.place()
    Ledger(place.address).open_account("digits", BUDGET)
    schema = place.address.rpartition("%3D")[2]
    place.run(
        "CREATE ROLE clerk LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO clerk",
        "GRANT SELECT, INSERT ON entries TO clerk",
        "GRANT SELECT ON schema TO clerk",
    )
    ledger = Ledger(server.address(schema, "clerk"))
    assert charge(ledger) == 2
    ledger.open_account("other", BUDGET)
    assert verify_entries(ledger.chain) == 3
    assert [entry.who for entry in ledger.statement("digits").entries] == ["role postgres", "role clerk"]
    with closing(server.connect(schema, "clerk")) as connection:
        forged = (*COLUMNS_BUT_WRITER, "'role postgres'")
        with pytest.raises(Exception, match="the writer of a line is the role that adds it"):
            connection.execute(
                "INSERT INTO entries (seq, account, kind, plan, body, balance, at, previous, digest, who) SELECT "
                f"{', '.join(forged)} FROM entries WHERE seq = 3"
            )
        for forbidden in (
            *(*place.unguard, "DELETE FROM entries", "TRUNCATE entries", "DROP TABLE entries"),
            *("UPDATE schema SET version = 9", "INSERT INTO schema VALUES (9)", "DELETE FROM schema"),
        ):
            with pytest.raises(Exception, match=r"must be owner|permission denied"):
                connection.execute(forbidden)


def test_nobody_adds_a_line_while_a_writer_works(server: Server) -> None:
    place = server.place()
    Ledger(place.address).open_account("digits", BUDGET)
    columns = ", ".join(COLUMNS_BUT_WRITER[1:])
    copied = f"INSERT INTO entries (seq, who, {columns}) SELECT seq + 1, who, {columns} FROM entries"
    with Chain(place.address).write_transaction(), closing(server.connect(place.address.rpartition("%3D")[2])) as other:
        other.execute("SET lock_timeout = 200")
        with pytest.raises(Exception, match="lock timeout"):
            other.execute(copied)
    assert charge(Ledger(place.address)) == 2


def test_a_role_that_may_only_read_is_told_so(server: Server) -> None:
    """Its ledger is whole."""
    place = server.place()
    Ledger(place.address).open_account("digits", BUDGET)
    schema = place.address.rpartition("%3D")[2]
    place.run(
        "CREATE ROLE reader LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO reader",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
    )
    ledger = Ledger(server.address(schema, "reader"))
    assert verify_entries(ledger.chain) == 1
    with pytest.raises(LedgerDamaged, match=r"may not be written or read by this user: .*permission denied.* is whole"):
        charge(ledger)
    place.run(f"REVOKE SELECT ON {schema}.entries FROM reader")
    with pytest.raises(LedgerDamaged, match="may not be written or read by this user"):
        verify_entries(ledger.chain)


def _hold(pipe: Connection, address: str) -> None:
    with server_lock(Ledger(address).chain.chain, "digits-p", "Plan p"):
        pipe.send(os.getpid())
        pipe.recv()


def test_a_lock_names_its_holder_and_ends_with_it(server: Server) -> None:
    place = server.place()
    ledger = Ledger(place.address)
    with processes(_hold, [(place.address,)]) as (pipe,):
        pid = pipe.recv()
        with (
            pytest.raises(BadInput, match=rf"^Plan p is being run by process {pid} on \S+; nothing was started\.$"),
            server_lock(ledger.chain.chain, "digits-p", "Plan p"),
        ):
            raise AssertionError
        with server_lock(ledger.chain.chain, "digits-q", "Plan q"):
            pass
    wait(lambda: _can_hold(ledger), "the end of a dead holder's lock")
    with server_lock(ledger.chain.chain, "digits-p", "Plan p"):
        pass


def _can_hold(ledger: Ledger) -> bool:
    try:
        with server_lock(ledger.chain.chain, "digits-p", "Plan p"):
            return True
    except BadInput:
        return False


def test_a_file_is_not_locked_by_a_connection(file: Ledger) -> None:
    with (
        pytest.raises(ValueError, match="to be a database on a server"),
        server_lock(file.chain.chain, "digits-p", "Plan p"),
    ):
        pass


@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="needs apt-get install pgbouncer")
def test_a_pooler_that_shares_connections_between_transactions_is_no_hindrance(server: Server) -> None:
    """Prepared statements and locks of a connection would be those of others there."""
    schema = server.place().address.rpartition("%3D")[2]
    with closing(server.connect()) as connection:
        connection.execute("CREATE ROLE pooled LOGIN")
        connection.execute(f"GRANT ALL ON SCHEMA {schema} TO pooled")
        connection.execute(f"ALTER ROLE pooled SET search_path = {schema}")
    with pooled(server, "pooled") as address:
        ledgers = [Ledger(address) for _ in range(2)]
        ledgers[0].open_account("digits", BUDGET)
        with server_lock(ledgers[0].chain.chain, "digits-p", "Plan p"):
            for number in range(4):
                charge(ledgers[number % 2], plan=f"p{number}")
                with Chain(address).write_transaction() as lines:
                    assert lines is not None
                    for _ in range(8):  # the driver would prepare a statement at its sixth use
                        assert lines.account_names() == ("digits",)
            with (
                pytest.raises(BadInput, match=rf"^Plan p is being run by process {os.getpid()} on "),
                server_lock(ledgers[1].chain.chain, "digits-p", "Plan p"),
            ):
                raise AssertionError
        with server_lock(ledgers[1].chain.chain, "digits-p", "Plan p"):
            pass
        assert verify_entries(ledgers[1].chain) == 5


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("28P01", "may not be written or read by this user: odd. The ledger is whole"),
        ("53300", "is in use by another process, and is whole: odd."),
        ("55P03", "is in use by another process, and is whole: odd."),
        ("57P01", "cannot be written or read: odd."),
        ("26000", "cannot be written or read: odd."),
        ("XX001", "is no readable ledger: odd."),
    ],
)
def test_each_class_of_errors_says_what_is_wrong(state: str, said: str) -> None:
    pytest.importorskip("psycopg", exc_type=ImportError)
    cause = type("Odd", (Exception,), {"sqlstate": state})("odd")
    chain = Chain("postgresql://me@host/books")
    with pytest.raises(LedgerDamaged, match=re.escape(f"{chain.name} {said}")), chain.errors_as_damage():
        raise sa.exc.DBAPIError("SELECT 1", None, cause)
