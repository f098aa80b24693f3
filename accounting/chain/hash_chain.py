"""The entries of a ledger in a hash chain: each line holds the hash of the line before, so a change of one is detected.

The first line holds in the place of an earlier hash the ledger's **identity**: 128 random bits, by which mirrors and
private stores know the ledger wherever it lies. Lines cut from the end, or another chain in its place, are detected by
the mirrors (`accounting/ledger/mirror.py`). A person with write access to the database and the mirrors, who computes a
new chain from the start, is not stopped. Invariants:

* Every line is checked against its hash when it is read.
* Writers work one after the other: what one has read does not change before it commits. SQLite takes the write lock
  before the first read; PostgreSQL an advisory lock, which a trigger takes for whoever adds a line in another way.
* A commit is on the disk when it returns. If its answer was lost, a charge may be there that nothing runs on, but
  nothing runs without a charge.
* Triggers refuse UPDATE, DELETE, TRUNCATE, and an insertion anywhere but at the end. The table's owner can remove the
  triggers; a PostgreSQL role with only `SELECT, INSERT ON entries` and `SELECT ON schema` cannot, and needs no more.
* The writer of a line on a server is the role that logged in, for whoever does not own the table. In a file it is what
  the writer's process says of itself.
* An unknown version of the schema is refused; a change of the digest is a new one. No message contains a password.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partialmethod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.chain.sqlite_file import SqliteFile, SqliteSession
from dpsweep.accounting.codec import Count, Stored
from dpsweep.accounting.errors import LedgerDamaged, exception_as_short_line

if TYPE_CHECKING:
    from dpsweep.accounting.chain.postgres_server import PostgresServer, PostgresSession

SCHEMA = 3
Row = Mapping[str, Any]
IDENTITY = re.compile(r"[0-9a-f]{32,64}")
PAGE, MOST_LINES = 2000, 2**63 - 1  # lines read at once; the largest number that both databases can compare with
_HASHED = ("previous", "seq", "account", "kind", "plan", "body", "balance", "who", "at")
COLUMNS = (*_HASHED, "digest")  # `seq` is a number, the others are text; `body` and `balance` are JSON
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"
_INSERT = f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
LAST = "ORDER BY seq DESC LIMIT 1"
_VERSION = "SELECT version FROM schema"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS entries (seq INTEGER NOT NULL PRIMARY KEY, "
    f"{', '.join(f'{name} TEXT NOT NULL' for name in COLUMNS if name != 'seq')})",
    "CREATE INDEX IF NOT EXISTS entries_by_plan ON entries (account, plan, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_account ON entries (account, seq)",
    "CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, seq)",
)

INTERRUPTED = "interrupted"  # the status of a settled session whose attempt may resume from its checkpoint


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger: its content, its plan, its writer and time, and the account's balance after it."""

    seq: int
    account: str
    kind: str
    plan: str
    body: Mapping[str, Any]
    balance: Mapping[str, Any]
    who: str
    at: str
    digest: str
    previous: str = ""
    parsed: list[Any] = field(init=False, repr=False, compare=False, default_factory=list)  # by `book.py`, once


@dataclass(frozen=True, kw_only=True)
class End(Stored):
    """The end of a chain: its number of lines, and the digest of its last line, zeros without a line."""

    entries: Count = 0
    head: str = "0" * 64


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
        if isinstance(self.database, SqliteFile):
            self.database.create()
        with self.errors_as_damage(), self.database.open_session() as session:
            if not session.has_tables():
                session.begin_creating()
                for statement in _TABLES:
                    session.run(statement)
                if not session.run(_VERSION):
                    for statement in (*self.database.refusals, f"INSERT INTO schema (version) VALUES ({SCHEMA})"):
                        session.run(statement)
                session.commit()
            self._require_schema(session)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Lines | None]:  # None without a store
        if isinstance(self.database, SqliteFile) and not self.database.exists():
            yield None
            return
        with self.errors_as_damage(), self.database.open_session() as session:
            if not session.has_tables():
                yield None
                return
            (session.begin_writing if writes else session.begin_reading)()
            self._require_schema(session)
            yield Lines(session, self.name)
            if writes:
                session.commit()

    write_transaction = partialmethod(_transaction, writes=True)  # exclusive; commits at the end, or rolls back
    read_transaction = partialmethod(_transaction, writes=False)  # one consistent view; it need not be writable

    def _require_schema(self, session: SqliteSession | PostgresSession) -> None:
        if (version := next((row["version"] for row in session.run(_VERSION)), None)) != SCHEMA:
            raise LedgerDamaged(f"Expected ledger schema={version} to be {SCHEMA}: another version wrote {self.name}.")

    @contextmanager
    def errors_as_damage(self) -> Iterator[None]:
        """Turns errors of the database into one sentence."""
        try:
            yield
        except self.database.errors as cause:
            line = str(getattr(cause, "orig", cause)).strip().splitlines()[0].rstrip(".")
            raise LedgerDamaged(f"The ledger {self.name} {self.database.fault(cause).format(line)}") from cause


