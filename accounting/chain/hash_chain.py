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
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

    def cached_result_of(self, reader: Callable[[Entry], Any]) -> Any:
        """What `reader` makes of this entry, made once: an entry never changes."""
        if reader not in self._results_by_reader:
            self._results_by_reader[reader] = reader(self)
        return self._results_by_reader[reader]

    @property
    def is_written_by_database_role(self) -> bool:
        """Whether `who` is a role, by the word of a database server; else it is what the writer's machine said."""
        return self.who.startswith(ROLE)

    @property
    def writer_text(self) -> str:
        """The writer, and what vouches for the name."""
        return self.who if self.is_written_by_database_role else f"{self.who} (self-declared)"

    @cached_property
    def _results_by_reader(self) -> dict[Callable[[Entry], Any], Any]:
        return {}


ROLE = "role "
"""How the writer of a line begins that a database role wrote; what a process says of itself begins otherwise."""

GENESIS = "0" * 64
"""The head of a chain without a line."""

_IDENTITY_BYTES = 16
IDENTITY = re.compile(r"[0-9a-f]{32,64}")
"""The form of a ledger's identity."""

PAGE = 2000

KEPT = 2**14
"""Lines that a process keeps as it read them, so that a plan of 1600 trials is not hashed thirty times: about 40 MB."""

_HASHED = ("previous", "seq", "account", "kind", "plan", "body", "balance", "who", "at")
COLUMNS = (*_HASHED, "digest")
"""The columns of a stored line."""


class Row(Protocol):
    """A stored line: `seq` is a number, the other columns are text; `body` and `balance` are JSON."""

    def __getitem__(self, column: str, /) -> Any:
        """The value of a column."""


@dataclass(frozen=True, kw_only=True)
class End(Stored):
    """The end of a chain: its number of lines, and the digest of its last line."""

    entries: Count = 0
    head: str = GENESIS


class Rows(Protocol):
    """The stored lines within one transaction, selected by column values and in the order of `seq`."""

    def insert(self, row: Mapping[str, Any]) -> None:
        """Stores a line."""

    def rows_with_values(self, **values: str | int) -> Iterator[Row]:
        """The lines with these column values."""

    def first_rows_after_number(self, seq: int | None, most: int) -> Sequence[Row]:
        """At most `most` lines with a number above `seq`; None starts at the first line."""

    def last_row_with_values(self, **values: str | int) -> Row | None:
        """The last line with these column values."""

    def account_names(self) -> tuple[str, ...]:
        """The names of all accounts, sorted."""

    def writer_role(self) -> str | None:
        """The database role that writes, None where the storage knows no roles."""


