"""Restoration of a ledger that was lost, cut short or replaced by an older copy: never less than what was reserved.

All of the following is restored in one transaction, so that an interrupted restoration can simply be repeated:

1. the entries of a backup that follow those of the current ledger, digest by digest;
2. for every account that this machine remembers, the amounts that the lost entries took
   (`accounting/restoration/lost_amounts.py`), a raised budget, a closing, the fingerprints of its data, its releases;
3. for every charge that receipts in sweep folders name and that nothing else accounts for, the price of their plan.

A ledger that is gone is made again with the identity that this machine remembers. A copy of a ledger may go on as
another one, if a person says so: it gets an identity of its own, and every attempt that its charges pay for and that
did not end in the copy counts as spent, since it may have begun in the original.

Each is an entry of a separate kind, which says what it stands for and is written also if nothing has to be charged.
Sums may exceed the budget, since the costs have already happened. An altered entry is never repaired: its ledger is
set aside for a backup, or refused: it is renamed, never repaired and never deleted. Only this module replaces the
memory of this machine by an end that does not follow from it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import End, Kind, Lines, random_ledger_identity
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.durable_files import flush_folder
from dpsweep.accounting.errors import BadInput, DpsweepError, LedgerDamaged
from dpsweep.accounting.ledger.bodies import Restored, read_body
from dpsweep.accounting.ledger.compared_chain import count_verified_entries
from dpsweep.accounting.ledger.remembered_ends import (
    KnownPlaces,
    Memory,
    RememberedEnd,
    all_ledger_identities,
    present_ledger_identity,
)
from dpsweep.accounting.ledger.witness import VARIABLE, witness_from_environment
from dpsweep.accounting.ledger.witnessed_lines import WitnessedLines, append_announced_lines_to_chain
from dpsweep.accounting.restoration.restored_lines import Receipts, Restoration, give_new_identity_and_use_up_attempts
from dpsweep.accounting.validation import turn_file_errors_into_refusal

DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's error codes for a file without our tables or that is no database; not for one in use or out of reach."""


def quarantine_damaged_ledger_and_describe(chain: Chain) -> tuple[str, ...]:
    """Renames the ledger's file if it is damaged, and says so; a whole ledger, or none, stays as it is."""
    try:
        with chain.read_transaction() as lines:
            if lines is not None:
                count_verified_entries(lines, chain.name)
        return ()
    except LedgerDamaged as damage:
        if chain.file is None:
            raise LedgerDamaged(
                f"{damage} Its tables are not put aside from here: let the database's owner rename them."
            ) from damage
        if damage.__cause__ is not None and not _is_database_damage_error(damage.__cause__):
            raise
        other = _rename_ledger_file_aside(chain.file)
        return (f"{damage} It was put aside as {other}.",)


def _rename_ledger_file_aside(file: Path) -> Path:
    """Renames a file and the files that belong to it, unless another process has it open."""
    _merge_write_ahead_log(file)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    other = file.with_name(f"{file.name}.damaged-{stamp}")
    if other.exists():
        raise LedgerDamaged(f"The ledger {file} cannot be put aside: {other} is there.")
    with turn_file_errors_into_refusal(LedgerDamaged, f"The ledger {file} cannot be put aside"):
        for ending in ("-wal", "-shm", ""):
            if (part := Path(f"{file}{ending}")).exists():
                part.replace(f"{other}{ending}")
        flush_folder(file.parent)
    return other