class Lines:
    """The lines within one transaction: `offered` is a new ledger's identity, `newest` the last line that was added."""

    def __init__(self, session: SqliteSession | PostgresSession, name: str) -> None:
        self._session, self._name = session, name
        self.offered: str | None = None
        self.newest: Entry | None = None

    def identity(self) -> str | None:
        """The ledger's identity, from its first line; None without a line."""
        if not (first := self.entries(seq=1)):
            return None
        if IDENTITY.fullmatch(first[0].previous) is None:
            raise LedgerDamaged(f"The first line of {self._name} holds no identity of a ledger.")
        return first[0].previous

    @cached_property
    def writer(self) -> str:
        """The writer of lines: the server's role, or the user and machine as this process says, without spaces."""
        return self._session.writer()

    def append(
        self, *, account: str, kind: str, plan: str, body: Mapping[str, Any], balance: Mapping[str, Any]
    ) -> Entry:
        """Adds a line after the last one, in the only writer's transaction."""
        last = self.newest or next(iter(self.entries(LAST)), None)
        seq, previous = (1, self.offered or new_nonce()) if last is None else (last.seq + 1, last.digest)
        content = {"account": account, "kind": kind, "plan": plan, "body": body, "balance": balance}
        return self.insert(new_row_with_time(seq=seq, previous=previous, who=self.writer, **content))

    def insert(self, row: Row) -> Entry:
        """Adds a line as it is, which must follow from the last one: a new line, or one of a copy of this chain."""
        self._session.run(_INSERT, **{name: row[name] for name in COLUMNS})
        self.newest = entry_from_row(row)
        return self.newest

    def entries(self, order: str = "ORDER BY seq", **values: str | int | None) -> tuple[Entry, ...]:
        """The lines of all accounts whose columns have these values, in order; None for any value."""
        rows = self._rows(order, **values)
        return tuple(_checked_entry(self._name, *(row[name] for name in COLUMNS)) for row in rows)

    def account_names(self) -> tuple[str, ...]:
        """All names, sorted."""
        rows = self._session.run("SELECT DISTINCT account FROM entries ORDER BY account")
        return tuple(row["account"] for row in rows)

    def end(self) -> End:
        """The current end of the chain."""
        rows = self._rows(LAST)
        return End(entries=rows[0]["seq"], head=rows[0]["digest"]) if rows else End()

    def had_end(self, end: End) -> bool:
        """Whether this was once the chain's end; False if the chain was cut or replaced since."""
        rows = self._rows(LAST, seq=min(end.entries, MOST_LINES))
        return end.entries == 0 or any(row["digest"] == end.head for row in rows)

    def rows_after(self, seq: float = -math.inf) -> Iterator[Row]:
        """The stored lines after this number, in order; by default all of them, those with an impossible `seq` too."""
        while page := self._session.run(f"{_SELECT} WHERE seq > :seq ORDER BY seq LIMIT {PAGE}", seq=seq):
            yield from page
            seq = page[-1]["seq"]

    def _rows(self, order: str, **values: str | int | None) -> Sequence[Row]:
        wanted = {column: value for column, value in values.items() if value is not None}
        condition = " AND ".join(("TRUE", *(f"{column} = :{column}" for column in wanted)))
        return self._session.run(f"{_SELECT} WHERE {condition} {order}", **wanted)


def new_nonce() -> str:
    """128 bits of the operating system's entropy, in hexadecimal digits."""
    return secrets.token_hex(16)


def new_row_with_time(**columns: Any) -> dict[str, Any]:
    """A new line of these columns and the current time. The time is for readers: `seq` defines the order."""
    forms = {name: json.dumps(columns[name], sort_keys=True, allow_nan=False) for name in ("body", "balance")}
    row = columns | forms | {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    return row | {"digest": digest_of_row(row)}


def follows_line(row: Row, last: Row | None) -> bool:
    """Whether a line has its digest and stands after `last`; None for the place of the first line."""
    if row["seq"] != (1 if last is None else last["seq"] + 1) or row["digest"] != digest_of_row(row):
        return False
    return last is None or bool(row["previous"] == last["digest"])


def digest_of_row(row: Row) -> str:
    """The hash of a line, with the digest of the line before it."""
    return hashlib.sha256(json.dumps([row[name] for name in _HASHED]).encode()).hexdigest()


@lru_cache(maxsize=2**14, typed=True)  # about 40 MB: a plan of many trials is hashed once
def _checked_entry(name: str, *columns: object) -> Entry:
    row = dict(zip(COLUMNS, columns, strict=True))
    if digest_of_row(row) != row["digest"]:
        raise LedgerDamaged(f"Entry {row['seq']} of {name} was altered; nothing is charged on it.")
    return entry_from_row(row)


def entry_from_row(row: Row) -> Entry:
    """The entry of a stored line, whose digest was checked."""
    try:
        forms = {name: json.loads(row[name], object_hook=MappingProxyType) for name in ("body", "balance")}
        if not all(isinstance(form, MappingProxyType) for form in forms.values()):
            raise ValueError("its body and its balance are no objects")
    except (ValueError, RecursionError) as cause:
        raise LedgerDamaged(f"Entry {row['seq']} is no line of a ledger: {exception_as_short_line(cause)}.") from cause
    return Entry(**{name: row[name] for name in COLUMNS} | forms)
