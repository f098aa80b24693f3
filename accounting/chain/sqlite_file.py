"""A ledger in a SQLite file, with a write-ahead log and every commit flushed to the disk.

SQLite's write-ahead log needs shared memory and reliable locks: a network file system provides neither between
machines, and two sweeps could overspend or destroy the file without any error. Known network file systems are refused.
Unknown ones are not: other FUSE programs, the shared folders of containers and virtual machines, and every file system
on a machine without `/proc/self/mountinfo`, for example macOS.

A ledger that this process cannot write may still be read: an archive, a snapshot, another user's file. A database with
a write-ahead log needs two more files beside it, even for reading. If they cannot be created, SQLite has to be told
that nobody writes (`immutable=1`). It then ignores the log, which is right under two conditions only: the log is
empty, and the file does not change while it is read. The first is checked before the file is opened and the second
afterwards. If the log is not empty, SQLite reads it if it can, and otherwise refuses the file: without its log it would
show less than was charged.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from dpsweep.accounting.chain import databases
from dpsweep.accounting.chain.databases import Value, first_line_of_error
from dpsweep.accounting.chain.hash_chain import Row
from dpsweep.accounting.durable_files import flush_folder, make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.team_folder import missing_rights_text, mode_with_group
from dpsweep.accounting.validation import turn_file_errors_into_refusal

NETWORK = re.compile(
    r"9p|acfs|afs|beegfs|ceph|cifs|coda|davfs|fhgfs|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|pvfs2|"
    r"smb3|smbfs|vboxsf|wekafs|fuse\.(afp|beegfs|ceph|curlftpfs|davfs2?|gcsfuse|glusterfs|goofys|juicefs|mfs|moosefs|"
    r"rclone|s3fs|smbnetfs|sshfs|vmhgfs-fuse)"
)
"""Types of file systems that several machines may mount, including FUSE programs for remote storage."""

SPARE_BYTES = 1 << 16
"""The free bytes below which a disk counts as full: SQLite needs two files of some pages beside a ledger."""

_MOUNTS = Path("/proc/self/mountinfo")

_POINT_AND_KIND = re.compile(r"^(?:\S+ ){4}(\S+) .*? - (\S*)", re.MULTILINE)
"""The mount point, with octal codes for blanks, and the type of each file system in Linux's `mountinfo` format."""

_FAULTS: Mapping[int, str] = MappingProxyType(
    {
        **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM), databases.REFUSED),
        **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), databases.BUSY),
    }
)
"""What an error says of a ledger, by its code: refused or busy."""

_PAUSE_SECONDS = 0.01


@cache
def refuse_network_folder(folder: Path) -> None:
    """Raises `BadInput` if the folder is on a known network file system.

    It lies on the deepest mount point above it, and on the last file system if several have this point.
    """
    try:
        table = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return
    place, mount, kind = folder.resolve(), Path(), ""
    for text, one in _POINT_AND_KIND.findall(table):
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text))
        if place.is_relative_to(point) and len(point.parts) >= len(mount.parts):
            mount, kind = point, one
    if NETWORK.fullmatch(kind):
        raise BadInput(
            f"Expected the ledger's folder {folder} to lie on a disk of this machine: {mount} is a network file "
            f"system ({kind}), on which SQLite's locks do not hold. Set DPSWEEP_LEDGER to a local file, or, for "
            "several machines, to postgresql+psycopg://USER@HOST/NAME."
        )


def refuse_unwritable_file(file: Path) -> None:
    """Raises `LedgerDamaged` if the database exists and this process cannot write it."""
    if file.exists() and not _is_writable(file):
        closed = file if not os.access(file, os.W_OK) else file.parent
        why = "" if closed.stat().st_uid == os.geteuid() else f": {missing_rights_text(closed)}"
        raise LedgerDamaged(
            f"The ledger {file} can be read but not written here: its file or its folder is read-only{why}."
        )