def _merge_write_ahead_log(file: Path) -> None:
    """Merges the write-ahead log into the file, which is then complete alone; ignores files that are no database."""
    try:
        with closing(sqlite3.connect(file, timeout=5)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as cause:
        if not _is_database_damage_error(cause):
            raise LedgerDamaged(f"The ledger {file} is in use, so it is not put aside: {cause}.") from cause


def _is_database_damage_error(cause: BaseException | None) -> bool:
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def digests_of_paid_charges(place: str | Path) -> frozenset[str]:
    """The digests of the charges that a ledger holds or has restored; none for a damaged ledger.

    The memory of this machine is not compared. Only for leaving out folders that are paid for:
    `restore_ledger_and_describe` decides later, in one transaction.
    """
    with suppress(LedgerDamaged), Chain(place).read_transaction() as lines:
        if lines is None:
            return frozenset()
        bodies = [read_body(entry) for entry in lines.lines_of_kind(Kind.RESTORED)]
        restored = [digest for body in bodies if isinstance(body, Restored) for digest in body.charges]
        return frozenset({entry.digest for entry in lines.lines_of_kind(Kind.CHARGE)}.union(restored))
    return frozenset()


def lost_entries_sentence(place: str | Path, backup: str | Path | None) -> str:
    """What a restoration cannot bring back, before it is made: a sentence; empty if no lines are lost."""
    chain, texts = Chain(place), []
    for identity in dict.fromkeys(
        (*KnownPlaces(places=chain.places).identities_by_place().values(), *_present_identity_unless_damaged(chain))
    ):
        end = RememberedEnd(identity=identity, place=chain.name).read().end
        if not _chain_contains_end(chain, end) and (backup is None or not _chain_contains_end(Chain(backup), end)):
            texts.append(
                f"Up to {end.entries} entries of {chain.name} are lost, and only a copy that has them (--backup FILE) "
                "brings them back: sweeps that were charged or ended in them stay paid, but can no longer be verified, "
                "reported or released."
            )
    return " ".join(texts)


def _chain_contains_end(chain: Chain, end: End) -> bool:
    """Whether a ledger has this end; a damaged one is judged by whoever restores it."""
    with suppress(LedgerDamaged), chain.read_transaction() as lines:
        return end.entries == 0 or (lines is not None and lines.contains_chain_end(end))
    return False


def restore_ledger_and_describe(
    place: str | Path,
    *,
    backup: str | Path | None,
    folders: Sequence[Receipts],
    as_another: bool = False,
    new_witness: bool = False,
) -> tuple[str, ...]:
    """Restores the ledger at a place; returns one sentence for each thing that was done, none if nothing is missing.

    With `as_another`, the ledger there goes on as another one beside the one that it is a copy of. With `new_witness`,
    a witness that holds nothing of it takes the place of one that was lost.
    Raises `LedgerDamaged` if an entry of the ledger or of the backup was altered, or if nothing is known about the
    loss; `BadInput` if the backup belongs to another ledger, or if there is no ledger to go on as another one.
    """
    chain = Chain(place)
    places, witness = KnownPlaces(places=chain.places), witness_from_environment()
    with _open_backup_and_quarantine_ledger(chain, backup) as (copy, words):
        if not new_witness:
            append_announced_lines_to_chain(chain, witness)
        there = dict.fromkeys(
            (
                *places.identities_by_place().values(),
                *_present_identity_unless_damaged(chain),
                *all_ledger_identities(copy)[-1:],
            )
        )
        memories = tuple(RememberedEnd(identity=identity, place=chain.name) for identity in there)
        known = {memory: memory.read() for memory in memories}
        if all(one == Memory() for one in known.values()) and not (backup or folders or as_another or witness):
            return ()
        for memory in memories:
            memory.check_writable_and_count_known_entries(known[memory])
        if not as_another:
            chain.create_file_and_tables()
        with chain.write_transaction() as lines:
            if lines is None or (as_another and present_ledger_identity(lines) is None):
                raise _missing_ledger_error(chain.name, as_another=as_another)
            offered = next(iter(there), random_ledger_identity())
            lines.set_identity_for_first_line(offered)
            witnessed = WitnessedLines.for_new_transaction(lines, witness, chain.name)
            state = (
                None
                if witness is None or new_witness
                else witness.read_state(present_ledger_identity(lines) or offered)
            )
            work = Restoration(
                lines=lines,
                chain=chain,
                known=known,
                witnessed=witnessed,
                state=state,
                offered=offered,
                as_another=as_another,
            )
            sentences = (*words, *work.restore_all_and_describe(copy, folders))
            if as_another:
                sentences += (give_new_identity_and_use_up_attempts(lines, chain.name),)
            if new_witness:
                sentences += (_declare_new_witness_and_describe(witnessed),)
            witnessed.declare_witness_if_new()
            lost = {memory for memory in memories if not lines.contains_chain_end(known[memory].end)}
            identity = present_ledger_identity(lines)
            later = Memory().with_further_entries(lines.rows_after_number(0), 0)
            witnessed.replace_witness_state(None if as_another else state, later)
        for memory in lost:
            memory.keep_lost_digests(known[memory])
        if identity is not None:
            now = RememberedEnd(identity=identity, place=chain.name)
            (now.replace_by_restored_end if now in lost else now.remember_later_end)(known.get(now, Memory()), later)
            places.remember_identity(identity)
    return sentences


def _present_identity_unless_damaged(chain: Chain) -> tuple[str, ...]:
    """The identity of the ledger that lies there; none for a damaged one, which only a backup replaces."""
    with suppress(LedgerDamaged), chain.read_transaction() as lines:
        return all_ledger_identities(lines)[-1:]
    return ()


def _declare_new_witness_and_describe(witnessed: WitnessedLines) -> str:
    if witnessed.witness is None or not witnessed.declared:
        raise BadInput(f"Expected {VARIABLE} to name a new witness, and {witnessed.name} to have lost one.")
    if witnessed.witness.read_state(present_ledger_identity(witnessed.lines) or "") is not None:
        raise BadInput(
            f"Expected {VARIABLE} to name a new witness, but {witnessed.witness.name} holds lines of {witnessed.name}: "
            "name one that holds nothing of it."
        )
    witnessed.append_witness_line()
    return f"{witnessed.witness.name} is the witness of {witnessed.name} from now on."


def _missing_ledger_error(name: str, *, as_another: bool) -> DpsweepError:
    if as_another:
        return BadInput(f"Expected {name} to be a ledger that goes on as another one.")
    return LedgerDamaged(f"The ledger {name} was taken away while it was being restored.")


@contextmanager
def _open_backup_and_quarantine_ledger(
    chain: Chain, backup: str | Path | None
) -> Iterator[tuple[Lines | None, tuple[str, ...]]]:
    """The entries of a whole backup, and messages; a damaged ledger that the backup replaces is set aside."""
    if backup is None:
        yield None, ()
        return
    with Chain(backup).read_transaction() as lines:
        if lines is None:
            raise BadInput(f"Expected --backup={backup} to be a copy of a ledger.")
        count_verified_entries(lines, str(backup))
        yield lines, quarantine_damaged_ledger_and_describe(chain)
