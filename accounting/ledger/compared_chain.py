"""A chain that compares itself, each time it is opened, with the end that this machine remembers.

The remembered end is read before the entries, so a concurrent writer causes no false alarm. The memory is written after
the commit: a crash between the two leaves the memory older than the ledger, which is allowed, and never newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import End, Lines
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.ledger.chain_audit import count_whole, refuse_another
from dpsweep.accounting.ledger.lost_amounts import unrestored
from dpsweep.accounting.ledger.remembered_ends import RememberedEnd


class ComparedChain:
    """The chain at a place; raises `LedgerDamaged` if the chain lacks the end that is remembered of that place."""

    def __init__(self, place: str | Path) -> None:
        self._chain = Chain(place)
        self._remembered = RememberedEnd(place=self._chain.name)

    @property
    def file(self) -> Path | None:
        """The file that holds the chain, None for a database on a server."""
        return self._chain.file

    @property
    def name(self) -> str:
        """The place's name in messages, without a password."""
        return self._chain.name

    def make(self) -> None:
        """Creates the chain if it is missing; refuses to replace a ledger that this machine remembers."""
        with self.reading() as lines:
            missing = lines is None
        if missing:
            self._chain.make()

    @contextmanager
    def reading(self) -> Iterator[Lines | None]:
        """One consistent view of the entries, None if there is no chain."""
        known = self._remembered.read()
        with self._chain.reading() as lines:
            self._remembered.refuse_another(lines, known.end)
            yield lines

    @contextmanager
    def writing(self) -> Iterator[Lines | None]:
        """A write transaction, as in `Chain.writing`; its end is remembered after the commit."""
        known = self._remembered.read()
        start = self._remembered.prepare(known)
        with self._chain.writing() as lines:
            self._remembered.refuse_another(lines, known.end)
            yield lines
            later = known if lines is None else known.followed_by(lines.beyond(start), start)
        if lines is not None:
            self._remembered.remember(known, later)

    def hold(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock, as in `Chain.hold`."""
        return self._chain.hold(name, what)

    def verify(self, ends: Sequence[End]) -> int:
        """Walks the chain and returns its number of entries; also compares `ends`, which receipts remember.

        Ends of a lost chain are accepted if its restoration is on the record.
        """
        known = self._remembered.read()
        start = self._remembered.prepare(known)
        with self._chain.reading() as lines:
            count = 0 if lines is None else count_whole(lines, self.name)
            missing = ends if lines is None else unrestored(lines, ends, self._remembered)
            refuse_another(self.name, lines, missing, "a receipt")
            self._remembered.refuse_another(lines, known.end)
            later = known if lines is None else known.followed_by(lines.beyond(start), start)
        if lines is not None:
            self._remembered.remember(known, later)
        return count
