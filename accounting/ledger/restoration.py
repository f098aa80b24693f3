"""Restoration of one ledger from two that have a common beginning, as a copy makes them that goes on by itself.

Lines that are only missing come back by themselves (`accounting/ledger/mirrored_chain.py`). Where the ledger and a
mirror have other lines each, those of the mirror cannot follow: what they took is charged again, each line once, and
what they say of budgets, data and releases is said again. *Guarantee*: no amount of an account is less than what both
took, and nothing trains on a charge that both know: every attempt that has not ended in the ledger counts as used.
Results that had ended there stay paid. Sums may exceed the budget, since the costs have already happened.

A file that is damaged is put aside, never repaired and never deleted, and its lines come back from a mirror.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import Entry, Kind, Lines, entry_from_row
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.durable_files import flush_folder
from dpsweep.accounting.errors import BadInput, LedgerDamaged
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.account import Attempts, Balance, append_line_with_balance, balance_of_account
from dpsweep.accounting.ledger.bodies import (
    Body,
    Closed,
    Ended,
    Opened,
    Raised,
    Recognised,
    Released,
    ReleaseManifest,
    Restored,
    Spending,
    Started,
    read_body,
)
from dpsweep.accounting.ledger.composition_policy import Policy
from dpsweep.accounting.ledger.mirror import Mirror, rows_beyond
from dpsweep.accounting.ledger.mirrored_chain import MirroredChain, count_verified_entries, void_open_attempts
from dpsweep.accounting.validation import turn_file_errors_into_refusal

DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's error codes for a file without our tables or that is no database; not for one in use or out of reach."""

ELSEWHERE = "elsewhere"
"""The name under which spare attempts count as used: it is not known for which trial."""


def restore_ledger(ledger: MirroredChain) -> tuple[str, ...]:
    """Puts a damaged file aside, and charges what only a mirror has; a sentence for each thing that was done.

    Raises `LedgerDamaged` if a mirror is damaged too, or if no mirror has the lines of a damaged file; `BadInput` if an
    account was opened anew for other neighbours.
    """
    chain, mirrors = ledger.chain, ledger.mirrors_in_reach()
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
        sentences.append(f"The other lines are in {mirror.put_aside()}.")
        mirror.create()
        mirror.follow(chain)
    with ledger.read_transaction():  # what is only missing comes back
        return tuple(sentences)


def _charge_lost_entries(lines: Lines, lost: list[Entry]) -> Iterator[str]:
    """Charges each lost entry that no line stands for, and says again what others of them say."""
    known = {row["digest"] for row in lines.rows_after_number(0)}
    known |= {
        body.line for entry in lines.entries(kind=Kind.RESTORED) if isinstance(body := read_body(entry), Restored)
    }
    for entry in lost:
        lost_body, balance = read_body(entry), balance_of_account(lines, entry.account)
        if isinstance(lost_body, Opened):
            if balance is None:
                opened = Balance.for_opened_account(lost_body)
                append_line_with_balance(lines, entry.account, lost_body, before=opened)
                yield f"{entry.account}: opened again."
            elif _terms(balance) != _terms(lost_body):
                raise BadInput(
                    f"Expected account={entry.account} to have the neighbours, the unit and the policy that the mirror "
                    "has; it was opened anew otherwise. Put this ledger aside first."
                )
            continue
        if balance is None:
            raise LedgerDamaged(f"Expected entry {entry.seq} of a mirror to follow the opening of {entry.account}.")
        if isinstance(lost_body, Spending):
            if entry.digest not in known and (not isinstance(lost_body, Restored) or lost_body.line not in known):
                body = _restored(lost_body, entry)
                known |= {entry.digest, body.line}
                append_line_with_balance(lines, entry.account, body, before=balance)
                yield f"{entry.account}: {_amounts_text(body)} charged for {body.note}."
        elif (again := _body_to_say_again(lines, entry, lost_body, balance)) is not None:
            append_line_with_balance(lines, entry.account, again, plan=entry.plan, before=balance)


def _terms(account: Balance | Opened) -> tuple[Policy, Adjacency, str]:
    return account.policy, account.budget.adjacency, account.budget.unit


def _restored(lost: Spending, entry: Entry) -> Restored:
    """The charge of a lost line once more."""
    plan = f"plan {entry.plan}, " if entry.plan else ""
    return Restored(
        epsilon=lost.epsilon,
        delta=lost.delta,
        takes=lost.takes,
        note=f"{plan}line {entry.seq} of {entry.at}, which only a mirror has",
        line=lost.line if isinstance(lost, Restored) else entry.digest,
    )


def _body_to_say_again(lines: Lines, entry: Entry, lost: Body, balance: Balance) -> Body | None:
    """What a lost line says of an account beside amounts and attempts, None where the ledger says it."""
    if isinstance(lost, Raised) and not lost.budget.is_within_budget(balance.budget):
        here, there = balance.budget, lost.budget
        larger = replace(here, epsilon=max(here.epsilon, there.epsilon), delta=max(here.delta, there.delta))
        return Raised(budget=larger)
    if isinstance(lost, Closed):
        return None if balance.closed else lost
    if isinstance(lost, (Recognised, Released, ReleaseManifest)):
        return None if lost in map(read_body, lines.lines_of_account(entry.account, entry.plan)) else lost
    return None


def _use_up_attempts(lines: Lines) -> str:
    """Starts and ends every attempt that is paid for and has not ended; returns a sentence with their number."""
    plans = list(dict.fromkeys((entry.account, entry.plan) for entry in lines.entries(kind=Kind.CHARGE)))
    used = 0
    for account, plan in plans:
        attempts = Attempts(lines.lines_of_account(account, plan))
        for start in _starts_of_paid_attempts(attempts):
            append_line_with_balance(lines, account, start, plan=plan)
        attempts = Attempts(lines.lines_of_account(account, plan))
        for trial, attempt, resume in attempts.last_sessions_without_final_end():
            end = Ended(trial=trial, attempt=attempt, resume=resume, realised={"status": "used elsewhere"})
            append_line_with_balance(lines, account, end, plan=plan)
            used += 1
    void_open_attempts(lines, plans)
    return (
        f"{used} attempts that had not ended count as used, since the other ledger may have begun them, and searches "
        "that hide their losers do not go on. Results that had ended stay paid."
    )


def _starts_of_paid_attempts(attempts: Attempts) -> Iterator[Started]:
    """A start of every attempt that is paid for and was not started."""
    left = {trial: attempts.covered[trial] - attempts.started[trial] for trial in attempts.covered}
    left[ELSEWHERE] = attempts.number_of_spare_attempts
    for trial, count in left.items():
        first = attempts.started[trial] + 1
        for attempt in range(first, first + count):
            charge = attempts.charge_entry_covering_attempt(trial, attempt).digest
            attempts.starts[trial, attempt] = Started(trial=trial, attempt=attempt, charge=charge)
            yield attempts.starts[trial, attempt]


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
        return 0 if lines is None else lines.end_of_chain().entries
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


def _amounts_text(body: Restored) -> str:
    return " and ".join(f"{name} {body.takes[name]}" for name in sorted(body.takes, reverse=True)) or "nothing"
