"""Restoration of one ledger from two that have a common beginning, as a copy makes them that goes on by itself.

Lines that are only missing come back by themselves (`accounting/ledger/mirror.py`). Where the ledger and a
mirror have other lines each, those of the mirror cannot follow: what they took is charged again, each line once, and
what they say of budgets, data and releases is said again. *Guarantee*: no amount of an account is less than what both
took, and nothing trains on a charge that both know: every attempt that has not ended in the ledger counts as used.
Results that had ended there stay paid. Sums may exceed the budget, since the costs have already happened.

A file that is damaged is put aside, never repaired and never deleted, and its lines come back from a mirror.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import Chain, Entry, Lines, entry_from_row
from dpsweep.accounting.durable_files import flush_folder
from dpsweep.accounting.errors import BadInput, LedgerDamaged, turn_file_errors_into_refusal
from dpsweep.accounting.ledger.book import (
    Attempts,
    Balance,
    Charged,
    Closed,
    Ended,
    Fingerprint,
    Opened,
    Raised,
    Released,
    ReleaseManifest,
    Restored,
    Spending,
    Started,
    append_body,
    balance_of_account,
    body_of_kind,
    read_body,
)
from dpsweep.accounting.ledger.mirror import Mirror, MirroredChain, own_mirror, rows_beyond, void_open_attempts
from dpsweep.accounting.ledger.upkeep import count_verified_entries

DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's error codes for a file without our tables or that is no database; not for one in use or out of reach."""

ELSEWHERE = "elsewhere"
"""The name under which spare attempts count as used: it is not known for which trial."""


def restore_ledger(ledger: MirroredChain) -> tuple[str, ...]:
    """Puts a damaged file aside, and charges what only a mirror has; a sentence for each thing that was done.

    Raises `LedgerDamaged` if a mirror is damaged too, or if no mirror has the lines of a damaged file; `BadInput` if an
    account was opened anew for other neighbours.
    """
    chain, mirrors = ledger.chain, _mirrors_in_reach(ledger)
    sentences = [*_put_aside_damaged_file(chain, mirrors)]
    chain.create_file_and_tables()
    for mirror in mirrors:
        rows = mirror.rows()
        with chain.write_transaction() as lines:
            if lines is None:
                raise LedgerDamaged(f"The ledger {chain.name} was taken away while it was being restored.")
            lost, is_older_copy = rows_beyond(lines, rows)
            if is_older_copy or not lost:
                continue
            entries = [entry_from_row(row) for row in lost]
            sentences += _charge_lost_entries(lines, entries)
            sentences.append(_use_up_attempts(lines))
        sentences.append(f"The other lines are in {put_mirror_aside(mirror)}.")
        mirror.create()
        mirror.follow(chain)
    with ledger.read_transaction():  # what is only missing comes back
        return tuple(sentences)


def _mirrors_in_reach(ledger: MirroredChain) -> tuple[Mirror, ...]:
    """The mirrors that are there; of a ledger that cannot be read, the user's own of the one that lay here."""
    known = ledger.known_here().values()
    try:
        with ledger.chain.read_transaction() as lines:
            mirrors = ledger.mirrors_of(lines, known)
    except LedgerDamaged:
        mirrors = tuple(map(own_mirror, known))
    return tuple(mirror for mirror in mirrors if os.access(mirror.path, os.F_OK))


def put_mirror_aside(mirror: Mirror) -> Path:
    """Renames a mirror's file, so that another one may begin; returns its new path."""
    other = mirror.path.with_name(f"{mirror.path.name}.{mirror.end().head[:16]}")
    with turn_file_errors_into_refusal(LedgerDamaged, f"The mirror {mirror.path} cannot be put aside"):
        mirror.path.replace(other)
    return other


