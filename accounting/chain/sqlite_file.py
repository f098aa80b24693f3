"""A ledger in a SQLite file, with a write-ahead log and every commit flushed to the disk.

The log needs shared memory and reliable locks: a network file system provides neither between machines, and two sweeps
could overspend or destroy the file without any error. Known network file systems are refused. Unknown ones are not:
other FUSE programs, the shared folders of containers and virtual machines, and every file system on a machine without
`/proc/self/mountinfo`, for example macOS.

A ledger that this process cannot write may still be read: an archive, a snapshot, another user's file. The log needs
two more files beside the database, even for reading. If they cannot be created, SQLite is told that nobody writes
(`immutable=1`) and ignores the log, which must be empty, as is checked before, in a file that does not change
meanwhile, as is checked afterwards. Any other file is read with its log or refused: without it, it would show less
than was charged.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import socket
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpsweep.accounting.durable_files import flush_folder, make_folder_and_missing_parents, mode_with_group
from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_file_errors_into_refusal

# for a file and for a server: how long a writer waits for the lock, how the name of a writer begins that a server
# vouches for, and what an error says of a ledger
LOCK_SECONDS = 60
ROLE = "role "
DAMAGED = "is no readable ledger: {}."
OUT_OF_REACH = "cannot be written or read: {}."
BUSY = "is in use by another process, and is whole: {}. The same command goes on."
REFUSED = "may not be written or read by this user: {}. The ledger is whole; its owner can grant the rights."
_REFUSED, _BUSY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM), (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

# types of file systems that several machines may mount, including FUSE programs for remote storage
_NETWORK = re.compile(
    r"9p|acfs|afs|beegfs|ceph|cifs|coda|davfs|fhgfs|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|pvfs2|"
    r"smb3|smbfs|vboxsf|wekafs|fuse\.(afp|beegfs|ceph|curlftpfs|davfs2?|gcsfuse|glusterfs|goofys|juicefs|mfs|moosefs|"
    r"rclone|s3fs|smbnetfs|sshfs|vmhgfs-fuse)"
)
_MOUNTS = Path("/proc/self/mountinfo")
_POINT_AND_KIND = re.compile(r"^(?:\S+ ){4}(\S+) .*? - (\S*)", re.MULTILINE)  # the point has octal codes for blanks


@cache
def refuse_network_folder(folder: Path) -> None:
    """Raises `BadInput` if the deepest mount point above the folder, the last of equals, is on a known network."""
    try:
        table = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return
    place, mount, kind = folder.resolve(), Path(), ""
    for text, one in _POINT_AND_KIND.findall(table):
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text))
        if place.is_relative_to(point) and len(point.parts) >= len(mount.parts):
            mount, kind = point, one
    if _NETWORK.fullmatch(kind):
        raise BadInput(
            f"Expected the ledger's folder {folder} to lie on a disk of this machine: {mount} is a network file system "
            f"({kind}). Set DPSWEEP_LEDGER to a local file, or to postgresql+psycopg://USER@HOST/NAME."
        )


def refuse_unwritable_file(file: Path) -> None:
    """Raises `LedgerDamaged` if the database exists and this process cannot write it."""
    if file.exists() and not _is_writable(file):
        closed = file.parent if os.access(file, os.W_OK) else file
        is_own = closed.stat().st_uid == os.geteuid()
        cause = None if is_own else PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))
        raise LedgerDamaged(
            f"The ledger {file} can be read but not written here: its file or its folder is read-only."
        ) from cause


def _is_writable(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


class SqliteFile:
    """The file that a path leads to through symbolic links, so that it has one name, one log and one store.

    Raises `BadInput` for what SQLite would read as something else, and for what is no file.
    """

    errors = (sqlite3.Error,)
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
        with suppress(RuntimeError, ValueError):  # symbolic links that lead to one another, an unknown user
            path, mode = Path(place).expanduser().resolve(), stat.S_IFREG
            with suppress(OSError):  # it is not there yet, or out of reach, as whoever opens it says
                mode = path.stat().st_mode
            if stat.S_ISREG(mode) and not str(place).startswith((":memory:", "file:")):
                self.file, self.name, self.places = path, str(path), (str(path),)
                return
        raise BadInput(
            f"Expected DPSWEEP_LEDGER={place!s:.200} to be the path of a file, no folder or device, or "
            "postgresql+psycopg://USER@HOST/NAME."
        )

    @contextmanager
    def open_session(self) -> Iterator[SqliteSession]:
        """A new connection; SQLite rolls back what was not committed when it is closed.

        A file that nobody seems to change is read as immutable: raises `LedgerDamaged` if it has changed meanwhile.
        """
        before = self._immutable_state()
        with closing(self.connect("mode=rw" if before is None else "immutable=1")) as connection:
            for pragma in ("synchronous=FULL", "fullfsync=ON"):
                connection.execute(f"PRAGMA {pragma}").close()
            yield SqliteSession(connection, self.file)
        if before is not None and self._immutable_state() != before:
            raise LedgerDamaged(f"The ledger {self.file} was written while it was read; the same command goes on.")

    def connect(self, mode: str) -> sqlite3.Connection:
        """A connection that begins no transaction by itself."""
        address = f"file:{quote(self.name)}?{mode}"
        connection = sqlite3.connect(address, uri=True, timeout=LOCK_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    def _immutable_state(self) -> tuple[int, int, int] | None:
        logs = [Path(f"{self.file}-{kind}") for kind in ("wal", "journal")]
        if _is_writable(self.file) or any(log.exists() and log.stat().st_size for log in logs):
            return None
        state = self.file.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def exists(self) -> bool:
        """Whether the file exists; raises `LedgerDamaged` if it cannot be read, or has several names."""
        try:
            names = self.file.stat().st_nlink
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as cause:
            raise LedgerDamaged(f"The ledger {self.name} cannot be read: {cause.strerror}.") from cause
        if names > 1:  # SQLite keeps a log beside each name: lines in one are missing by the other
            raise LedgerDamaged(
                f"Expected the ledger {self.name} to have one name on its disk, got {names}: remove other links."
            )
        return True

    def create(self) -> None:
        """Creates the file, for its owner alone, unless it would lie on a network or in a read-only folder."""
        refuse_network_folder(self.file.parent)
        refuse_unwritable_file(self.file)
        with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {self.name} cannot be made"):
            make_folder_and_missing_parents(self.file.parent)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, mode_with_group(self.file)))
            for folder in (self.file.parent, self.file.parent.parent):
                flush_folder(folder)

    def fault(self, cause: Exception) -> str:
        """What an error says of the ledger, by its code and its class."""
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        otherwise = OUT_OF_REACH if isinstance(cause, sqlite3.OperationalError) else DAMAGED
        return REFUSED if code in _REFUSED else BUSY if code in _BUSY else otherwise


@dataclass(frozen=True)
class SqliteSession:
    """A connection to a file; `PostgresSession` has the same methods."""

    connection: sqlite3.Connection
    file: Path

    def run(self, statement: str, **values: str | float) -> Sequence[Mapping[str, Any]]:
        """Runs a statement with its values (`:name`) and returns its rows."""
        with closing(self.connection.execute(statement, values)) as cursor:
            return [dict(row) for row in cursor.fetchall()]

    def writer(self) -> str:
        """The user and machine as this process says: whoever can write the file can write any name."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError, ImportError):
            user = str(os.getuid())
        return f"{user}@{socket.gethostname()}".replace(" ", "_")

    def has_tables(self) -> bool:
        """Whether the tables exist; called outside a transaction."""
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = 'schema'"))

    def begin_creating(self) -> None:
        """Begins the transaction that creates the tables; one process at a time.

        Retries the switch to a write-ahead log, which needs exclusive access: SQLite reports busy at once.
        """
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                self.run("PRAGMA journal_mode=WAL")
                self.run("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as cause:
                if cause.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def begin_writing(self) -> None:
        """Takes the write lock, before the first read; refuses a file on a network and one that is read-only."""
        refuse_network_folder(self.file.parent)
        refuse_unwritable_file(self.file)
        self.run("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""
        self.run("BEGIN")

    def commit(self) -> None:
        """Commits the transaction: it is on the disk when this returns."""
        self.connection.commit()
