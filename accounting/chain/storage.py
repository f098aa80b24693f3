"""Storage of a ledger's lines: a SQLite file, or a PostgreSQL database that several machines use.

Invariants:

* Writers work one after the other: the data that a writer has read do not change before it commits. SQLite takes the
  write lock before the first read; PostgreSQL an advisory lock, which a trigger takes for whoever adds a line
  in another way.
* A commit is on the disk when it returns. A commit whose answer was lost may have happened: a charge may be there that
  nothing runs on, but nothing runs without a charge.
* Triggers refuse UPDATE, DELETE, TRUNCATE, and an insertion anywhere but at the end. The table's owner can remove the
  triggers; a PostgreSQL role with only `SELECT, INSERT ON entries` and `SELECT ON schema` cannot, and needs no more.
* The writer of a line on a server is the role that logged in: a trigger refuses any other name from a role that does
  not own the table. In a file it is what the writer's process says of itself.
* The schema has a version, and an unknown version is refused.
* No name or message contains a password.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.databases import Database, DatabaseSession, Value
from dpsweep.accounting.chain.hash_chain import Lines, Row
from dpsweep.accounting.chain.sqlite_file import SqliteFile
from dpsweep.accounting.errors import BadInput, LedgerDamaged

SCHEMA = 3
TEXTS = ("account", "kind", "plan", "body", "balance", "who", "at", "previous", "digest")
TABLES = (
    "CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS entries "
    f"(seq INTEGER NOT NULL PRIMARY KEY, {', '.join(f'{name} TEXT NOT NULL' for name in TEXTS)})",
    "CREATE INDEX IF NOT EXISTS entries_by_plan ON entries (account, plan, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_account ON entries (account, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, seq)",
)
_COLUMNS = ("seq", *TEXTS)
_INSERT = f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM entries"


class Chain:
    """The hash chain stored in a file (a path) or a database (a `postgresql+psycopg://` address)."""

    def __init__(self, place: str | Path) -> None:
        self._database = _database_at(place)

    @property
    def file(self) -> Path | None:
        """The file with the lines, None for a database on a server."""
        return self._database.file

    @property
    def name(self) -> str:
        """The name of the file or database in messages, without a password."""
        return self._database.name

    @property
    def places(self) -> tuple[str, ...]:
        """The texts under which a machine remembers what lies here; raises `LedgerDamaged` if no server answers."""
        with self._errors_as_damage():
            return self._database.places

    def create_file_and_tables(self) -> None:
        """Creates the file and the tables if they do not exist."""
        with self._errors_as_damage():
            self._database.create_storage()
            with self._database.open_session() as session:
                if not session.has_table("schema"):
                    session.begin_creating_tables()
                    for statement in TABLES:
                        session.run_statement(statement)
                    if _schema_version(session) is None:
                        for statement in self._database.refusals:
                            session.run_statement(statement)
                        session.run_statement("INSERT INTO schema (version) VALUES (:version)", version=SCHEMA)
                    session.commit()
                self._check_schema_version(session)

    def write_transaction(self) -> AbstractContextManager[Lines | None]:
        """An exclusive write transaction, None if the store does not exist.

        It commits at the end of the `with` block; an exception rolls it back.
        """
        return self._transaction(lambda session: session.begin_writing(), lambda session: session.commit())

    @contextmanager
    def read_transaction(self) -> Iterator[Lines | None]:
        """One consistent view of the lines, None if the store does not exist; it need not be writable."""
        with (
            self._database.refuse_change_while_reading(),
            self._transaction(lambda session: session.begin_reading(), lambda session: session.rollback()) as lines,
        ):
            yield lines

    @contextmanager
    def hold_lock_or_refuse(self, name: str, what: str) -> Iterator[None]:
        """Holds the lock of this name; if another process does, raises `BadInput` with the process that runs `what`.

        For databases on a server only; raises ValueError for a file.
        """
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        with ExitStack() as stack:
            with self._errors_as_damage():
                holder = stack.enter_context(self._database.hold_lock_or_yield_holder(key))
            if holder is not None:
                raise BadInput(f"{what} is being run by {holder}; nothing was started.")
            yield

    @contextmanager
    def _transaction(
        self, begin: Callable[[DatabaseSession], None], end: Callable[[DatabaseSession], None]
    ) -> Iterator[Lines | None]:
        if not self._database.storage_exists():
            yield None
            return
        with self._errors_as_damage(), self._database.open_session() as session:
            if not session.has_table("schema"):
                yield None
                return
            begin(session)
            self._check_schema_version(session)
            yield Lines(_StoredRows(session), self.name)
            end(session)

    @contextmanager
    def _errors_as_damage(self) -> Iterator[None]:
        """Turns errors of the database and the file system into `LedgerDamaged` with one sentence."""
        try:
            yield
        except self._database.errors as cause:
            raise LedgerDamaged(f"The ledger {self.name} {self._database.describe_error(cause)}") from cause

    def _check_schema_version(self, session: DatabaseSession) -> None:
        if (version := _schema_version(session)) != SCHEMA:
            raise LedgerDamaged(
                f"Expected ledger schema={version} to be {SCHEMA}: {self.name} was written by another version, or by "
                "an unreleased one."
            )


class _StoredRows:
    """The table's rows within one transaction."""

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session

    def insert(self, row: Mapping[str, Any]) -> None:
        self._session.run_statement(_INSERT, **row)

    def rows_with_values(self, **values: Value) -> Iterator[Row]:
        return iter(self._session.run_statement(f"{_SELECT}{_where_condition(values)} ORDER BY seq", **values))

    def first_rows_after_number(self, seq: int | None, most: int) -> Sequence[Row]:
        beyond = {} if seq is None else {"seq": seq}
        where = "" if seq is None else " WHERE seq > :seq"
        return self._session.run_statement(f"{_SELECT}{where} ORDER BY seq LIMIT :most", **beyond, most=most)

    def last_row_with_values(self, **values: Value) -> Row | None:
        rows = self._session.run_statement(f"{_SELECT}{_where_condition(values)} ORDER BY seq DESC LIMIT 1", **values)
        return rows[0] if rows else None

    def writer_role(self) -> str | None:
        return self._session.writer_role()

    def account_names(self) -> tuple[str, ...]:
        rows = self._session.run_statement("SELECT DISTINCT account FROM entries ORDER BY account")
        return tuple(row["account"] for row in rows)


def _database_at(place: str | Path) -> Database:
    """The database in a file, or at an address; raises `BadInput` for an address of another kind."""
    if "://" not in str(place):
        return SqliteFile(place)
    from dpsweep.accounting.chain.postgres_server import PostgresServer

    return PostgresServer(str(place))


def _schema_version(session: DatabaseSession) -> Any:
    rows = session.run_statement("SELECT version FROM schema")
    return rows[0]["version"] if rows else None


def _where_condition(values: Mapping[str, Value]) -> str:
    """The condition that these columns have these values."""
    return " WHERE " + " AND ".join(f"{column} = :{column}" for column in values) if values else ""
