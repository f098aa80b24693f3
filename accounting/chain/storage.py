"""Storage of a ledger's lines: a SQLite file, or a PostgreSQL database that several machines use.

Invariants:

* Writers work one after the other: what one has read does not change before it commits. SQLite takes the write lock
  before the first read; PostgreSQL an advisory lock, which a trigger takes for whoever adds a line in another way.
* A commit is on the disk when it returns. If its answer was lost, a charge may be there that nothing runs on, but
  nothing runs without a charge.
* Triggers refuse UPDATE, DELETE, TRUNCATE, and an insertion anywhere but at the end. The table's owner can remove the
  triggers; a PostgreSQL role with only `SELECT, INSERT ON entries` and `SELECT ON schema` cannot, and needs no more.
* The writer of a line on a server is the role that logged in: a trigger refuses any other name from a role that does
  not own the table. In a file it is what the writer's process says of itself.
* An unknown version of the schema is refused. No name or message contains a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.chain.hash_chain import COLUMNS, Lines
from dpsweep.accounting.chain.sqlite_file import SqliteFile, SqliteSession
from dpsweep.accounting.errors import LedgerDamaged

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
    """The hash chain in a `file` (a path), or in a database (a `postgresql+psycopg://` address), which has none."""

    def __init__(self, place: str | Path) -> None:
        self.database: SqliteFile | PostgresServer
        if "://" in str(place):
            from dpsweep.accounting.chain.postgres_server import PostgresServer

            self.database = PostgresServer(str(place))
        else:
            self.database = SqliteFile(place)
        self.file: Path | None = self.database.file
        self.name = self.database.name

    @property
    def places(self) -> tuple[str, ...]:
        """The texts under which a machine remembers what lies here; raises `LedgerDamaged` if no server answers."""
        with self.errors_as_damage():
            return self.database.places

    def create_file_and_tables(self) -> None:
        """Creates what does not exist."""
        with self.errors_as_damage():
            self.database.create_storage()
            with self.database.open_session() as session:
                if not session.has_tables():
                    session.begin_creating()
                    for statement in TABLES:
                        session.run(statement)
                    if not session.run(_VERSION):
                        for statement in (*self.database.refusals, f"INSERT INTO schema (version) VALUES ({SCHEMA})"):
                            session.run(statement)
                    session.commit()
                _require_schema(session, self.name)

    def write_transaction(self) -> AbstractContextManager[Lines | None]:
        """An exclusive write transaction, None without a store: commits at the end, rolls back at an exception."""
        return self._transaction(writes=True)

    def read_transaction(self) -> AbstractContextManager[Lines | None]:
        """One consistent view of the lines, None if the store does not exist; it need not be writable."""
        return self._transaction(writes=False)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Lines | None]:
        if not self.database.storage_exists():
            yield None
            return
        with self.errors_as_damage(), self.database.open_session() as session:
            if not session.has_tables():
                yield None
                return
            (session.begin_writing if writes else session.begin_reading)()
            _require_schema(session, self.name)
            yield Lines(session, self.name)
            if writes:
                session.commit()

    @contextmanager
    def errors_as_damage(self) -> Iterator[None]:
        """Turns errors of the database into one sentence."""
        try:
            yield
        except self.database.errors as cause:
            raise LedgerDamaged(f"The ledger {self.name} {self.database.describe_error(cause)}") from cause


def _require_schema(session: SqliteSession | PostgresSession, name: str) -> None:
    if (version := next((row["version"] for row in session.run(_VERSION)), None)) != SCHEMA:
        raise LedgerDamaged(f"Expected ledger schema={version} to be {SCHEMA}: another version wrote {name}.")
