"""A chain that is compared, whenever it is opened, with the end that this machine remembers of it.

What is compared was remembered before the lines are looked at, so a writer beside us makes no false alarm. The memory
is written after the commit: a crash between the two leaves it older, which is allowed, and never newer.
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
    """The lines at a place; `LedgerDamaged` where they do not hold the end that is remembered of that place."""

    def __init__(self, place: str | Path) -> None:
        self._chain = Chain(place)
        self._remembered = RememberedEnd(place=self._chain.name)

    @property
    def file(self) -> Path | None:
        """The file that the lines lie in, None of a database on a server."""
        return self._chain.file

    @property
    def name(self) -> str:
        """What to call the place in a sentence; no password."""
        return self._chain.name

    def make(self) -> None:
        """Makes the place, unless it is there; never in the place of a ledger that this machine knows."""
        with self.reading() as lines:
            missing = lines is None
        if missing:
            self._chain.make()

    @contextmanager
    def reading(self) -> Iterator[Lines | None]:
        """One consistent view of the lines, None where nothing was made."""
        known = self._remembered.read()
        with self._chain.reading() as lines:
            self._remembered.refuse_another(lines, known.end)
            yield lines

    @contextmanager
    def writing(self) -> Iterator[Lines | None]:
        """A transaction of the only writer, as `Chain.writing` has it; its end is remembered once it is committed."""
        known = self._remembered.read()
        start = self._remembered.prepare(known)
        with self._chain.writing() as lines:
            self._remembered.refuse_another(lines, known.end)
            yield lines
            later = known if lines is None else known.followed_by(lines.beyond(start), start)
        if lines is not None:
            self._remembered.remember(known, later)

    def hold(self, name: str, what: str) -> AbstractContextManager[None]:
        """Holds a lock, as `Chain.hold` does."""
        return self._chain.hold(name, what)

    def verify(self, ends: Sequence[End]) -> int:
        """Walks the chain and returns its number of lines; also compares `ends`, which receipts remember.

        Ends of a lost chain that was restored, on the record, are no news.
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
