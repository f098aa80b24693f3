"""A chain that compares itself, each time it is opened, with what this machine remembers; and checks beyond its hashes.

Balances must follow from one another, and remembered ends must be in the chain; this machine
(`accounting/ledger/remembered_ends.py`) and receipts remember ends.

The ledger at a known place must be the one that lay there last, and a ledger of a known identity must have the end that
is remembered of it, wherever it lies. A reader reads the memory before the entries, and a writer reads it when it is
the only one, so a concurrent writer causes no false alarm. The memory is written after the commit: a crash between the
two leaves the memory older than the ledger, which is allowed, and never newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import End, Entry, Kind, Lines, random_ledger_identity
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.errors import LedgerDamaged, LedgerOpenedMeanwhile, WitnessUnreachable
from dpsweep.accounting.ledger.account import Balance
from dpsweep.accounting.ledger.bodies import Opened, Restored, read_body
from dpsweep.accounting.ledger.remembered_ends import (
    KnownPlaces,
    Memory,
    RememberedEnd,
    all_ledger_identities,
    digests_of_lost_chain,
    memories_of_other_ledgers,
    present_ledger_identity,
)
from dpsweep.accounting.ledger.witness import witness_from_environment
from dpsweep.accounting.ledger.witnessed_lines import (
    WitnessedLines,
    append_announced_lines_to_chain,
    behind_witness_message,
)
from dpsweep.accounting.validation import turn_read_errors_into_refusal

FREE = (
    *(Kind.START, Kind.RESUME, Kind.SETTLE, Kind.DATA, Kind.LAUNCH, Kind.RELEASE, Kind.MANIFEST),
    *(Kind.IDENTITY, Kind.WITNESS),
)
"""Kinds of entries that leave the balance unchanged."""


def count_verified_entries(lines: Lines, name: str) -> int:
    """The number of entries; checks that each is whole and that its balance follows from the entries before it."""
    return sum(1 for _ in verified_entries_with_balances(lines, name))


def verified_entries_with_balances(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    """All entries in order, each with the balance after it; raises `LedgerDamaged` at the first bad entry."""
    with turn_read_errors_into_refusal(f"the ledger {name}", LedgerDamaged):
        yield from _iterate_entries_with_balances(lines, name)


def _iterate_entries_with_balances(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    for entry in lines.iterate_verified_lines():
        known = balances.get(entry.account)
        if known is not None and entry.kind in FREE and entry.balance == known[0]:
            yield entry, known[1]
            continue
        body = read_body(entry)
        if known is None and isinstance(body, Opened):
            after = Balance.for_opened_account(body)
        elif known is not None and not isinstance(body, Opened):
            after = known[1].balance_after_entry(body)
        else:
            raise LedgerDamaged(f"Entry {entry.seq} of {name} does not follow from those before it: {entry.kind}.")
        if after.to_json() != entry.balance:
            raise LedgerDamaged(f"The balance in entry {entry.seq} of {name} does not follow from those before it.")
        balances[entry.account] = (entry.balance, after)
        yield entry, after


def require_remembered_ends(name: str, lines: Lines | None, ends: Sequence[End], who: str, otherwise: str = "") -> None:
    """Raises `LedgerDamaged` if the ledger lacks an end that `who` remembers; `lines` is None without a ledger."""
    missing = [end for end in ends if end.entries and (lines is None or not lines.contains_chain_end(end))]
    if missing:
        count = 0 if lines is None else lines.end_of_chain().entries
        difference = f"has {count} entries and not the" if count < missing[0].entries else "has others than the first"
        raise LedgerDamaged(
            f"The ledger {name} {difference} {missing[0].entries} that {who} remembers: it was cut short, or another "
            "one was put in its place. `dpsweep budget restore` puts back what is known, also from a copy (--backup "
            "FILE), and opens a copy for another purpose as another ledger (--as-another); or set DPSWEEP_LEDGER to "
            f"the right one{otherwise}."
        )


class ComparedChain:
    """The chain at a place; raises `LedgerDamaged` if it is not the one that this machine remembers.

    `ends` is another folder of memories than that of the user.
    """

    def __init__(self, place: str | Path, ends: Path | None = None) -> None:
        self._chain = Chain(place)
        self._ends = ends
        self._offered: str | None = None
        self._witness = witness_from_environment() if ends is None else None  # no bill depends on a rehearsal

    @property
    def file(self) -> Path | None:
        """The file that holds the chain, None for a database on a server."""
        return self._chain.file

    @property
    def name(self) -> str:
        """The place's name in messages, without a password."""
        return self._chain.name

    def identity(self) -> str:
        """The identity of the ledger; that of a ledger without a line is the one that this object would give it."""
        with self.read_transaction() as lines:
            identity = present_ledger_identity(lines)
        if identity is None:
            self._offered = self._offered or random_ledger_identity()
        return identity or str(self._offered)

    def memories_of_other_ledgers(self) -> Iterator[tuple[str, Memory]]:
        """The place and the memory of each other ledger of this machine; a copy counts those that it was made from."""
        with self.read_transaction() as lines:
            identities = all_ledger_identities(lines)
        return memories_of_other_ledgers(identities, self._ends)

    def create_if_missing(self) -> None:
        """Creates the chain if it is missing; refuses to replace a ledger that this machine remembers.

        Raises `LedgerOpenedMeanwhile` if another process gave the ledger another identity than this one told.
        """
        with self.read_transaction() as lines:
            missing = lines is None
            identity = present_ledger_identity(lines)
        if identity is not None:
            self._require_offered_identity(identity)
        if missing:
            self._chain.create_file_and_tables()

    def _require_offered_identity(self, identity: str) -> None:
        if self._offered not in (None, identity):
            raise LedgerOpenedMeanwhile(f"Another command opened the ledger {self.name}: this one begins again.")

    @contextmanager
    def read_transaction(self) -> Iterator[Lines | None]:
        """One consistent view of the entries, None if there is no chain."""
        self._append_announced_lines()
        known, seen = self._identity_and_memory_dicts()
        with self._chain.read_transaction() as lines:
            self._check_against_memories(lines, known, seen)
            yield lines

    @contextmanager
    def write_transaction(self) -> Iterator[Lines | None]:
        """As in `Chain.write_transaction`; a witness sees it before the commit, the memory after it."""
        with ExitStack() as stack:
            lines = self._begin_write_transaction(stack)
            places = self._known_places
            known = places.identities_by_place()
            identity = present_ledger_identity(lines)
            if identity is not None:
                self._require_offered_identity(identity)
            identity = identity or self._offered or random_ledger_identity()
            remembered = self._remembered_end_of_identity(identity)
            memory = remembered.read()
            start = remembered.check_writable_and_count_known_entries(memory)
            self._check_against_memories(lines, known, {identity: memory})
            if lines is None:
                yield None
                return
            lines.set_identity_for_first_line(identity)
            witnessed = WitnessedLines.for_new_transaction(lines, self._witness, self.name)
            yield lines
            witnessed.declare_witness_if_new()
            later = memory.with_further_entries(lines.rows_after_number(start), start)
            witnessed.announce_to_witness(later)
        if later.end.entries:
            remembered.remember_later_end(memory, later)
            places.remember_identity(identity)

    def _begin_write_transaction(self, stack: ExitStack) -> Lines | None:
        """Begins a write transaction in which no announced line is missing; it ends with the stack.

        Another command may have announced lines and died while this one waited for the lock: they are appended first.
        """
        self._append_announced_lines()
        with ExitStack() as first:
            lines = first.enter_context(self._chain.write_transaction())
            if not self._is_ledger_behind_witness(lines):
                stack.push(first.pop_all())
                return lines
        self._append_announced_lines()
        return stack.enter_context(self._chain.write_transaction())

    def _is_ledger_behind_witness(self, lines: Lines | None) -> bool:
        """Whether the witness, if it can be asked, knows further lines."""
        with suppress(WitnessUnreachable):
            return (
                lines is not None
                and WitnessedLines.for_new_transaction(lines, self._witness, self.name).witness_state_if_ahead()
                is not None
            )
        return False

    def hold_named_lock(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock, as in `Chain.hold_named_lock`."""
        return self._chain.hold_lock_or_refuse(name, what)

    def verify_and_count_entries(self, ends: Sequence[End]) -> int:
        """Walks the chain and returns its number of entries; also compares `ends`, which receipts remember.

        Ends of a lost chain are accepted if its restoration is on the record.
        """
        self._append_announced_lines()
        known, seen = self._identity_and_memory_dicts()
        with self._chain.read_transaction() as lines:
            count = 0 if lines is None else count_verified_entries(lines, self.name)
            identity = present_ledger_identity(lines)
            if lines is None or identity is None:
                require_remembered_ends(self.name, lines, ends, "a receipt")
                self._check_against_memories(lines, known, seen)
                return 0
            remembered = self._remembered_end_of_identity(identity)
            memory = seen.get(identity) or remembered.read()
            start = remembered.check_writable_and_count_known_entries(memory)
            require_remembered_ends(self.name, lines, _ends_not_covered_by_restoration(lines, ends), "a receipt")
            self._check_against_memories(lines, known, seen)
            later = memory.with_further_entries(lines.rows_after_number(start), start)
        remembered.remember_later_end(memory, later)
        self._known_places.remember_identity(identity)
        return count

    def _append_announced_lines(self) -> None:
        """Appends what a killed command announced; raises `LedgerDamaged` if the witness is ahead in any other way.

        A witness that cannot be asked hinders no reading; a charge, a launch or a release asks it again.
        """
        with suppress(WitnessUnreachable):
            if append_announced_lines_to_chain(self._chain, self._witness) is not None and self._witness is not None:
                raise LedgerDamaged(behind_witness_message(self._witness, self.name))

    @property
    def _known_places(self) -> KnownPlaces:
        return KnownPlaces(places=self._chain.places, ends=self._ends)

    def _remembered_end_of_identity(self, identity: str) -> RememberedEnd:
        return RememberedEnd(identity=identity, place=self.name, ends=self._ends)

    def _identity_and_memory_dicts(self) -> tuple[dict[str, str], dict[str, Memory]]:
        """The ledgers that lay at these places, by place, and the memories of these ledgers, by identity.

        At a place that this machine has not seen, the ledger itself says whose memory is to be read.
        """
        known = self._known_places.identities_by_place()
        identities = set(known.values())
        if not known:
            with self._chain.read_transaction() as lines:
                identities = set(all_ledger_identities(lines)[-1:])
        return known, {identity: self._remembered_end_of_identity(identity).read() for identity in identities}

    def _check_against_memories(self, lines: Lines | None, known: dict[str, str], seen: dict[str, Memory]) -> None:
        """Compares the ledger with those `known` at its places and with the memories `seen` before it was read."""
        identities = all_ledger_identities(lines)
        for identity in dict.fromkeys((*known.values(), *identities[-1:])):
            end = (seen.get(identity) or self._remembered_end_of_identity(identity).read()).end
            if identity in identities:
                files = str(self._remembered_end_of_identity(identity).path)
            else:
                places = self._known_places
                files = " and ".join(str(places.place_file(place)) for place, one in known.items() if one == identity)
            otherwise = f"; if it was on purpose, delete {files}"
            require_remembered_ends(self.name, lines, [end], "this machine", otherwise)
            if identity not in identities:
                raise LedgerDamaged(
                    f"The ledger {self.name} is not the one that this machine remembers there: another one was put in "
                    f"its place, or it was lost. Set DPSWEEP_LEDGER to the right one{otherwise}."
                )


def _ends_not_covered_by_restoration(lines: Lines, ends: Sequence[End]) -> Sequence[End]:
    """The ends remembered by receipts whose loss no recorded restoration accounts for."""
    known: set[End] = set()
    lost: list[End] = []
    for entry in lines.lines_of_kind(Kind.RESTORED):
        body = read_body(entry)
        if isinstance(body, Restored):
            known |= set(body.ends)
            lost += [] if body.remembered is None else [body.remembered]
    return [
        end
        for end in ends
        if end not in known
        and not any(one.entries >= end.entries and digests_of_lost_chain(one).has_end(end) for one in set(lost))
    ]
