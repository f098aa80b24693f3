"""Storage of a ledger's lines: a SQLite file, or a PostgreSQL database that several machines use.

Invariants:

* Writers work one after the other: the data that a writer has read do not change before it commits. SQLite takes the
  write lock before the first read; PostgreSQL first locks a table, in a serializable transaction, so that no
  transaction fails to serialize.
* A commit is on the disk when it returns. A commit whose answer was lost may have happened: a charge may be there that
  nothing runs on, but nothing runs without a charge.
* Triggers refuse UPDATE, DELETE, TRUNCATE, and an insertion anywhere but at the end. The table's owner can remove the
  triggers; a PostgreSQL role with only `SELECT, INSERT ON entries` and `SELECT, UPDATE ON schema` cannot.
* The schema has a version, and an unknown version is refused.
* No name or message contains a password.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import sqlalchemy as sa

from dpsweep.accounting.chain.filesystems import refuse_network
from dpsweep.accounting.chain.hash_chain import Lines, Row
from dpsweep.accounting.chain.read_only import is_still, refuse_writing, unchanged
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.json_files import flush_folder

SCHEMA = 2
LOCK_SECONDS = 60
"""The time that a writer waits for the lock."""

CONNECT_SECONDS = 10

_PAUSE_SECONDS = 0.01

_SHOWN = ("host", "port", "service", "options")
"""The parameters of an address that identify the ledger and are not secret."""

_metadata = sa.MetaData()
_schema = sa.Table("schema", _metadata, sa.Column("version", sa.Integer, primary_key=True))
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("balance", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Index("entries_by_plan", "account", "plan", "seq"),
    sa.Index("entries_by_account", "account", "seq"),
    sa.Index("entries_by_kind", "kind", "seq"),
)


class Chain:
    """The hash chain stored in a file (a path) or a database (a `postgresql+psycopg://` address)."""

    def __init__(self, place: str | Path) -> None:
        self._database: _Database = _Server(_url(str(place))) if "://" in str(place) else _File(place)
        self._engine = self._database.engine()

    @property
    def file(self) -> Path | None:
        """The file with the lines, None for a database on a server."""
        return self._database.file

    @property
    def name(self) -> str:
        """The name of the file or database in messages, without a password."""
        return self._database.name

    def make(self) -> None:
        """Creates the file and the tables if they do not exist."""
        with self._said():
            self._database.make_room()
            with self._engine.connect() as connection:
                if not self._made(connection):
                    self._database.begin_making(connection)
                    _metadata.create_all(connection)
                    if connection.execute(sa.select(_schema.c.version)).scalar() is None:
                        for statement in self._database.refusals:
                            connection.exec_driver_sql(statement)
                        connection.execute(_schema.insert().values(version=SCHEMA))
                    connection.commit()
                self._check_version(connection)

    def writing(self) -> AbstractContextManager[Lines | None]:
        """An exclusive write transaction, None if the store does not exist.

        It commits at the end of the `with` block; an exception rolls it back.
        """
        return self._transaction(self._database.begin_writing, sa.Connection.commit)

    @contextmanager
    def reading(self) -> Iterator[Lines | None]:
        """One consistent view of the lines, None if the store does not exist; it need not be writable."""
        with (
            self._database.reading(),
            self._transaction(self._database.begin_reading, sa.Connection.rollback) as lines,
        ):
            yield lines

    @contextmanager
    def hold(self, name: str, what: str) -> Iterator[None]:
        """Holds the lock of this name; if another process does, raises `BadInput` with the process that runs `what`.

        For databases on a server only: the lock belongs to a connection, and a file has none. It ends with this process
        and with its connection; a proxy that shares connections between transactions does not keep it.
        """
        if self.file is not None:
            raise ValueError(f"Expected ledger={self.name} to be a database on a server.")
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        with self._said():
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._said():
                _introduce(connection)
                if not connection.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar():
                    raise BadInput(f"{what} is being run by {_holder(connection, key)}; nothing was started.")
            yield
        finally:
            connection.close()

    @contextmanager
    def _transaction(
        self, begin: Callable[[sa.Connection], None], end: Callable[[sa.Connection], None]
    ) -> Iterator[Lines | None]:
        if not self._database.is_there():
            yield None
            return
        with self._said(), self._engine.connect() as connection:
            if not self._made(connection):
                yield None
                return
            begin(connection)
            self._check_version(connection)
            yield Lines(_Stored(connection), self.name)
            end(connection)

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turns errors of the database and the file system into `LedgerDamaged` with one sentence."""
        try:
            yield
        except sa.exc.OperationalError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be written or read: {_reason(cause)}.") from cause
        except sa.exc.DBAPIError as cause:
            raise LedgerDamaged(f"The ledger {self.name} is no readable ledger: {_reason(cause)}.") from cause

    def _made(self, connection: sa.Connection) -> bool:
        """Whether the tables exist; called before the transaction that uses them begins."""
        made = sa.inspect(connection).has_table(_schema.name)
        connection.rollback()
        return made

    def _check_version(self, connection: sa.Connection) -> None:
        version = connection.execute(sa.select(_schema.c.version)).scalar()
        if version != SCHEMA:
            raise LedgerDamaged(
                f"Expected ledger schema={version} to be {SCHEMA}: {self.name} was written by another version."
            )


