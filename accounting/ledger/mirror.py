"""A mirror: the lines of a ledger once more, in a file elsewhere, so that lines which the ledger loses come back.

A ledger that was deleted, cut short, replaced by an older copy or restored with its machine is a whole chain like any
other, and would open with budget that was spent. Invariants:

* A mirror has only lines that were committed: a line is committed, then appended to every mirror and flushed, and only
  then does a charge, a start or a release return. What a killed command did not append, the next command that writes
  appends before anything else. So two chains that differ after a common line are always two ledgers.
* The file is named by the ledger's identity, not by its path: a moved ledger, a link or a copy has the same mirror.
* Lines are only ever appended, after the line that the ledger has there, under a lock beside the file. A torn last
  line is dropped; a line that does not follow from the one before is damage.

Whoever keeps a machine and its mirrors from a common earlier time has nothing that remembers the lines since.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock
from platformdirs import user_state_path

from dpsweep.accounting.chain.hash_chain import COLUMNS, End, Kind, Lines, Row, follows_line
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.codec import Stored
from dpsweep.accounting.durable_files import flush_folder, make_folder_and_missing_parents, write_compact_json
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.bodies import LedgerIdentity
from dpsweep.accounting.team_folder import mode_with_group
from dpsweep.accounting.validation import (
    DAMAGE,
    exception_as_short_line,
    turn_file_errors_into_refusal,
    turn_read_errors_into_refusal,
)

PRIVATE = 0o600
ENDING = ".jsonl"
BLOCK = 1 << 16
"""The bytes that are read at a time from the end of a mirror."""


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A file with one line of JSON for each line of a ledger, in order: the values of its `COLUMNS`."""

    path: Path

    def exists(self) -> bool:
        """Whether the file exists; it may be empty, if the command that made it was killed."""
        return os.access(self.path, os.F_OK)

    def create(self) -> None:
        """Creates the file, empty, if it is missing."""
        with self._errors("written"):
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, mode_with_group(self.path, PRIVATE)))
            flush_folder(self.path.parent)

    def end(self) -> End:
        """The end of the chain in the file; that of an empty chain if it cannot be read, which hinders no reader.

        Whoever writes opens the file too, and is refused.
        """
        with suppress(OSError), self.path.open("rb") as stream:
            return self._end_of_line(_end_of_whole_lines(stream)[1])
        return End()

    def rows(self) -> list[Row]:
        """All lines; raises `LedgerDamaged` if one was altered or does not follow from the line before."""
        with self._errors("read"):
            whole = self.path.read_bytes().rpartition(b"\n")[0]
        rows = [self._row(line) for line in whole.split(b"\n")] if whole else []
        for seq, row in enumerate(rows, start=1):
            if not follows_line(row, rows[seq - 2] if seq > 1 else None):
                raise self._damage(f"line {seq} was altered")
        return rows

    def follow(self, chain: Chain) -> None:
        """Appends the ledger's lines that the file lacks, and flushes them.

        Raises `LedgerDamaged` if the file cannot be written, or has a line that the ledger does not have.
        """
        lock = FileLock(f"{self.path}.lock", mode=mode_with_group(self.path, PRIVATE))
        with self._errors("written"), lock, self.path.open("r+b") as stream:
            place, last = _end_of_whole_lines(stream)
            end = self._end_of_line(last)
            with chain.read_transaction() as lines:
                if lines is None or not lines.contains_chain_end(end):
                    raise LedgerDamaged(two_ledgers_message(chain.name, self.path))
                stream.seek(place)
                stream.truncate()
                for row in lines.rows_after_number(end.entries):
                    stream.write(json.dumps([row[name] for name in COLUMNS]).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def put_aside(self) -> Path:
        """Renames the file, so that another one may begin; returns its new path."""
        other = self.path.with_name(f"{self.path.name}.{self.end().head[:16]}")
        with self._errors("written"):
            self.path.replace(other)
        return other

    def _end_of_line(self, line: bytes) -> End:
        if not line:
            return End()
        row = self._row(line)
        return End(entries=row["seq"], head=row["digest"])

    def _row(self, line: bytes) -> Row:
        try:
            values = json.loads(line)
            return dict(zip(COLUMNS, values, strict=True))
        except DAMAGE as cause:
            raise self._damage(exception_as_short_line(cause)) from cause

    def _damage(self, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"The mirror {self.path} is damaged: {what}. Put it aside, and `dpsweep budget mirror` writes it again "
            "where you know that the ledger has all its lines."
        )

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        with turn_file_errors_into_refusal(LedgerDamaged, f"The mirror {self.path} cannot be {verb}"):
            yield


def two_ledgers_message(name: str, mirror: Path) -> str:
    """The message for a ledger and a mirror that each have lines which the other lacks."""
    return (
        f"The ledger {name} and its mirror {mirror} have a common beginning and then other lines each: a copy of the "
        "ledger went on by itself. Set DPSWEEP_LEDGER to the right one; or `dpsweep budget restore` charges what only "
        "the mirror has."
    )


def state_folder() -> Path:
    """The folder of this user's own mirrors, one for each ledger."""
    return user_state_path("dpsweep") / "mirrors"


def own_mirror(identity: str) -> Mirror:
    """This user's mirror of the ledger with this identity."""
    return Mirror(path=state_folder() / f"{identity}{ENDING}")


def _end_of_whole_lines(stream: IO[bytes]) -> tuple[int, bytes]:
    """Where the last whole line of a file ends, and that line; 0 and nothing without one."""
    start = size = stream.seek(0, os.SEEK_END)
    tail = b""
    while start and tail.count(b"\n") < 2:
        start = max(0, start - BLOCK)
        stream.seek(start)
        tail = stream.read(min(BLOCK, size - start - len(tail))) + tail
    whole, newline, torn = tail.rpartition(b"\n")
    return size - len(torn), whole.rpartition(b"\n")[2] if newline else b""


@dataclass(frozen=True, kw_only=True)
class KnownPlace(Stored):
    """Which ledger lay last at a place: a path, or an address of a server without a password."""

    place: str
    identity: LedgerIdentity

    @staticmethod
    def path_of(place: str) -> Path:
        """The file of a place. Deleting it forgets which ledger lay there; only a person should do so, on purpose."""
        return state_folder() / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.place"

    @classmethod
    def read(cls, path: Path) -> KnownPlace | None:
        """What a file says, None if it cannot be read; whoever writes is refused then."""
        what = f"{path}, the note of which ledger lay at a place (delete it if the ledger there is the right one),"
        with suppress(OSError), turn_read_errors_into_refusal(what, LedgerDamaged):
            return cls.from_json(json.loads(path.read_text()))
        return None

    def remember(self) -> None:
        """Writes the file, if it says something else."""
        path = self.path_of(self.place)
        if self.read(path) != self:
            with turn_file_errors_into_refusal(LedgerDamaged, f"The place of a ledger cannot be written in {path}"):
                make_folder_and_missing_parents(path.parent)
                write_compact_json(path, self.to_json(), mode=PRIVATE)


def data_lines_of_other_ledgers(identity: str) -> Iterator[tuple[str, str, Any]]:
    """(place, account, body) of each line in another ledger's mirror of this user that says which data it charges.

    A file that cannot be read says nothing: no charge depends on it.
    """
    places: dict[str, str] = {}
    for path in state_folder().glob("*.place"):
        with suppress(LedgerDamaged):
            if (known := KnownPlace.read(path)) is not None:
                places[known.identity] = known.place
    for path in sorted(state_folder().glob(f"*{ENDING}")):
        with suppress(LedgerDamaged):
            for row in Mirror(path=path).rows() if path.stem != identity else ():
                if row["kind"] == Kind.DATA:
                    yield places.get(path.stem, str(path)), row["account"], json.loads(row["body"])


def rows_beyond(lines: Lines, rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
    """The mirror's lines after the last common one, and whether the ledger ends there."""
    for place in range(len(rows), 0, -1):
        if lines.contains_chain_end(End(entries=place, head=rows[place - 1]["digest"])):
            return rows[place:], lines.end_of_chain().entries == place
    return rows, lines.end_of_chain().entries == 0
