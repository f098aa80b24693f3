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

from dpsweep.accounting.chain.hash_chain import End, Entry, Kind, Lines, new_identity
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.errors import BadInput, LedgerDamaged, WitnessUnreachable
from dpsweep.accounting.ledger.account import Balance
from dpsweep.accounting.ledger.bodies import Opened, Restored, read_body
from dpsweep.accounting.ledger.remembered_ends import (
    KnownPlaces,
    Memory,
    RememberedEnd,
    identities_of,
    identity_of,
    lost_digests,
)
from dpsweep.accounting.ledger.witness import named_witness
from dpsweep.accounting.ledger.witnessed_lines import WitnessedLines, behind_witness_message, complete_chain
from dpsweep.accounting.validation import as_written

FREE = (
    *(Kind.START, Kind.RESUME, Kind.SETTLE, Kind.DATA, Kind.LAUNCH, Kind.RELEASE, Kind.MANIFEST),
    *(Kind.IDENTITY, Kind.WITNESS),
)
"""Kinds of entries that leave the balance unchanged."""


def count_whole(lines: Lines, name: str) -> int:
    """The number of entries; checks that each is whole and that its balance follows from the entries before it."""
    return sum(1 for _ in verified_entries(lines, name))


def verified_entries(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    """All entries in order, each with the balance after it; raises `LedgerDamaged` at the first bad entry."""
    with as_written(f"the ledger {name}", LedgerDamaged):
        yield from _verify_entries(lines, name)


def _verify_entries(lines: Lines, name: str) -> Iterator[tuple[Entry, Balance]]:
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    for entry in lines.walk():
        known = balances.get(entry.account)
        if known is not None and entry.kind in FREE and entry.balance == known[0]:
            yield entry, known[1]
            continue
        body = read_body(entry)
        if known is None and isinstance(body, Opened):
            after = Balance.opened(body)
        elif known is not None and not isinstance(body, Opened):
            after = known[1].after(body)
        else:
            raise LedgerDamaged(f"Entry {entry.seq} of {name} does not follow from those before it: {entry.kind}.")
        if after.to_json() != entry.balance:
            raise LedgerDamaged(f"The balance in entry {entry.seq} of {name} does not follow from those before it.")
        balances[entry.account] = (entry.balance, after)
        yield entry, after


def refuse_another(name: str, lines: Lines | None, ends: Sequence[End], who: str, otherwise: str = "") -> None:
    """Raises `LedgerDamaged` if the ledger lacks an end that `who` remembers; `lines` is None without a ledger."""
    missing = [end for end in ends if end.entries and (lines is None or not lines.holds(end))]
    if missing:
        count = 0 if lines is None else lines.end().entries
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
        self._witness = named_witness() if ends is None else None  # no bill depends on a rehearsal

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
        with self.reading() as lines:
            identity = identity_of(lines)
        if identity is None:
            self._offered = self._offered or new_identity()
        return identity or str(self._offered)

    def make(self) -> None:
        """Creates the chain if it is missing; refuses to replace a ledger that this machine remembers.

        Raises `BadInput` if another process gave the ledger another identity than this object told already.
        """
        with self.reading() as lines:
            missing = lines is None
            identity = identity_of(lines)
        if identity is not None:
            self._refuse_unless_offered(identity)
        if missing:
            self._chain.make()

    def _refuse_unless_offered(self, identity: str) -> None:
        if self._offered not in (None, identity):
            raise BadInput(f"Another command opened the ledger {self.name} just now; the same command goes on there.")

    @contextmanager
    def reading(self) -> Iterator[Lines | None]:
        """One consistent view of the entries, None if there is no chain."""
        self._complete()
        known, seen = self._remembered_ledgers()
        with self._chain.reading() as lines:
            self._compare(lines, known, seen)
            yield lines

    @contextmanager
    def writing(self) -> Iterator[Lines | None]:
        """A write transaction, as in `Chain.writing`; a witness sees it before the commit, the memory after it."""
        with ExitStack() as stack:
            lines = self._begin(stack)
            places = self._places
            known = places.identities()
            identity = identity_of(lines)
            if identity is not None:
                self._refuse_unless_offered(identity)
            identity = identity or self._offered or new_identity()
            remembered = self._memory_of(identity)
            memory = remembered.read()
            start = remembered.require_rememberable(memory)
            self._compare(lines, known, {identity: memory})
            if lines is None:
                yield None
                return
            lines.offer(identity)
            witnessed = WitnessedLines.begun(lines, self._witness, self.name)
            yield lines
            witnessed.declare()
            later = memory.followed_by(lines.beyond(start), start)
            witnessed.announce(later)
        if later.end.entries:
            remembered.remember(memory, later)
            places.remember(identity)

    def _begin(self, stack: ExitStack) -> Lines | None:
        """Begins a write transaction in which no announced line is missing; it ends with the stack.

        Another command may have announced lines and died while this one waited for the lock: they are appended first.
        """
        self._complete()
        with ExitStack() as first:
            lines = first.enter_context(self._chain.writing())
            if not self._is_behind(lines):
                stack.push(first.pop_all())
                return lines
        self._complete()
        return stack.enter_context(self._chain.writing())

    def _is_behind(self, lines: Lines | None) -> bool:
        """Whether the witness, if it can be asked, knows further lines."""
        with suppress(WitnessUnreachable):
            return lines is not None and WitnessedLines.begun(lines, self._witness, self.name).ahead() is not None
        return False

    def hold(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock, as in `Chain.hold`."""
        return self._chain.hold(name, what)

    def verify(self, ends: Sequence[End]) -> int:
        """Walks the chain and returns its number of entries; also compares `ends`, which receipts remember.

        Ends of a lost chain are accepted if its restoration is on the record.
        """
        self._complete()
        known, seen = self._remembered_ledgers()
        with self._chain.reading() as lines:
            count = 0 if lines is None else count_whole(lines, self.name)
            identity = identity_of(lines)
            if lines is None or identity is None:
                refuse_another(self.name, lines, ends, "a receipt")
                self._compare(lines, known, seen)
                return 0
            remembered = self._memory_of(identity)
            memory = seen.get(identity) or remembered.read()
            start = remembered.require_rememberable(memory)
            refuse_another(self.name, lines, _unrestored_ends(lines, ends), "a receipt")
            self._compare(lines, known, seen)
            later = memory.followed_by(lines.beyond(start), start)
        remembered.remember(memory, later)
        self._places.remember(identity)
        return count

    def _complete(self) -> None:
        """Appends what a killed command announced; raises `LedgerDamaged` if the witness is ahead in any other way.

        A witness that cannot be asked hinders no reading; a charge, a launch or a release asks it again.
        """
        with suppress(WitnessUnreachable):
            if complete_chain(self._chain, self._witness) is not None and self._witness is not None:
                raise LedgerDamaged(behind_witness_message(self._witness, self.name))

    @property
    def _places(self) -> KnownPlaces:
        return KnownPlaces(places=self._chain.places, ends=self._ends)

    def _memory_of(self, identity: str) -> RememberedEnd:
        return RememberedEnd(identity=identity, place=self.name, ends=self._ends)

    def _remembered_ledgers(self) -> tuple[dict[str, str], dict[str, Memory]]:
        """The ledgers that lay at these places, by place, and the memories of these ledgers, by identity.

        At a place that this machine has not seen, the ledger itself says whose memory is to be read.
        """
        known = self._places.identities()
        identities = set(known.values())
        if not known:
            with self._chain.reading() as lines:
                identities = set(identities_of(lines)[-1:])
        return known, {identity: self._memory_of(identity).read() for identity in identities}

    def _compare(self, lines: Lines | None, known: dict[str, str], seen: dict[str, Memory]) -> None:
        """Compares the ledger with those `known` at its places and with the memories `seen` before it was read."""
        identities = identities_of(lines)
        for identity in dict.fromkeys((*known.values(), *identities[-1:])):
            end = (seen.get(identity) or self._memory_of(identity).read()).end
            if identity in identities:
                files = str(self._memory_of(identity).path)
            else:
                places = self._places
                files = " and ".join(str(places.path(place)) for place, one in known.items() if one == identity)
            otherwise = f"; if it was on purpose, delete {files}"
            refuse_another(self.name, lines, [end], "this machine", otherwise)
            if identity not in identities:
                raise LedgerDamaged(
                    f"The ledger {self.name} is not the one that this machine remembers there: another one was put in "
                    f"its place, or it was lost. Set DPSWEEP_LEDGER to the right one{otherwise}."
                )


def _unrestored_ends(lines: Lines, ends: Sequence[End]) -> Sequence[End]:
    """The ends remembered by receipts whose loss no recorded restoration accounts for."""
    known: set[End] = set()
    lost: list[End] = []
    for entry in lines.of_kind(Kind.RESTORED):
        body = read_body(entry)
        if isinstance(body, Restored):
            known |= set(body.ends)
            lost += [] if body.remembered is None else [body.remembered]
    return [
        end
        for end in ends
        if end not in known and not any(one.entries >= end.entries and lost_digests(one).hold(end) for one in set(lost))
    ]