class _Stored:
    """The table's rows within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def insert(self, row: Mapping[str, Any]) -> None:
        self._connection.execute(_entries.insert(), row)

    def where(self, **values: str | int) -> Iterator[Row]:
        return self._rows(_having(values).order_by(_entries.c.seq))

    def after(self, seq: int | None, most: int) -> Sequence[Row]:
        beyond = sa.true() if seq is None else _entries.c.seq > seq
        return list(self._rows(sa.select(_entries).where(beyond).order_by(_entries.c.seq).limit(most)))

    def last(self, **values: str | int) -> Row | None:
        return next(self._rows(_having(values).order_by(_entries.c.seq.desc()).limit(1)), None)

    def accounts(self) -> tuple[str, ...]:
        return tuple(self._connection.execute(sa.select(_entries.c.account).distinct().order_by("account")).scalars())

    def _rows(self, query: sa.Select[Any]) -> Iterator[Row]:
        return iter(self._connection.execute(query).mappings().all())


def _having(values: dict[str, str | int]) -> sa.Select[Any]:
    return sa.select(_entries).where(*(_entries.c[column] == value for column, value in values.items()))


class _Database(Protocol):
    """The operations that differ between SQLite and PostgreSQL."""

    @property
    def file(self) -> Path | None: ...

    @property
    def name(self) -> str: ...

    @property
    def refusals(self) -> Sequence[str]: ...

    def engine(self) -> sa.Engine: ...

    def is_there(self) -> bool: ...

    def make_room(self) -> None: ...

    def begin_making(self, connection: sa.Connection) -> None: ...

    def begin_writing(self, connection: sa.Connection) -> None: ...

    def begin_reading(self, connection: sa.Connection) -> None: ...

    def reading(self) -> AbstractContextManager[None]: ...


class _File:
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
        for pragma in ("synchronous=FULL", "fullfsync=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
        return connection


class _Server:
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


def _url(address: str) -> sa.URL:
    form = "postgresql+psycopg://USER@HOST/NAME"
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise BadInput(f"Expected DPSWEEP_LEDGER to be a file or an address: {form}.") from None
    if url.get_backend_name() != "postgresql":
        raise BadInput(f"Expected DPSWEEP_LEDGER={url.drivername}://... to be a file or an address: {form}.")
    return url


def _introduce(connection: sa.Connection) -> None:
    """Sets the connection's application name to this process, so that other connections can read it."""
    name = f"dpsweep, process {os.getpid()} on {socket.gethostname()}"
    connection.execute(sa.select(sa.func.set_config("application_name", name, False)))


def _holder(connection: sa.Connection, key: int) -> str:
    query = sa.text(
        "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND "
        "granted AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND classid::bigint = (:key >> 32) & 4294967295 AND objid::bigint = :key & 4294967295"
    )
    name = connection.execute(query, {"key": key}).scalar()
    return str(name).removeprefix("dpsweep, ") if name else "another process"


def _reason(cause: sa.exc.DBAPIError) -> str:
    return str(cause.orig).strip().splitlines()[0].rstrip(".")
