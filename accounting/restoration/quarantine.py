"""Setting a damaged ledger aside before a backup replaces it: renamed, never repaired and never deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.json_files import flush_folder
from dpsweep.accounting.ledger.chain_audit import count_whole

DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's error codes for a file without our tables or that is no database; not for one in use or out of reach."""


def quarantine_damaged_ledger(chain: Chain) -> tuple[str, ...]:
    """Renames the ledger's file if it is damaged, and says so; a whole ledger, or none, stays as it is."""
    try:
        with chain.reading() as lines:
            if lines is not None:
                count_whole(lines, chain.name)
        return ()
    except LedgerDamaged as damage:
        if chain.file is None:
            raise LedgerDamaged(
                f"{damage} Its tables are not put aside from here: let the database's owner rename them."
            ) from damage
        if damage.__cause__ is not None and not _is_damage(damage.__cause__):
            raise
        other = _rename(chain.file)
        return (f"{damage} It was put aside as {other}.",)


def _rename(file: Path) -> Path:
    """Renames a file and the files that belong to it, unless another process has it open."""
    _close_log(file)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    other = file.with_name(f"{file.name}.damaged-{stamp}")
    if other.exists():
        raise LedgerDamaged(f"The ledger {file} cannot be put aside: {other} is there.")
    try:
        for ending in ("-wal", "-shm", ""):
            if (part := Path(f"{file}{ending}")).exists():
                part.replace(f"{other}{ending}")
        flush_folder(file.parent)
    except OSError as cause:
        raise LedgerDamaged(f"The ledger {file} cannot be put aside: {cause.strerror}.") from cause
    return other


def _close_log(file: Path) -> None:
    """Merges the write-ahead log into the file, which is then complete alone; ignores files that are no database."""
    try:
        with closing(sqlite3.connect(file, timeout=5)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as cause:
        if not _is_damage(cause):
            raise LedgerDamaged(f"The ledger {file} is in use, so it is not put aside: {cause}.") from cause


def _is_damage(cause: BaseException | None) -> bool:
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF in DAMAGE
