"""The entries of a ledger in a hash chain: each line holds the hash of the line before, so a change of one is detected.

The chain detects any inner line that was altered, removed or moved, and says which one. Every line is checked against
its hash when it is read, even if only one account or one plan is read; a process that reads the same line again, equal
in every column, need not hash it again. The first line, which has no line before it, holds the ledger's **identity** in
that place: 128 random bits, by which mirrors and the private stores know the ledger wherever it lies. The chain alone
does not detect lines cut from its end, or another chain in its place; the mirrors do (`accounting/ledger/mirror.py`).
It does not stop a person with write access to the database and the mirrors who computes a new chain from the start.

Rule for changing this file: a change of the digest raises `SCHEMA` in `accounting/chain/storage.py`.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Protocol

from dpsweep.accounting.codec import Count, Stored
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.validation import exception_as_short_line


class Kind(StrEnum):
    """The kinds of ledger entries."""

    OPEN = "open"
    RAISE = "raise"
    CLOSE = "close"
    DATA = "data"
    CHARGE = "charge"
    OUTSIDE = "outside"
    START = "start"
    RESUME = "resume"
    SETTLE = "settle"
    LAUNCH = "launch"
    RELEASE = "release"
    MANIFEST = "manifest"
    RESTORED = "restored"
    MIRROR = "mirror"


SPENDING = (Kind.CHARGE, Kind.OUTSIDE, Kind.RESTORED)

INTERRUPTED = "interrupted"
"""The status of a settled session whose attempt may resume from its checkpoint."""


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
    parsed: list[Any] = field(init=False, repr=False, compare=False, default_factory=list)
    """The body, once it was read (`accounting/ledger/bodies.py`): an entry never changes."""

    @property
    def is_written_by_database_role(self) -> bool:
        """Whether `who` is a role, by the word of a database server; else it is what the writer's machine said."""
        return self.who.startswith(ROLE)

    @property
    def writer_text(self) -> str:
        """The writer, and what vouches for the name."""
        return self.who if self.is_written_by_database_role else f"{self.who} (self-declared)"


ROLE = "role "
"""How the writer of a line begins that a database role wrote; what a process says of itself begins otherwise."""

IDENTITY = re.compile(r"[0-9a-f]{32,64}")
"""The form of a ledger's identity."""

PAGE = 2000

MOST_LINES = 2**63 - 1
"""The largest number that both databases can compare with."""

KEPT = 2**14
"""Lines that a process keeps as it read them, so that a plan of 1600 trials is not hashed thirty times: about 40 MB."""

