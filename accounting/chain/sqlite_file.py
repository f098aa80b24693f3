"""A ledger in a SQLite file, with a write-ahead log and every commit flushed to the disk."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from urllib.parse import quote

from dpsweep.accounting.chain import databases
from dpsweep.accounting.chain.databases import DatabaseSession, Value
from dpsweep.accounting.chain.filesystems import refuse_network
from dpsweep.accounting.chain.hash_chain import Row
from dpsweep.accounting.chain.read_only import is_immutable, refuse_changed_file, refuse_writing
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.json_files import flush_folder

_PAUSE_SECONDS = 0.01


class SqliteFile:
    """A file; only `make_room` creates it."""

    errors = (sqlite3.OperationalError, sqlite3.Error)
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
        self.file = _resolve_links(place)
        self.name = str(self.file)
        self.places = (self.name,)

    @contextmanager
    def open_session(self) -> Iterator[DatabaseSession]:
        """A new connection; SQLite rolls back what was not committed when it is closed."""
        with closing(self.connect()) as connection:
            yield SqliteSession(connection, self.file)

    def connect(self) -> sqlite3.Connection:
        """A connection that begins no transaction by itself."""
        address = f"file:{quote(str(self.file))}?{'immutable=1' if is_immutable(self.file) else 'mode=rw'}"
        connection = sqlite3.connect(address, uri=True, timeout=databases.LOCK_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            for pragma in ("synchronous=FULL", "fullfsync=ON"):
                connection.execute(f"PRAGMA {pragma}").close()
        except sqlite3.Error:  # no database: Python 3.13 warns of a connection that is left to the garbage collector
            connection.close()
            raise
        return connection

    def is_there(self) -> bool:
        """Whether the file exists."""
        try:
            names = self.file.stat().st_nlink
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be read: {cause.strerror}.") from cause
        if names > 1:  # SQLite keeps a log beside each name: lines in one are missing by the other
            raise LedgerDamaged(
                f"Expected the ledger {self.name} to have one name on its disk, got {names}: hard links hide its last "
                "lines from one another. Copy the file for a backup, and remove the other names."
            )
        return True

    def create_storage(self) -> None:
        """Creates the file, for its owner alone, unless it would lie on a network or in a read-only folder."""
        refuse_network(self.file)
        refuse_writing(self.file)
        try:
            make_folder(self.file.parent)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, 0o600))
            for folder in (self.file.parent, self.file.parent.parent):
                flush_folder(folder)
        except OSError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be made: {cause.strerror}.") from cause

    def refuses(self, cause: Exception) -> bool:
        """Whether the error says that this process may not write or read the file."""
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)

    def reading(self) -> AbstractContextManager[None]:
        """Raises `LedgerDamaged` at the end of the block if a file that nobody may write has changed."""
        return refuse_changed_file(self.file) if self.is_there() else nullcontext()

    def server_lock(self, key: int) -> AbstractContextManager[str | None]:
        """Raises ValueError: the lock belongs to a connection, and a file has none."""
        raise ValueError(f"Expected ledger={self.name} to be a database on a server.")


def _resolve_links(place: str | Path) -> Path:
    """The file that a path leads to through symbolic links, so that it has one name, one log and one store.

    Raises `BadInput` for what SQLite would read as something else, and for what is no file.
    """
    if str(place) == ":memory:" or str(place).startswith("file:"):
        raise BadInput(
            f"Expected DPSWEEP_LEDGER={place} to be the path of a file, or postgresql+psycopg://USER@HOST/NAME."
        )
    try:
        path = Path(place).expanduser().resolve()
    except (RuntimeError, ValueError) as cause:  # symbolic links that lead to one another, an unknown user
        raise BadInput(
            f"Expected DPSWEEP_LEDGER={place!s:.200} to lead to a file: {str(cause).rstrip('.')}."
        ) from cause
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:  # it is not there yet, or out of reach, as whoever opens it says
        return path
    if kind != stat.S_IFREG:
        raise BadInput(f"Expected DPSWEEP_LEDGER={place} to be a file, not a folder or a device.")
    return path


class SqliteSession:
    """A connection to a file."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self._file = file

    def run(self, statement: str, **values: Value) -> Sequence[Row]:
        """Runs a statement and returns its rows."""
        with closing(self._connection.execute(statement, values)) as cursor:
            rows: list[sqlite3.Row] = cursor.fetchall()
        return rows

    def has_table(self, name: str) -> bool:
        """Whether a table exists."""
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=name))

    def begin_making(self) -> None:
        """Retries the switch to a write-ahead log, which needs exclusive access: SQLite reports busy at once."""
        deadline = time.monotonic() + databases.LOCK_SECONDS
        while not self._log_ahead(last=time.monotonic() > deadline):
            time.sleep(_PAUSE_SECONDS)
        self.run("BEGIN IMMEDIATE")

    def begin_writing(self) -> None:
        """Takes the write lock; refuses a file on a network and one that is read-only."""
        refuse_network(self._file)
        refuse_writing(self._file)
        self.run("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""
        self.run("BEGIN")

    def commit(self) -> None:
        """Commits the transaction."""
        self._connection.commit()

    def rollback(self) -> None:
        """Ends the transaction without its changes."""
        self._connection.rollback()

    def _log_ahead(self, *, last: bool) -> bool:
        """Whether the file has a write-ahead log now; a busy file is an error at the last try."""
        try:
            self.run("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as cause:
            if last or cause.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True
