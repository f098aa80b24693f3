"""This machine's memory of a ledger: the end of its chain, the balance of every account there, and where the ledger
lay.

A ledger that was deleted, lost with its mount, cut short or replaced is a whole chain like any other, and would open
with a fresh budget. So every committed write transaction and every verification stores the end in the user's state
directory, and every opening of the ledger compares it first (`accounting/ledger/compared_chain.py`). Invariants:

* The memory belongs to the ledger's identity, not to a path: a symbolic link, a mount, a moved folder or another
  address of the server leads to the same memory. That alone would take a ledger that was deleted and made anew, or
  exchanged for another one, for a new ledger. So each place, a resolved path, an address or a database, remembers the
  identity of the ledger there, and another ledger at a known place is refused, or none.
* A remembered end was read from the ledger, in the transaction that wrote it, together with the balances of all
  accounts at that end. After a crash the memory is older than the ledger, and never newer.
* The memory only grows. Only `dpsweep budget restore` replaces it by the end of another chain; the memory of the lost
  chain is kept under another name.
* The memory includes the fingerprints of data sets, the releases, and the first digits of every
  entry's digest, so that the last entry that two chains share is known.

Another machine or another user has a separate memory and detects only changes to entries that it saw itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock
from platformdirs import user_state_path

from dpsweep.accounting.chain.hash_chain import End, Kind, Lines, Row
from dpsweep.accounting.codec import INLINE, UNSTORED, Stored, StoredForm
from dpsweep.accounting.durable_files import make_folder_and_missing_parents, write_compact_json
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.bodies import Identified, LedgerIdentity, read_body
from dpsweep.accounting.validation import (
    DAMAGE,
    exception_as_short_line,
    require_json_object,
    require_text,
    turn_file_errors_into_refusal,
)

OTHER_PLACE = "; XDG_STATE_HOME names another place"

FACTS = (Kind.DATA, Kind.RELEASE, Kind.MANIFEST)
"""The kinds of entries that are remembered as they are."""

FACT_COLUMNS = ("account", "plan", "kind")

WIDTH = 8
"""Bytes that are remembered of every entry's digest: enough to tell the entries of two chains apart."""


def _remembered_entry_from_json(name: str, form: Any) -> Mapping[str, Any]:
    fact = require_json_object(name, form)
    columns = {name: require_text(name, fact[name]) for name in FACT_COLUMNS}
    return columns | {"body": require_json_object("body", fact["body"])}


Fact = Annotated[Mapping[str, Any], StoredForm(read=_remembered_entry_from_json, write=dict)]
"""An entry as it is remembered."""


@dataclass(frozen=True, kw_only=True)
class Memory(Stored):
    """A chain up to `end`: the balances of all accounts there, in JSON.

    `facts` are the entries of kinds that no balance holds, in JSON: the fingerprints of data sets, and releases.
    `digests` are those of the entries from the one after `start` on.
    """

    end: Annotated[End, INLINE] = field(default_factory=End)
    balances: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    start: Annotated[int, UNSTORED] = 0
    digests: Annotated[bytes, UNSTORED] = field(default=b"", repr=False)

    def with_further_entries(self, rows: Iterable[Row], start: int) -> Memory:
        """The memory after further entries of the same chain, those behind entry `start`: 0, or the end of this one."""
        newest: dict[str, Row] = {}
        facts = [*self.facts] if start else []
        digests, end = bytearray(), self.end if start else End()
        for row in rows:
            newest[row["account"]] = row
            if row["kind"] in FACTS:
                facts.append({name: row[name] for name in FACT_COLUMNS} | {"body": json.loads(row["body"])})
            digests += digest_prefix_bytes(row["digest"])
            end = End(entries=row["seq"], head=row["digest"])
        earlier = self.balances if start else {}
        later = {account: json.loads(row["balance"]) for account, row in newest.items()}
        return Memory(end=end, balances={**earlier, **later}, facts=tuple(facts), start=start, digests=bytes(digests))


