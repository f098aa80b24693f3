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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dpsweep.accounting.chain.databases import database_at, introduce, lock_holder
from dpsweep.accounting.chain.hash_chain import Lines, Row
from dpsweep.accounting.errors import BadInput, LedgerDamaged

SCHEMA = 2
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
        self._database = database_at(place)
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
                introduce(connection)
                if not connection.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar():
                    raise BadInput(f"{what} is being run by {lock_holder(connection, key)}; nothing was started.")
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


def _reason(cause: sa.exc.DBAPIError) -> str:
    return str(cause.orig).strip().splitlines()[0].rstrip(".")
