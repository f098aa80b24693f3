"""A ledger in a SQLite file, with a write-ahead log and every commit flushed to the disk.

SQLite's write-ahead log needs shared memory and reliable locks: a network file system provides neither between
machines, and two sweeps could overspend or destroy the file without any error. Known network file systems are refused.
Unknown ones are not: other FUSE programs, the shared folders of containers and virtual machines, and every file system
on a machine without `/proc/self/mountinfo`, for example macOS.

A ledger that this process cannot write may still be read: an archive, a snapshot, another user's file. A database with
a write-ahead log needs two more files beside it, even for reading. If they cannot be created, SQLite has to be told
that nobody writes (`immutable=1`). It then ignores the log, which is right under two conditions only: the log is
empty, and the file does not change while it is read. The first is checked before the file is opened and the second
afterwards. If the log is not empty, SQLite reads it if it can, and otherwise the ledger is refused: without its log it
would show less than was charged.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from dpsweep.accounting.chain import databases
from dpsweep.accounting.chain.databases import DatabaseSession, Value, first_line_of_error
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


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A mounted file system: its mount point and its type."""

    point: Path
    kind: str

    @property
    def is_network_file_system(self) -> bool:
        """Whether its type is a known network file system."""
        return NETWORK.fullmatch(self.kind) is not None


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parses the mounts in Linux's `mountinfo` format, in their order.

    >>> parse_mounts(r"36 35 98:0 / /mnt/my\\040books rw,noatime master:1 - nfs4 server:/books rw")
    (Mount(point=PosixPath('/mnt/my books'), kind='nfs4'),)
    """
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        if separator:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            mounts.append(Mount(point=Path(point), kind=after.split()[0]))
    return tuple(mounts)


def mount_of_path(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount of a path: the deepest mount point above it, and the last mount if several have this point."""
    above = [mount for mount in mounts if path == mount.point or mount.point in path.parents]
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def refuse_file_on_network(path: Path) -> None:
    """Raises `BadInput` if the file's folder is on a known network file system."""
    _refuse_network_folder(path.parent)


@cache
def _refuse_network_folder(folder: Path) -> None:
    try:
        mounts = parse_mounts(_MOUNTS.read_text(errors="surrogateescape"))
    except OSError:
        return
    mount = mount_of_path(folder.resolve(), mounts)
    if mount is not None and mount.is_network_file_system:
        raise BadInput(
            f"Expected the ledger's folder {folder} to lie on a disk of this machine: {mount.point} is a network file "
            f"system ({mount.kind}), on which SQLite's locks do not hold. Set DPSWEEP_LEDGER to a local file, or, for "
            "several machines, to postgresql+psycopg://USER@HOST/NAME."
        )


def should_open_as_immutable(file: Path) -> bool:
    """Whether to open the database as immutable: it is not writable here, and it has no log with changes."""
    return not _is_writable(file) and _unmerged_log(file) is None


def refuse_unwritable_file(file: Path) -> None:
    """Raises `LedgerDamaged` if the database exists and this process cannot write it."""
    if file.exists() and not _is_writable(file):
        closed = file if not os.access(file, os.W_OK) else file.parent
        why = "" if closed.stat().st_uid == os.geteuid() else f": {missing_rights_text(closed)}"
        raise LedgerDamaged(
            f"The ledger {file} can be read but not written here: its file or its folder is read-only{why}."
        )


@contextmanager
def refuse_file_changed_during_read(file: Path) -> Iterator[None]:
    """Raises `LedgerDamaged` if a read-only database cannot be read completely, or was written during the read."""
    before, still, log = _file_state(file), should_open_as_immutable(file), _unmerged_log(file)
    if log is not None and not os.access(file.parent, os.W_OK) and not _is_readable(log, _companion_file(file, "shm")):
        raise LedgerDamaged(
            f"The ledger {file} has changes in {log.name} that cannot be read in a read-only folder; copy the two "
            "files to a folder of your own and set DPSWEEP_LEDGER to the copy."
        )
    yield
    if still and _file_state(file) != before:
        raise LedgerDamaged(f"The ledger {file} was written while it was read; the same command reads it again.")