def _charge_lost_entries(lines: Lines, lost: list[Entry]) -> Iterator[str]:
    """Charges each lost entry that no line stands for, and says again what others of them say."""
    known = {row["digest"] for row in lines.rows_after(0)}
    known |= {body_of_kind(entry, Restored).line for entry in lines.entries(kind=Restored.kind)}
    for entry in lost:
        account, body, balance = entry.account, read_body(entry), balance_of_account(lines, entry.account)
        if isinstance(body, Opened):
            terms = [(one.policy, one.budget.adjacency, one.budget.unit) for one in (balance, body) if one is not None]
            if balance is None:
                append_body(lines, account, body, before=Balance.opened(body))
                yield f"{account}: opened again."
            elif terms[0] != terms[1]:
                raise BadInput(
                    f"Expected account={account} to have the neighbours, the unit and the policy that the mirror has; "
                    "it was opened anew otherwise. Put this ledger aside first."
                )
        elif balance is None:
            raise LedgerDamaged(f"Expected entry {entry.seq} of a mirror to follow the opening of {account}.")
        elif isinstance(body, Spending):
            line = body.line if isinstance(body, Restored) else entry.digest
            if not known & {line, entry.digest}:
                known |= {line, entry.digest}
                plan = f"plan {entry.plan}, " if entry.plan else ""
                note = f"{plan}line {entry.seq} of {entry.at}, which only a mirror has"
                again = Restored(epsilon=body.epsilon, delta=body.delta, takes=body.takes, note=note, line=line)
                append_body(lines, account, again, before=balance)
                takes = " and ".join(f"{name} {body.takes[name]}" for name in sorted(body.takes, reverse=True))
                yield f"{account}: {takes or 'nothing'} charged for {note}."
        elif isinstance(body, Raised):
            if not body.budget.is_within_budget(now := balance.budget):
                epsilon, delta = max(now.epsilon, body.budget.epsilon), max(now.delta, body.budget.delta)
                append_body(lines, account, Raised(budget=replace(now, epsilon=epsilon, delta=delta)), before=balance)
        elif isinstance(body, (Closed, Fingerprint, Released, ReleaseManifest)) and body not in map(
            read_body, lines.entries(account=account, plan=entry.plan)
        ):
            append_body(lines, account, body, plan=entry.plan, before=balance)


def _use_up_attempts(lines: Lines) -> str:
    """Starts and ends every attempt that is paid for and has not ended; returns a sentence with their number."""
    plans = list(dict.fromkeys((entry.account, entry.plan) for entry in lines.entries(kind=Charged.kind)))
    used = 0
    for account, plan in plans:
        append = partial(append_body, lines, account, plan=plan)
        attempts = Attempts(lines.entries(account=account, plan=plan))
        unused = {trial: number - attempts.started[trial] for trial, number in attempts.covered.items()}
        for trial, number in {**unused, ELSEWHERE: attempts.spares}.items():
            for attempt in range(attempts.started[trial] + 1, attempts.started[trial] + 1 + number):
                start = Started(trial=trial, attempt=attempt, charge=attempts.charge_of(trial, attempt).digest)
                attempts.starts[trial, attempt] = start
                append(start)
        for trial, attempt, resume in Attempts(lines.entries(account=account, plan=plan)).open_sessions():
            append(Ended(trial=trial, attempt=attempt, resume=resume, realised={"status": "used elsewhere"}))
            used += 1
    void_open_attempts(lines, plans)
    return (
        f"{used} attempts that had not ended count as used, since the other ledger may have begun them, and searches "
        "that hide their losers do not go on. Results that had ended stay paid."
    )


def _put_aside_damaged_file(chain: Chain, mirrors: tuple[Mirror, ...]) -> Iterator[str]:
    """Renames the ledger's file if it is damaged, and says so; a whole ledger, or none, stays as it is."""
    try:
        with chain.read_transaction() as lines:
            if lines is not None:
                count_verified_entries(lines, chain.name)
    except LedgerDamaged as damage:
        mirrored = max((len(mirror.rows()) for mirror in mirrors), default=0)
        if chain.file is None or not mirrored:
            raise
        if _entries_in_reach(chain) > mirrored:
            raise LedgerDamaged(
                f"{damage} It has more lines than its mirrors here: whoever wrote last can restore it; or put back a "
                "copy."
            ) from damage
        if damage.__cause__ is not None and not _is_damage(damage.__cause__):
            raise
        yield f"{damage} It was put aside as {_rename_file_aside(chain.file)}, and its lines come from a mirror."


def _entries_in_reach(chain: Chain) -> int:
    """The number of the last line that can be read, altered or not; 0 if none can."""
    with suppress(LedgerDamaged), chain.read_transaction() as lines:
        return 0 if lines is None else lines.end().entries
    return 0


def _rename_file_aside(file: Path) -> Path:
    """Renames a file and the files that belong to it, unless another process has it open."""
    try:  # merges the write-ahead log: the file is then complete alone
        with closing(sqlite3.connect(file, timeout=5)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as cause:
        if not _is_damage(cause):
            raise LedgerDamaged(f"The ledger {file} is in use, so it is not put aside: {cause}.") from cause
    other = file.with_name(f"{file.name}.damaged-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}")
    with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {file} cannot be put aside"):
        for ending in ("-wal", "-shm", ""):
            if (part := Path(f"{file}{ending}")).exists():
                part.replace(f"{other}{ending}")
        flush_folder(file.parent)
    return other


def _is_damage(cause: BaseException) -> bool:
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF in DAMAGE