@dataclass(frozen=True, kw_only=True)
class Digests:
    """The first bytes of every entry's digest, in a file: record n is entry n."""

    path: Path

    def read(self) -> bytes:
        """All digests; none if there is no file."""
        return self.path.read_bytes() if self.path.exists() else b""

    def has_end(self, end: End) -> bool:
        """Whether the chain had this end, which must not be the end of an empty chain."""
        if end.entries == 0:
            return False
        try:
            with self.path.open("rb") as stream:
                stream.seek(WIDTH * (end.entries - 1))
                return stream.read(WIDTH) == digest_prefix_bytes(end.head)
        except FileNotFoundError:
            return False

    def replace_digests_after_entry(self, start: int, digests: bytes) -> None:
        """Writes digests behind entry `start`, as the last ones."""
        with os.fdopen(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as stream:
            stream.seek(WIDTH * start)
            stream.write(digests)
            stream.truncate()


@dataclass(frozen=True, kw_only=True)
class RememberedEnd:
    """The memory of the ledger with this identity, which lies at `place`: a file, or an address without a password.

    `ends` is another folder of memories than that of the user, for a ledger whose memory ends with it.
    """

    identity: str
    place: str
    ends: Path | None = None

    @property
    def path(self) -> Path:
        """The file of the memory. Deleting it forgets the ledger; only a person should do so, on purpose."""
        return given_or_user_folder_of_ends(self.ends) / f"{hashed_file_name(self.identity)}.json"

    def digests(self) -> Digests:
        """The digests of the chain."""
        return Digests(path=self.path.with_suffix(".digests"))

    def read(self) -> Memory:
        """The memory of the ledger; empty for a ledger never seen."""
        try:
            form = json.loads(self.path.read_text())
            return Memory.from_json({key: value for key, value in form.items() if key != "ledger"})
        except (FileNotFoundError, NotADirectoryError):
            return Memory()
        except (OSError, *DAMAGE) as cause:
            raise LedgerDamaged(
                f"What this machine remembers of the ledger {self.place} cannot be read "
                f"({exception_as_short_line(cause)}). Where you "
                f"know that the ledger is the right one, delete {self.path}."
            ) from cause

    def check_writable_and_count_known_entries(self, known: Memory) -> int:
        """Checks, before anything is written to the ledger, that its end can be remembered.

        Returns the entry behind which the ledger has to be read for that: the end of `known`, or 0 to read all of it.
        """
        with self._errors_as_ledger_damaged():
            os.close(os.open(self._lock_path, os.O_CREAT | os.O_WRONLY, 0o600))
            return known.end.entries if self.digests().has_end(known.end) else 0

    def remember_later_end(self, known: Memory, later: Memory) -> None:
        """Remembers an end that follows from the known one; a shorter one changes nothing."""
        if later.end == known.end and later.start:
            return
        with self._errors_as_ledger_damaged(), FileLock(self._lock_path):
            current = self.read()
            grows = later.end.entries > current.end.entries or (later.start == 0 and later.end == current.end)
            if grows and (later.start == 0 or self.digests().has_end(known.end)):
                self._write_memory(later)

    def replace_by_restored_end(self, known: Memory, later: Memory) -> None:
        """Replaces `known` by the end of a restored ledger, unless it was replaced before."""
        with self._errors_as_ledger_damaged(), FileLock(self._lock_path):
            if self.read().end != known.end:
                return
            self.keep_lost_digests(known)
            self._write_memory(later)

    def keep_lost_digests(self, known: Memory) -> None:
        """Keeps the digests of a chain that was lost, so that receipts can be compared with it later."""
        with self._errors_as_ledger_damaged():
            if (digests := self.digests().path).exists():
                shutil.copyfile(digests, digests_of_lost_chain(known.end, self.ends).path)

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")

    def _write_memory(self, later: Memory) -> None:
        self.digests().replace_digests_after_entry(later.start, later.digests)
        form = {"ledger": self.place} | later.to_json()
        partial = self.path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            json.dump(form, stream, allow_nan=False)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(self.path)  # the folder is not flushed: a power cut may leave an older memory

    @contextmanager
    def _errors_as_ledger_damaged(self) -> Iterator[None]:
        what = f"The end of the ledger {self.place} cannot be remembered in {self.path.parent}"
        with turn_file_errors_into_refusal(LedgerDamaged, what, OTHER_PLACE):
            make_folder_and_missing_parents(self.path.parent)
            yield


def digests_of_lost_chain(end: End, ends: Path | None = None) -> Digests:
    """The digests of a chain that was lost at this end and restored."""
    return Digests(path=given_or_user_folder_of_ends(ends) / f"lost-{end.head[: 2 * WIDTH]}.digests")


def memories_of_other_ledgers(identities: Iterable[str], ends: Path | None = None) -> Iterator[tuple[str, Memory]]:
    """The place and the memory of each ledger without one of these identities; a file that cannot be read is no memory.

    Nothing is refused by another ledger's memory: it only says what was spent elsewhere.
    """
    own = set(map(hashed_file_name, identities))
    for path in sorted(given_or_user_folder_of_ends(ends).glob("*.json")):
        with suppress(OSError, *DAMAGE):
            if path.stem not in own:
                form = json.loads(path.read_text())
                yield require_text("ledger", form.pop("ledger")), Memory.from_json(form)


def given_or_user_folder_of_ends(ends: Path | None) -> Path:
    """The folder of memories, that of the user unless another one is given."""
    return ends or user_state_path("dpsweep") / "ends"


def hashed_file_name(name: str) -> str:
    """The name of a file for any text."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def digest_prefix_bytes(digest: str) -> bytes:
    """The first bytes of an entry's digest."""
    return bytes.fromhex(digest[: 2 * WIDTH])


def all_ledger_identities(lines: Lines | None) -> tuple[str, ...]:
    """The identities that a ledger had, the present one last; none without a line."""
    first = None if lines is None else lines.identity_in_first_line()
    if lines is None or first is None:
        return ()
    bodies = [read_body(entry) for entry in lines.lines_of_kind(Kind.IDENTITY)]
    return (first, *(body.identity for body in bodies if isinstance(body, Identified)))


def present_ledger_identity(lines: Lines | None) -> str | None:
    """The identity of a ledger, None without a line."""
    known = all_ledger_identities(lines)
    return known[-1] if known else None


@dataclass(frozen=True, kw_only=True)
class KnownPlace(Stored):
    """What a file says of one place: the identity of the ledger that lay there last."""

    place: str
    identity: LedgerIdentity


@dataclass(frozen=True, kw_only=True)
class KnownPlaces:
    """The memory of the places of one ledger; a place is a text, under which the ledger is looked for."""

    places: Sequence[str]
    ends: Path | None = None

    def identities_by_place(self) -> dict[str, str]:
        """The identity of the ledger that each place had last, by place; without places never seen."""
        known = {place: self._read_identity(place) for place in self.places}
        return {place: identity for place, identity in known.items() if identity is not None}

    def remember_identity(self, identity: str) -> None:
        """Remembers which ledger lies at these places."""
        for place in self.places:
            if self._read_identity(place) != identity:
                self._write_identity(place, identity)

    def place_file(self, place: str) -> Path:
        """The file of a place; deleting it forgets which ledger lay there. Only a person should do so, on purpose."""
        return given_or_user_folder_of_ends(self.ends) / f"{hashed_file_name(place)}.place"

    def _read_identity(self, place: str) -> str | None:
        path = self.place_file(place)
        try:
            return KnownPlace.from_json(json.loads(path.read_text())).identity
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, *DAMAGE) as cause:
            raise LedgerDamaged(
                f"What this machine remembers of {place} cannot be read ({exception_as_short_line(cause)}). Where you "
                "know that the "
                f"ledger there is the right one, delete {path}."
            ) from cause

    def _write_identity(self, place: str, identity: str) -> None:
        path = self.place_file(place)
        what = f"The place of the ledger {place} cannot be remembered in {path.parent}"
        with turn_file_errors_into_refusal(LedgerDamaged, what, OTHER_PLACE):
            write_compact_json(path, KnownPlace(place=place, identity=identity).to_json(), mode=0o600)