_HASHED = ("previous", "seq", "account", "kind", "plan", "body", "balance", "who", "at")
COLUMNS = (*_HASHED, "digest")
"""The columns of a stored line."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM entries"
_INSERT = f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
_LAST = "ORDER BY seq DESC LIMIT 1"


class Row(Protocol):
    """A stored line: `seq` is a number, the other columns are text; `body` and `balance` are JSON."""

    def __getitem__(self, column: str, /) -> Any:
        """The value of a column."""


@dataclass(frozen=True, kw_only=True)
class End(Stored):
    """The end of a chain: its number of lines, and the digest of its last line, zeros without a line."""

    entries: Count = 0
    head: str = "0" * 64


class DatabaseSession(Protocol):
    """A connection to the database with the lines, within one transaction."""

    def run(self, statement: str, **values: str | float) -> Sequence[Row]:
        """Runs a statement with its values (`:name`) and returns the rows."""

    def writer_role(self) -> str | None:
        """The role that the server knows this connection by, whatever it says of itself; None for a file."""


class Lines:
    """The lines within one transaction; `name` is the store's name in messages.

    `offered` is the identity that the ledger gets if its first line is written in this transaction, `newest` the last
    line that was, None before one was.
    """

    def __init__(self, session: DatabaseSession, name: str) -> None:
        self._session, self._name = session, name
        self.offered: str | None = None
        self.newest: Row | None = None

    def identity_in_first_line(self) -> str | None:
        """The identity in the first line, None without a line."""
        if (first := self.first_line()) is None:
            return None
        if IDENTITY.fullmatch(first.previous) is None:
            raise LedgerDamaged(f"The first line of {self._name} holds no identity of a ledger.")
        return first.previous

    def append(
        self, *, account: str, kind: str, plan: str, body: Mapping[str, Any], balance: Mapping[str, Any]
    ) -> Entry:
        """Adds a line after the last one, whose hash must be right; requires the only writer's transaction."""
        last = self.newest or self._last_row()
        if last is None:
            seq, previous = 1, self.offered or random_ledger_identity()
        else:
            seq, previous = last["seq"] + 1, self._entry_of_row_or_refuse_altered(last).digest
        content = {"account": account, "kind": kind, "plan": plan, "body": body, "balance": balance}
        row = new_row_with_time(seq=seq, previous=previous, who=self.writer, **content)
        self._insert(row)
        return entry_from_row(row)

    @cached_property
    def writer(self) -> str:
        """The writer of lines: the server's role, or the user and machine as this process says, without spaces."""
        if (role := self._session.writer_role()) is not None:
            return f"{ROLE}{role}"
        try:
            user = getpass.getuser()
        except (KeyError, OSError, ImportError):
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}".replace(" ", "_")

    def entries(self, order: str = "ORDER BY seq", **values: str | int) -> tuple[Entry, ...]:
        """The lines of all accounts whose columns have these values, in order."""
        return tuple(map(self._entry_of_row_or_refuse_altered, self._rows(order, **values)))

    def first_line(self) -> Entry | None:
        """The first line."""
        return next(iter(self.entries(seq=1)), None)

    def last_line_of_account(self, account: str) -> Entry | None:
        """The account's last line."""
        return next(iter(self.entries(_LAST, account=account)), None)

    def lines_of_account(self, account: str, plan: str | None = None) -> tuple[Entry, ...]:
        """An account's lines in order, or those of one plan."""
        return self.entries(account=account) if plan is None else self.entries(account=account, plan=plan)

    def account_names(self) -> tuple[str, ...]:
        """The names of all accounts, sorted."""
        rows = self._session.run("SELECT DISTINCT account FROM entries ORDER BY account")
        return tuple(row["account"] for row in rows)

    def end_of_chain(self) -> End:
        """The current end of the chain."""
        last = self._last_row()
        return End() if last is None else End(entries=last["seq"], head=last["digest"])

    def contains_chain_end(self, end: End) -> bool:
        """Whether this was once the chain's end; False if the chain was cut or replaced since."""
        row = self._last_row(seq=min(end.entries, MOST_LINES))
        return end.entries == 0 or (row is not None and row["digest"] == end.head)

    def iterate_verified_lines(self) -> Iterator[Entry]:
        """All lines in order; raises `LedgerDamaged` at the first line that is missing, altered or moved."""
        last: Row | None = None
        for expected, row in enumerate(self.rows_after_number(), start=1):
            if not follows_line(row, last):
                raise LedgerDamaged(
                    f"Entry {expected} of {self._name} is missing or was altered; nothing is charged on it."
                )
            last = row
            yield entry_from_row(row)

    def rows_after_number(self, seq: float = -math.inf) -> Iterator[Row]:
        """The stored lines after this number, in order; by default all of them, those with an impossible `seq` too."""
        while page := self._session.run(f"{_SELECT} WHERE seq > :seq ORDER BY seq LIMIT {PAGE}", seq=seq):
            yield from page
            seq = page[-1]["seq"]

    def append_copied_rows(self, rows: Iterable[Row]) -> None:
        """Appends lines of a copy of this chain, unchanged, after its last line."""
        last = self._last_row()
        for row in rows:
            if not follows_line(row, last):
                raise LedgerDamaged(f"Entry {row['seq']} of the copy does not follow from those of {self._name}.")
            self._insert(row)
            last = row

    def _insert(self, row: Row) -> None:
        self._session.run(_INSERT, **{name: row[name] for name in COLUMNS})
        self.newest = row

    def _last_row(self, **values: str | int) -> Row | None:
        return next(iter(self._rows(_LAST, **values)), None)

    def _rows(self, order: str, **values: str | int) -> Sequence[Row]:
        """The stored lines whose columns have these values."""
        condition = " AND ".join(("TRUE", *(f"{column} = :{column}" for column in values)))
        return self._session.run(f"{_SELECT} WHERE {condition} {order}", **values)

    def _entry_of_row_or_refuse_altered(self, row: Row) -> Entry:
        entry = _entry_if_digest_matches(*(row[name] for name in COLUMNS))
        if entry is None:
            raise LedgerDamaged(f"Entry {row['seq']} of {self._name} was altered; nothing is charged on it.")
        return entry


def random_ledger_identity() -> str:
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
    """The hash of a line, which includes the digest of the line before it."""
    return hashlib.sha256(json.dumps([row[name] for name in _HASHED]).encode()).hexdigest()


@lru_cache(maxsize=KEPT, typed=True)
def _entry_if_digest_matches(*columns: object) -> Entry | None:
    """The entry of a line with these columns; None if its digest is another. A changed line is another line."""
    row = dict(zip(COLUMNS, columns, strict=True))
    return entry_from_row(row) if digest_of_row(row) == row["digest"] else None


def entry_from_row(row: Row) -> Entry:
    """The entry of a stored line, whose digest was checked."""
    try:
        body, balance = json.loads(row["body"]), json.loads(row["balance"])
    except (ValueError, RecursionError) as cause:
        raise LedgerDamaged(f"Entry {row['seq']} is no line of a ledger: {exception_as_short_line(cause)}.") from cause
    if not (isinstance(body, dict) and isinstance(balance, dict)):
        raise LedgerDamaged(f"Entry {row['seq']} is no line of a ledger: its body and its balance are no objects.")
    return Entry(**{name: row[name] for name in COLUMNS} | {"body": body, "balance": balance})
