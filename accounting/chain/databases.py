"""The operations that differ between the two databases that store a ledger: a SQLite file and a PostgreSQL server.

A SQLite file is read by Python's own library (`accounting/chain/sqlite_file.py`): to import SQLAlchemy takes a seventh
of the time of `import torch`, in every command. Only a server needs it (`accounting/chain/postgres_server.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from dpsweep.accounting.chain.hash_chain import Row

LOCK_SECONDS = 60
"""The time that a writer waits for the lock."""

Value = str | int


class DatabaseSession(Protocol):
    """A connection, with at most one transaction at a time. An error is one of the database's `errors`."""

    def run_statement(self, statement: str, **values: Value) -> Sequence[Row]:
        """Runs a statement with its values (`:name`) and returns the rows."""

    def writer_role(self) -> str | None:
        """The role that the server knows this connection by, whatever it says of itself; None for a file."""

    def has_table(self, name: str) -> bool:
        """Whether a table exists; called outside a transaction."""

    def begin_creating_tables(self) -> None:
        """Begins the transaction that creates the tables; one process at a time."""

    def begin_writing(self) -> None:
        """Begins a transaction that excludes other writers from its first read on."""

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""

    def commit(self) -> None:
        """Commits the transaction: it is on the disk when this returns."""

    def rollback(self) -> None:
        """Ends the transaction without its changes."""


DAMAGED = "is no readable ledger: {}."
OUT_OF_REACH = "cannot be written or read: {}."
BUSY = "is in use by another process, and is whole: {}. The same command goes on."
REFUSED = "may not be written or read by this user: {}. The ledger is whole; its owner can grant the rights."
"""What an error says of a ledger, with the database's own message."""


def first_line_of_error(cause: Exception) -> str:
    """The first line of a database's own message, without a full stop."""
    return str(getattr(cause, "orig", cause)).strip().splitlines()[0].rstrip(".")


class Database(Protocol):
    """A file or a server; each session is a new connection, closed at the end of its block."""

    @property
    def file(self) -> Path | None:
        """The file with the lines, None for a database on a server."""

    @property
    def name(self) -> str:
        """The name in messages, without a password."""

    @property
    def places(self) -> tuple[str, ...]:
        """The texts under which a machine remembers what lies here: one path, or an address and the database there."""

    @property
    def refusals(self) -> Sequence[str]:
        """The statements that make the triggers against changes."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """All errors of a database."""

    def describe_error(self, cause: Exception) -> str:
        """What an error says of the ledger, to follow its name: refused, out of reach, or damaged."""

    def open_session(self) -> AbstractContextManager[DatabaseSession]:
        """A new connection; what was not committed at its end is rolled back."""

    def storage_exists(self) -> bool:
        """Whether a file exists; True for a server, which says so itself."""

    def create_storage(self) -> None:
        """Creates the file, for its owner alone."""

    def refuse_change_while_reading(self) -> AbstractContextManager[None]:
        """Raises `LedgerDamaged` at the end of the block if a file that nobody may write has changed."""

    def hold_lock_or_yield_holder(self, key: int) -> AbstractContextManager[str | None]:
        """Holds the lock `key` of a server and yields None, or the process that holds it; a file has no such lock."""
