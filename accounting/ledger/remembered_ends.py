"""This machine's memory of a ledger: the end of its chain, and the balance of every account there.

A ledger that was deleted, lost with its mount, cut short or replaced is a whole chain like any other, and would open
with a fresh budget. So every committed write transaction and every verification stores the end in the user's state
directory, and every opening of the ledger compares it first (`accounting/ledger/compared_chain.py`). Invariants:

* A remembered end was read from the ledger, in the transaction that wrote it, together with the balances of all
  accounts at that end. After a crash the memory is older than the ledger, and never newer.
* The memory only grows. Only `dpsweep budget restore` replaces it by the end of another chain; the memory of the lost
  chain is kept under another name.
* The memory includes the first digits of every entry's digest, so that the last entry that two chains share is known.

Another machine or another user has a separate memory and detects only changes to entries that it saw itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_state_path

from dpsweep.accounting.chain.hash_chain import End, Lines, Row
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.folders import make_folder
from dpsweep.accounting.ledger.chain_audit import refuse_another
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.validation import DAMAGE, in_short, mapping, text

WIDTH = 8
"""Bytes that are remembered of every entry's digest: enough to tell the entries of two chains apart."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A chain up to `end`: the balances of all accounts there, in JSON; None if an older version remembered none.

    `digests` are those of the entries from the one after `start` on.
    """

    end: End = field(default_factory=End)
    balances: Mapping[str, Mapping[str, Any]] | None = None
    start: int = 0
    digests: bytes = field(default=b"", repr=False)

    def followed_by(self, rows: Iterable[Row], start: int) -> Memory:
        """The memory after further entries of the same chain, those behind entry `start`: 0, or the end of this one."""
        newest: dict[str, Row] = {}
        digests, end = bytearray(), self.end if start else End()
        for row in rows:
            newest[row["account"]] = row
            digests += shortened(row["digest"])
            end = End(entries=row["seq"], head=row["digest"])
        earlier = self.balances if start and self.balances else {}
        later = {account: json.loads(row["balance"]) for account, row in newest.items()}
        return Memory(end=end, balances={**earlier, **later}, start=start, digests=bytes(digests))


@dataclass(frozen=True, kw_only=True)
class Digests:
    """The first bytes of every entry's digest, in a file: record n is entry n."""

    path: Path

    def read(self) -> bytes:
        """All digests; none if there is no file."""
        return self.path.read_bytes() if self.path.exists() else b""

    def hold(self, end: End) -> bool:
        """Whether the chain had this end, which must not be the end of an empty chain."""
        if end.entries == 0:
            return False
        try:
            with self.path.open("rb") as stream:
                stream.seek(WIDTH * (end.entries - 1))
                return stream.read(WIDTH) == shortened(end.head)
        except FileNotFoundError:
            return False

    def write(self, start: int, digests: bytes) -> None:
        """Writes digests behind entry `start`, as the last ones."""
        with os.fdopen(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as stream:
            stream.seek(WIDTH * start)
            stream.write(digests)
            stream.truncate()


@dataclass(frozen=True, kw_only=True)
class RememberedEnd:
    """The memory of the ledger at `place`, its file or its address without a password."""

    place: str

    @property
    def path(self) -> Path:
        """The file of the memory. Deleting it forgets the ledger; only a person should do so, on purpose."""
        return user_state_path("dpsweep") / "ends" / f"{hashlib.sha256(self.place.encode()).hexdigest()[:16]}.json"

    def digests(self, lost: End | None = None) -> Digests:
        """The digests of the current chain, or those of a restored chain that was lost at this end."""
        name = self.path.stem if lost is None else f"{self.path.stem}-{lost.head[: 2 * WIDTH]}"
        return Digests(path=self.path.with_name(f"{name}.digests"))

    def read(self) -> Memory:
        """The memory of the ledger; empty for a ledger never seen."""
        try:
            form = json.loads(self.path.read_text())
            return _memory_of(form)
        except (FileNotFoundError, NotADirectoryError):
            return Memory()
        except (OSError, *DAMAGE) as cause:
            raise LedgerDamaged(
                f"What this machine remembers of the ledger {self.place} cannot be read ({in_short(cause)}). Where you "
                f"know that the ledger is the right one, delete {self.path}."
            ) from cause

    def prepare(self, known: Memory) -> int:
        """Checks, before anything is written to the ledger, that its end can be remembered.

        Returns the entry behind which the ledger has to be read for that: the end of `known`, or 0 to read all of it.
        """
        with self._writing():
            os.close(os.open(self._lock, os.O_CREAT | os.O_WRONLY, 0o600))
            whole = known.balances is not None and self.digests().hold(known.end)
            return known.end.entries if whole else 0

    def remember(self, known: Memory, later: Memory) -> None:
        """Remembers an end that follows from the known one; a shorter one changes nothing."""
        if later.end == known.end and known.balances is not None and later.start:
            return
        with self._writing(), FileLock(self._lock):
            current = self.read()
            grows = later.end.entries > current.end.entries or (later.start == 0 and later.end == current.end)
            if grows and (later.start == 0 or self.digests().hold(known.end)):
                self._store(later)

    def replace(self, known: Memory, later: Memory) -> None:
        """Replaces `known` by the end of a restored ledger, unless it was replaced before."""
        with self._writing(), FileLock(self._lock):
            if self.read().end != known.end:
                return
            if (digests := self.digests().path).exists():
                digests.replace(self.digests(lost=known.end).path)
            self._store(later)

    def refuse_another(self, lines: Lines | None, end: End) -> None:
        """Raises `LedgerDamaged` if the ledger lacks `end`, which was remembered before the ledger was read."""
        refuse_another(self.place, lines, [end], "this machine", f"; if it was on purpose, delete {self.path}")

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def _store(self, later: Memory) -> None:
        self.digests().write(later.start, later.digests)
        form = {"ledger": self.place, "entries": later.end.entries, "head": later.end.head, "balances": later.balances}
        partial = self.path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            json.dump(form, stream, allow_nan=False)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(self.path)  # the folder is not flushed: a power cut may leave an older memory

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            make_folder(self.path.parent)
            yield
        except OSError as cause:
            raise LedgerDamaged(
                f"The end of the ledger {self.place} cannot be remembered in {self.path.parent}: {cause.strerror}; "
                "XDG_STATE_HOME names another place."
            ) from cause


def shortened(digest: str) -> bytes:
    """The first bytes of an entry's digest."""
    return bytes.fromhex(digest[: 2 * WIDTH])


def _memory_of(form: Mapping[str, Any]) -> Memory:
    """The memory in a stored form; raises ValueError for values that none has."""
    balances = form.get("balances")
    if balances is not None:
        balances = {account: mapping("balances", one) for account, one in mapping("balances", balances).items()}
    return Memory(
        end=End(entries=whole("entries", form["entries"]), head=text("head", form["head"])), balances=balances
    )
