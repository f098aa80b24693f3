"""Reading of a SQLite ledger that this process cannot write: an archive, a snapshot, another user's file.

A database with a write-ahead log needs two more files beside it, even for reading. If they cannot be created, SQLite
has to be told that nobody writes (`immutable=1`). It then ignores the log, which is right under two conditions only:
the log is empty, and the file does not change while it is read. This module checks the first before it opens the file
and the second afterwards. If the log is not empty, SQLite reads it if it can, and otherwise the ledger is refused:
without its log it would show less than was charged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsweep.accounting.errors import LedgerDamaged


def is_immutable(file: Path) -> bool:
    """Whether to open the database as immutable: it is not writable here, and it has no log with changes."""
    return not _is_writable(file) and _unmerged_log(file) is None


def refuse_writing(file: Path) -> None:
    """Raises `LedgerDamaged` if the database exists and this process cannot write it."""
    if file.exists() and not _is_writable(file):
        raise LedgerDamaged(f"The ledger {file} can be read but not written here: its file or its folder is read-only.")


@contextmanager
def refuse_changed_file(file: Path) -> Iterator[None]:
    """Raises `LedgerDamaged` if a read-only database cannot be read completely, or was written during the read."""
    before, still, log = _file_state(file), is_immutable(file), _unmerged_log(file)
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