def _is_writable(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


class SqliteFile:
    """A file; only `create_storage` creates it."""

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
        self.file = _resolve_links(place)
        self.name = str(self.file)
        self.places = (self.name,)

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
            raise LedgerDamaged(
                f"The ledger {self.file} was written while it was read; the same command reads it again."
            )

    def connect(self, mode: str) -> sqlite3.Connection:
        """A connection that begins no transaction by itself."""
        address = f"file:{quote(self.name)}?{mode}"
        connection = sqlite3.connect(address, uri=True, timeout=databases.LOCK_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    def _immutable_state(self) -> tuple[int, int, int] | None:
        """The file's state if it cannot be written here and has no log with changes; None otherwise."""
        logs = [Path(f"{self.file}-{kind}") for kind in ("wal", "journal")]
        if _is_writable(self.file) or any(log.exists() and log.stat().st_size for log in logs):
            return None
        state = self.file.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def storage_exists(self) -> bool:
        """Whether the file exists."""
        names = 0
        with (
            turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {self.name} cannot be read", path=self.file),
            suppress(FileNotFoundError, NotADirectoryError),
        ):
            names = self.file.stat().st_nlink
        if names > 1:  # SQLite keeps a log beside each name: lines in one are missing by the other
            raise LedgerDamaged(
                f"Expected the ledger {self.name} to have one name on its disk, got {names}: hard links hide its last "
                "lines from one another. Copy the file for a backup, and remove the other names."
            )
        return names == 1

    def create_storage(self) -> None:
        """Creates the file, for its owner alone, unless it would lie on a network or in a read-only folder."""
        refuse_network_folder(self.file.parent)
        refuse_unwritable_file(self.file)
        with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {self.name} cannot be made"):
            make_folder_and_missing_parents(self.file.parent)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, mode_with_group(self.file)))
            for folder in (self.file.parent, self.file.parent.parent):
                flush_folder(folder)

    def describe_error(self, cause: Exception) -> str:
        """What the error says of the ledger, by its code and its class."""
        otherwise = databases.OUT_OF_REACH if isinstance(cause, sqlite3.OperationalError) else databases.DAMAGED
        fault = _FAULTS.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, otherwise)
        sentence = first_line_of_error(cause)
        if fault is databases.OUT_OF_REACH and shutil.disk_usage(self.file.parent).free < SPARE_BYTES:
            sentence += "; no space is left on its disk"  # SQLite says no more than an input or output error
        return fault.format(sentence)


def _resolve_links(place: str | Path) -> Path:
    """The file that a path leads to through symbolic links, so that it has one name, one log and one store.

    Raises `BadInput` for what SQLite would read as something else, and for what is no file.
    """
    refusal = BadInput(
        f"Expected DPSWEEP_LEDGER={place!s:.200} to be the path of a file, no folder or device, or "
        "postgresql+psycopg://USER@HOST/NAME."
    )
    try:
        path = Path(place).expanduser().resolve()
    except (RuntimeError, ValueError) as cause:  # symbolic links that lead to one another, an unknown user
        raise refusal from cause
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:  # it is not there yet, or out of reach, as whoever opens it says
        kind = stat.S_IFREG
    if kind != stat.S_IFREG or str(place).startswith((":memory:", "file:")):
        raise refusal
    return path


@dataclass(frozen=True)
class SqliteSession:
    """A connection to a file."""

    connection: sqlite3.Connection
    file: Path

    def run(self, statement: str, **values: Value) -> Sequence[Row]:
        """Runs a statement with its values (`:name`) and returns its rows."""
        with closing(self.connection.execute(statement, values)) as cursor:
            rows: list[sqlite3.Row] = cursor.fetchall()
        return rows

    def writer_role(self) -> None:
        """None: whoever can write the file can write any name."""

    def has_tables(self) -> bool:
        """Whether the tables exist; called outside a transaction."""
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = 'schema'"))

    def begin_creating(self) -> None:
        """Begins the transaction that creates the tables; one process at a time.

        Retries the switch to a write-ahead log, which needs exclusive access: SQLite reports busy at once.
        """
        deadline = time.monotonic() + databases.LOCK_SECONDS
        while True:
            try:
                self.run("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as cause:
                if cause.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
        self.run("BEGIN IMMEDIATE")

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
