"""The two databases that store a ledger, a SQLite file and a PostgreSQL server, and all that differs between them."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import sqlalchemy as sa

from dpsweep.accounting.chain.filesystems import refuse_network
from dpsweep.accounting.chain.read_only import is_still, refuse_writing, unchanged
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.json_files import flush_folder

LOCK_SECONDS = 60
"""The time that a writer waits for the lock."""

CONNECT_SECONDS = 10

_PAUSE_SECONDS = 0.01

_SHOWN = ("host", "port", "service", "options")
"""The parameters of an address that identify the ledger and are not secret."""


class Database(Protocol):
    """The operations that differ between SQLite and PostgreSQL."""

    @property
    def file(self) -> Path | None:
        """The file with the lines, None for a database on a server."""
        ...

    @property
    def name(self) -> str:
        """The name in messages, without a password."""
        ...

    @property
    def refusals(self) -> Sequence[str]:
        """The statements that make the triggers against changes."""
        ...

    def engine(self) -> sa.Engine:
        """A new engine without a pool of connections."""
        ...

    def is_there(self) -> bool:
        """Whether a file exists; True for a server, which says so itself."""
        ...

    def make_room(self) -> None:
        """Creates the file, for its owner alone."""
        ...

    def begin_making(self, connection: sa.Connection) -> None:
        """Begins the transaction that creates the tables; one process at a time."""
        ...

    def begin_writing(self, connection: sa.Connection) -> None:
        """Begins a transaction that excludes other writers from its first read on."""
        ...

    def begin_reading(self, connection: sa.Connection) -> None:
        """Begins a transaction with one consistent view."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Raises `LedgerDamaged` at the end of the block if a file that nobody may write has changed."""
        ...


class _SqliteFile:
    """SQLite, with a write-ahead log and every commit flushed to the disk. Only `make_room` creates a file."""

    refusals = (
        *(
            f"CREATE TRIGGER entries_refuse_{verb.lower()} BEFORE {verb} ON entries "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            for verb in ("UPDATE", "DELETE")
        ),
        "CREATE TRIGGER entries_refuse_insert BEFORE INSERT ON entries "  # REPLACE deletes without the other triggers
        "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries) "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    )

    def __init__(self, place: str | Path) -> None:
        self.file = Path(place).expanduser().absolute()
        self.name = str(self.file)

    def engine(self) -> sa.Engine:
        return sa.create_engine("sqlite://", creator=self._connect, poolclass=sa.pool.NullPool)

    def is_there(self) -> bool:
        try:
            self.file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be read: {cause.strerror}.") from cause
        return True

    def make_room(self) -> None:
        refuse_network(self.file)
        refuse_writing(self.file)
        try:
            self.file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, 0o600))
            for folder in (self.file.parent, self.file.parent.parent):
                flush_folder(folder)
        except OSError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be made: {cause.strerror}.") from cause

    def begin_making(self, connection: sa.Connection) -> None:
        """Retries the switch to a write-ahead log, which needs exclusive access: SQLite reports busy at once."""
        deadline = time.monotonic() + LOCK_SECONDS
        while not self._log_ahead(connection, last=time.monotonic() > deadline):
            time.sleep(_PAUSE_SECONDS)
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def begin_writing(self, connection: sa.Connection) -> None:
        refuse_network(self.file)
        refuse_writing(self.file)
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def begin_reading(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def reading(self) -> AbstractContextManager[None]:
        return unchanged(self.file) if self.is_there() else nullcontext()

    def _log_ahead(self, connection: sa.Connection, *, last: bool) -> bool:
        """Whether the file has a write-ahead log now; a busy file is an error at the last try."""
        try:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        except sa.exc.OperationalError as cause:
            if last or getattr(cause.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _connect(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.file))}?{'immutable=1' if is_still(self.file) else 'mode=rw'}"
        connection = sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS, isolation_level=None)
        try:
            for pragma in ("synchronous=FULL", "fullfsync=ON"):
                connection.execute(f"PRAGMA {pragma}").close()
        except sqlite3.Error:  # no database: Python 3.13 warns of a connection that is left to the garbage collector
            connection.close()
            raise
        return connection


class _PostgresServer:
    """PostgreSQL 11 or later. Connections are not pooled: a forked worker shares none, and each lock has its own."""

    file = None
    refusals = (
        "CREATE OR REPLACE FUNCTION entries_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$",
        "CREATE TRIGGER entries_refuse BEFORE UPDATE OR DELETE OR TRUNCATE ON entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION entries_refuse()",
        "CREATE OR REPLACE FUNCTION entries_refuse_insert() RETURNS trigger LANGUAGE plpgsql "
        "SET search_path FROM CURRENT AS $$ BEGIN "
        "IF NEW.seq IS DISTINCT FROM (SELECT coalesce(max(seq), 0) + 1 FROM entries) THEN "
        "RAISE EXCEPTION 'the ledger is append-only'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER entries_refuse_insert BEFORE INSERT ON entries "
        "FOR EACH ROW EXECUTE FUNCTION entries_refuse_insert()",
    )

    def __init__(self, url: sa.URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        shown = {key: value for key, value in url.query.items() if key in _SHOWN}
        self.name = self._url.set(query=shown).render_as_string(hide_password=True)

    def engine(self) -> sa.Engine:
        try:
            return sa.create_engine(
                self._url,
                isolation_level="SERIALIZABLE",
                poolclass=sa.pool.NullPool,
                connect_args={"connect_timeout": CONNECT_SECONDS},
            )
        except ImportError as cause:
            raise LedgerDamaged(
                f"The ledger {self.name} cannot be reached without a driver: pip install 'dpsweep[postgres]'"
            ) from cause

    def is_there(self) -> bool:
        return True

    def make_room(self) -> None:
        pass

    def begin_making(self, connection: sa.Connection) -> None:
        connection.execution_options(
            isolation_level="READ COMMITTED"
        )  # so that it sees the tables of others after the lock
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('dpsweep schema'))")

    def begin_writing(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(LOCK_SECONDS * 1000)}")
        connection.exec_driver_sql("LOCK TABLE schema IN EXCLUSIVE MODE")

    def begin_reading(self, connection: sa.Connection) -> None:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()


def database_at(place: str | Path) -> Database:
    """The database at a `postgresql+psycopg://` address or in a file; raises `BadInput` for any other address."""
    return _PostgresServer(_url(str(place))) if "://" in str(place) else _SqliteFile(place)


def _url(address: str) -> sa.URL:
    form = "postgresql+psycopg://USER@HOST/NAME"
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise BadInput(f"Expected DPSWEEP_LEDGER to be a file or an address: {form}.") from None
    if url.get_backend_name() != "postgresql":
        raise BadInput(f"Expected DPSWEEP_LEDGER={url.drivername}://... to be a file or an address: {form}.")
    return url


def introduce(connection: sa.Connection) -> None:
    """Sets the connection's application name to this process, so that other connections can read it."""
    name = f"dpsweep, process {os.getpid()} on {socket.gethostname()}"
    connection.execute(sa.select(sa.func.set_config("application_name", name, False)))


def lock_holder(connection: sa.Connection, key: int) -> str:
    """The process that holds the advisory lock `key`, as its connection named itself."""
    query = sa.text(
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
        "granted AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND classid::bigint = (:key >> 32) & 4294967295 AND objid::bigint = :key & 4294967295"
    )
    name = connection.execute(query, {"key": key}).scalar()
    return str(name).removeprefix("dpsweep, ") if name else "another process"
