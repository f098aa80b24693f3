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
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.chain.hash_chain import COLUMNS, Lines
from dpsweep.accounting.chain.sqlite_file import SqliteFile, SqliteSession
from dpsweep.accounting.errors import BadInput, LedgerDamaged

if TYPE_CHECKING:
    from dpsweep.accounting.chain.postgres_server import PostgresServer, PostgresSession

SCHEMA = 3
TABLES = (
    "CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS entries (seq INTEGER NOT NULL PRIMARY KEY, "
    f"{', '.join(f'{name} TEXT NOT NULL' for name in COLUMNS if name != 'seq')})",
    "CREATE INDEX IF NOT EXISTS entries_by_plan ON entries (account, plan, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_account ON entries (account, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, seq)",
)
_VERSION = "SELECT version FROM schema"


class Chain:
    """The hash chain stored in a file (a path) or a database (a `postgresql+psycopg://` address).

    `file` is the file with the lines, None for a database on a server; `name` is the name of either in messages,
    without a password. Raises `BadInput` for an address of another kind.
    """

    def __init__(self, place: str | Path) -> None:
        self._database = _database_at(place)
        self.file: Path | None = self._database.file
        self.name = self._database.name

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
                if not session.has_tables():
                    session.begin_creating()
                    for statement in TABLES:
                        session.run(statement)
                    if not session.run(_VERSION):
                        for statement in (*self._database.refusals, f"INSERT INTO schema (version) VALUES ({SCHEMA})"):
                            session.run(statement)
                    session.commit()
                self._check_schema_version(session)

    def write_transaction(self) -> AbstractContextManager[Lines | None]:
        """An exclusive write transaction, None if the store does not exist.

        It commits at the end of the `with` block; an exception rolls it back.
        """
        return self._transaction(writes=True)

    def read_transaction(self) -> AbstractContextManager[Lines | None]:
        """One consistent view of the lines, None if the store does not exist; it need not be writable."""
        return self._transaction(writes=False)

    @contextmanager
    def hold_lock_or_refuse(self, name: str, what: str) -> Iterator[None]:
        """Holds the lock of this name; if another process does, raises `BadInput` with the process that runs `what`.

        For databases on a server only, since the lock belongs to a connection; raises ValueError for a file.
        """
        if isinstance(self._database, SqliteFile):
            raise ValueError(f"Expected ledger={self.name} to be a database on a server.")
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        with ExitStack() as stack:
            with self._errors_as_damage():
                holder = stack.enter_context(self._database.hold_lock_or_yield_holder(key))
            if holder is not None:
                raise BadInput(f"{what} is being run by {holder}; nothing was started.")
            yield

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Lines | None]:
        if not self._database.storage_exists():
            yield None
            return
        with self._errors_as_damage(), self._database.open_session() as session:
            if not session.has_tables():
                yield None
                return
            (session.begin_writing if writes else session.begin_reading)()
            self._check_schema_version(session)
            yield Lines(session, self.name)
            if writes:
                session.commit()

    @contextmanager
    def _errors_as_damage(self) -> Iterator[None]:
        """Turns errors of the database and the file system into `LedgerDamaged` with one sentence."""
        try:
            yield
        except self._database.errors as cause:
            raise LedgerDamaged(f"The ledger {self.name} {self._database.describe_error(cause)}") from cause

    def _check_schema_version(self, session: SqliteSession | PostgresSession) -> None:
        if (version := next((row["version"] for row in session.run(_VERSION)), None)) != SCHEMA:
            raise LedgerDamaged(
                f"Expected ledger schema={version} to be {SCHEMA}: {self.name} was written by another version, or by "
                "an unreleased one."
            )


def _database_at(place: str | Path) -> SqliteFile | PostgresServer:
    if "://" not in str(place):
        return SqliteFile(place)
    from dpsweep.accounting.chain.postgres_server import PostgresServer

    return PostgresServer(str(place))