def _is_writable(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def _is_readable(*files: Path) -> bool:
    return all(os.access(file, os.R_OK) for file in files)


def _unmerged_log(file: Path) -> Path | None:
    """The log file with changes that are not in the database yet, if there is one."""
    logs = (_companion_file(file, kind) for kind in ("wal", "journal"))
    return next((log for log in logs if log.exists() and log.stat().st_size), None)


def _companion_file(file: Path, kind: str) -> Path:
    return file.with_name(f"{file.name}-{kind}")


def _file_state(file: Path) -> tuple[int, int, int]:
    state = file.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


_PAUSE_SECONDS = 0.01


class SqliteFile:
    """A file; only `make_room` creates it."""

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
    def open_session(self) -> Iterator[DatabaseSession]:
        """A new connection; SQLite rolls back what was not committed when it is closed."""
        with closing(self.connect()) as connection:
            yield SqliteSession(connection, self.file)

    def connect(self) -> sqlite3.Connection:
        """A connection that begins no transaction by itself."""
        address = f"file:{quote(str(self.file))}?{'immutable=1' if should_open_as_immutable(self.file) else 'mode=rw'}"
        connection = sqlite3.connect(address, uri=True, timeout=databases.LOCK_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            for pragma in ("synchronous=FULL", "fullfsync=ON"):
                connection.execute(f"PRAGMA {pragma}").close()
        except sqlite3.Error:  # no database: Python 3.13 warns of a connection that is left to the garbage collector
            connection.close()
            raise
        return connection

    def storage_exists(self) -> bool:
        """Whether the file exists."""
        with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {self.name} cannot be read", path=self.file):
            try:
                names = self.file.stat().st_nlink
            except (FileNotFoundError, NotADirectoryError):
                return False
        if names > 1:  # SQLite keeps a log beside each name: lines in one are missing by the other
            raise LedgerDamaged(
                f"Expected the ledger {self.name} to have one name on its disk, got {names}: hard links hide its last "
                "lines from one another. Copy the file for a backup, and remove the other names."
            )
        return True

    def create_storage(self) -> None:
        """Creates the file, for its owner alone, unless it would lie on a network or in a read-only folder."""
        refuse_file_on_network(self.file)
        refuse_unwritable_file(self.file)
        with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {self.name} cannot be made"):
            make_folder_and_missing_parents(self.file.parent)
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, mode_with_group(self.file)))
            for folder in (self.file.parent, self.file.parent.parent):
                flush_folder(folder)

    def describe_error(self, cause: Exception) -> str:
        """What the error says of the ledger, by its code and its class."""
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            fault = databases.REFUSED
        elif getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            fault = databases.BUSY
        elif isinstance(cause, sqlite3.OperationalError):
            fault = databases.OUT_OF_REACH
        else:
            fault = databases.DAMAGED
        sentence = first_line_of_error(cause)
        if fault is databases.OUT_OF_REACH and _is_disk_full(self.file.parent):
            sentence += "; no space is left on its disk"  # SQLite says no more than an input or output error
        return fault.format(sentence)

    def refuse_change_while_reading(self) -> AbstractContextManager[None]:
        """Raises `LedgerDamaged` at the end of the block if a file that nobody may write has changed."""
        return refuse_file_changed_during_read(self.file) if self.storage_exists() else nullcontext()

    def hold_lock_or_yield_holder(self, key: int) -> AbstractContextManager[str | None]:
        """Raises ValueError: the lock belongs to a connection, and a file has none."""
        raise ValueError(f"Expected ledger={self.name} to be a database on a server.")


def _is_disk_full(folder: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(folder).free < SPARE_BYTES
    return False


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

    def run_statement(self, statement: str, **values: Value) -> Sequence[Row]:
        """Runs a statement and returns its rows."""
        with closing(self._connection.execute(statement, values)) as cursor:
            rows: list[sqlite3.Row] = cursor.fetchall()
        return rows

    def writer_role(self) -> None:
        """None: whoever can write the file can write any name."""

    def has_table(self, name: str) -> bool:
        """Whether a table exists."""
        return bool(self.run_statement("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=name))

    def begin_creating_tables(self) -> None:
        """Retries the switch to a write-ahead log, which needs exclusive access: SQLite reports busy at once."""
        deadline = time.monotonic() + databases.LOCK_SECONDS
        while not self._try_switch_to_write_ahead_log(last=time.monotonic() > deadline):
            time.sleep(_PAUSE_SECONDS)
        self.run_statement("BEGIN IMMEDIATE")

    def begin_writing(self) -> None:
        """Takes the write lock; refuses a file on a network and one that is read-only."""
        refuse_file_on_network(self._file)
        refuse_unwritable_file(self._file)
        self.run_statement("BEGIN IMMEDIATE")

    def begin_reading(self) -> None:
        """Begins a transaction with one consistent view."""
        self.run_statement("BEGIN")

    def commit(self) -> None:
        """Commits the transaction."""
        self._connection.commit()

    def rollback(self) -> None:
        """Ends the transaction without its changes."""
        self._connection.rollback()

    def _try_switch_to_write_ahead_log(self, *, last: bool) -> bool:
        """Whether the file has a write-ahead log now; a busy file is an error at the last try."""
        try:
            self.run_statement("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as cause:
            if last or cause.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True