class Lines:
    """The lines within one transaction; `name` is the store's name in messages."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name
        self._newest: Row | None = None
        self._offered: str | None = None
        self.has_appended = False

    def identity_in_first_line(self) -> str | None:
        """The identity in the first line, None without a line."""
        first = self._rows.last_row_with_values(seq=1)
        if first is None:
            return None
        self._entry_of_row_or_refuse_altered(first)
        if IDENTITY.fullmatch(first["previous"]) is None:
            raise LedgerDamaged(f"The first line of {self._name} holds no identity of a ledger.")
        return str(first["previous"])

    def writer_of_first_line(self) -> str | None:
        """The writer of the first line, None without a line."""
        first = self._rows.last_row_with_values(seq=1)
        return None if first is None else self._entry_of_row_or_refuse_altered(first).who

    def set_identity_for_first_line(self, identity: str) -> None:
        """Gives this identity to the ledger if its first line is written in this transaction."""
        self._offered = identity

    def append(
        self, *, account: str, kind: str, plan: str, body: Mapping[str, Any], balance: Mapping[str, Any]
    ) -> Entry:
        """Adds a line after the last one, whose hash must be right; requires the only writer's transaction."""
        last = self._newest or self._rows.last_row_with_values()
        if last is not None:
            self._entry_of_row_or_refuse_altered(last)
        previous = self._offered or random_ledger_identity() if last is None else last["digest"]
        seq = 1 if last is None else last["seq"] + 1
        row = new_row_with_time(
            seq, previous, account=account, kind=kind, plan=plan, body=body, balance=balance, who=self.writer
        )
        self._rows.insert(row)
        self._newest = row
        self.has_appended = True
        return entry_from_row(row)

    @cached_property
    def writer(self) -> str:
        """The writer of lines in this transaction."""
        role = self._rows.writer_role()
        return _current_user_and_machine_text() if role is None else f"{ROLE}{role}"

    def last_line_of_account(self, account: str) -> Entry | None:
        """The account's last line."""
        row = self._rows.last_row_with_values(account=account)
        return None if row is None else self._entry_of_row_or_refuse_altered(row)

    def lines_of_account(self, account: str, plan: str | None = None) -> tuple[Entry, ...]:
        """An account's lines in order, or those of one plan."""
        one = {} if plan is None else {"plan": plan}
        return tuple(map(self._entry_of_row_or_refuse_altered, self._rows.rows_with_values(account=account, **one)))

    def lines_of_kind(self, kind: str) -> tuple[Entry, ...]:
        """All lines of one kind, of all accounts."""
        return tuple(map(self._entry_of_row_or_refuse_altered, self._rows.rows_with_values(kind=kind)))

    def account_names(self) -> tuple[str, ...]:
        """The names of all accounts."""
        return self._rows.account_names()

    def end_of_chain(self) -> End:
        """The current end of the chain."""
        last = self._rows.last_row_with_values()
        return End() if last is None else End(entries=last["seq"], head=last["digest"])

    def contains_chain_end(self, end: End) -> bool:
        """Whether this was once the chain's end; False if the chain was cut or replaced since."""
        if end.entries == 0:
            return True
        if end.entries > self.end_of_chain().entries:  # also a number that no database can store
            return False
        row = self._rows.last_row_with_values(seq=end.entries)
        return row is not None and row["digest"] == end.head

    def iterate_verified_lines(self) -> Iterator[Entry]:
        """All lines in order; raises `LedgerDamaged` at the first line that is missing, altered or moved."""
        previous = None
        for expected, row in enumerate(self._rows_after_number(), start=1):
            follows = previous is None or row["previous"] == previous
            if row["seq"] != expected or not follows or row["digest"] != digest_of_row(row):
                raise LedgerDamaged(
                    f"Entry {expected} of {self._name} is missing or was altered; nothing is charged on it."
                )
            previous = row["digest"]
            yield entry_from_row(row)

    def rows_after_number(self, seq: int) -> Iterator[Row]:
        """The stored lines after this number, in order; 0 for all."""
        return self._rows_after_number(seq or None)

    def append_copied_rows(self, rows: Iterable[Row]) -> None:
        """Appends lines of a copy of this chain, unchanged, after its last line."""
        last = self._rows.last_row_with_values()
        previous = None if last is None else last["digest"]
        for row in rows:
            if (previous is not None and row["previous"] != previous) or row["digest"] != digest_of_row(row):
                raise LedgerDamaged(f"Entry {row['seq']} of the copy does not follow from those of {self._name}.")
            self._rows.insert({name: row[name] for name in COLUMNS})
            previous, self._newest = row["digest"], row

    def _rows_after_number(self, seq: int | None = None) -> Iterator[Row]:
        """All stored rows, including those with an impossible `seq`."""
        while page := self._rows.first_rows_after_number(seq, PAGE):
            yield from page
            if len(page) < PAGE:
                return
            seq = page[-1]["seq"]

    def _entry_of_row_or_refuse_altered(self, row: Row) -> Entry:
        entry = _entry_if_digest_matches(row["digest"], *(row[name] for name in _HASHED))
        if entry is None:
            raise LedgerDamaged(f"Entry {row['seq']} of {self._name} was altered; nothing is charged on it.")
        return entry


def random_ledger_identity() -> str:
    """128 bits of the operating system's entropy, in hexadecimal digits."""
    return secrets.token_hex(_IDENTITY_BYTES)


def new_row_with_time(
    seq: int,
    previous: str,
    *,
    account: str,
    kind: str,
    plan: str,
    body: Mapping[str, Any],
    balance: Mapping[str, Any],
    who: str,
) -> dict[str, Any]:
    """A new line, with the current time. The time is for readers: `seq` defines the order."""
    row: dict[str, Any] = {
        "seq": seq,
        "account": account,
        "kind": kind,
        "plan": plan,
        "body": json.dumps(body, sort_keys=True, allow_nan=False),
        "balance": json.dumps(balance, sort_keys=True, allow_nan=False),
        "who": who,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "previous": previous,
    }
    return row | {"digest": digest_of_row(row)}


def digest_of_row(row: Row) -> str:
    """The hash of a line, which includes the digest of the line before it."""
    return hashlib.sha256(json.dumps([row[name] for name in _HASHED]).encode()).hexdigest()


@lru_cache(maxsize=KEPT, typed=True)
def _entry_if_digest_matches(digest_of_line: str, *columns: object) -> Entry | None:
    """The entry of a line with these hashed columns; None if its digest is another. A changed line is another line."""
    row = dict(zip(_HASHED, columns, strict=True)) | {"digest": digest_of_line}
    return entry_from_row(row) if digest_of_row(row) == digest_of_line else None


def entry_from_row(row: Row) -> Entry:
    """The entry of a stored line, whose digest was checked."""
    names = ("seq", "account", "kind", "plan", "who", "at", "digest")
    try:
        body, balance = json.loads(row["body"]), json.loads(row["balance"])
    except (ValueError, RecursionError) as cause:
        raise LedgerDamaged(f"Entry {row['seq']} is no line of a ledger: {exception_as_short_line(cause)}.") from cause
    if not (isinstance(body, dict) and isinstance(balance, dict)):
        raise LedgerDamaged(f"Entry {row['seq']} is no line of a ledger: its body and its balance are no objects.")
    return Entry(**{name: row[name] for name in names}, body=body, balance=balance)


def _current_user_and_machine_text() -> str:
    """The user and the machine of this process, as it says itself; without spaces, so that it never reads as a role."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}".replace(" ", "_")
