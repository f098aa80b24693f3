"""A mirror: the lines of a ledger once more, in a file elsewhere, so that lines which the ledger loses come back.

A ledger that was deleted, cut short, or replaced by an older copy is a whole chain like any other, and would open with
budget that was spent. Invariants (docs/ledger.md says what each loss does):

* A line is committed, then appended to every mirror and flushed, and only then does a charge, a start or a release
  return. The next command that writes appends first what a killed one did not. So two chains that differ after a common
  line are always two ledgers.
* A mirror is read before the ledger, so a line that is written meanwhile causes no false alarm. What lines that come
  back started may have run since: their plans are launched by a nonce that no store has, so that their receipts are
  void, and an attempt that has not ended counts as used.
* Lines are only ever appended, under a lock. A torn last line is dropped; one that does not follow is damage.
* Each user has a mirror of each ledger in a file, named by its identity; further ones, and all of a ledger on a server,
  are named by lines. The first line, or one of kind `mirror`, names its writer and machine: where it is there and the
  file is not, nothing is charged until the user says that the ledger has all its lines (`dpsweep budget mirror`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dpsweep.accounting import durable_files, errors
from dpsweep.accounting.chain.hash_chain import COLUMNS, Chain, End, Lines, Row, follows_line, new_nonce
from dpsweep.accounting.codec import Stored
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.ledger.book import Launched, LedgerIdentity, Mirrored, append_body, body_of_kind

ENDING = ".jsonl"
BLOCK = 1 << 16  # bytes that are read first from the end of a mirror


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A file with one line of JSON for each line of a ledger, in order: the values of its `COLUMNS`."""

    path: Path

    def create(self) -> None:
        """Creates the file, empty, if it is missing, and the folder of the user's own mirrors."""
        own = self.path.parent == state_folder()
        with self._errors("written", "; XDG_STATE_HOME names another place" if own else ""):
            if own:
                durable_files.make_folder_and_missing_parents(self.path.parent)
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, durable_files.mode_with_group(self.path)))
            durable_files.flush_folder(self.path.parent)

    def end(self) -> End:
        """The end of the chain in the file; an empty chain's if it cannot be read: whoever writes is refused."""
        with suppress(OSError), self.path.open("rb") as stream:
            return self._last_line(stream)[1]
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
        """Appends the ledger's lines that the file lacks, and flushes them; refuses a file with other lines."""
        with self._errors("written"), self.path.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            place, end = self._last_line(stream)
            with chain.read_transaction() as lines:
                if lines is None or not lines.had_end(end):
                    raise _two_ledgers(chain, self)
                stream.seek(place)
                stream.truncate()
                for row in lines.rows_after(end.entries):
                    stream.write(json.dumps([row[name] for name in COLUMNS]).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _last_line(self, stream: IO[bytes]) -> tuple[int, End]:
        size, length, tail = stream.seek(0, os.SEEK_END), BLOCK, b""
        while len(tail) < size and tail.count(b"\n") < 2:
            stream.seek(max(0, size - length))
            tail, length = stream.read(min(size, length)), 2 * length
        whole, newline, torn = tail.rpartition(b"\n")
        row = self._row(whole.rpartition(b"\n")[2]) if newline else None
        return size - len(torn), End() if row is None else End(entries=row["seq"], head=row["digest"])

    def _row(self, line: bytes) -> Row:
        try:
            return dict(zip(COLUMNS, json.loads(line), strict=True))
        except errors.DAMAGE as cause:
            raise self._damage(errors.exception_as_short_line(cause)) from cause

    def _damage(self, what: str) -> LedgerDamaged:
        return LedgerDamaged(
            f"The mirror {self.path} is damaged: {what}. Put it aside, and `dpsweep budget mirror` writes it again "
            "where you know that the ledger has all its lines."
        )

    def _errors(self, verb: str, way_out: str = "") -> AbstractContextManager[None]:
        return errors.turn_file_errors_into_refusal(LedgerDamaged, f"The mirror {self.path} cannot be {verb}", way_out)


def state_folder() -> Path:
    """The folder of this user's own mirrors, one for each ledger."""
    return durable_files.user_folder("state") / "mirrors"


def own_mirror(identity: str) -> Mirror:
    """This user's mirror of the ledger with this identity."""
    return Mirror(path=state_folder() / f"{identity}{ENDING}")


@dataclass(frozen=True, kw_only=True)
class KnownPlace(Stored):
    """Which ledger lay last at a place, a path or an address of a server: a person alone deletes its file."""

    place: str
    identity: LedgerIdentity

    @staticmethod
    def path_of(place: str) -> Path:
        """The file of a place."""
        return state_folder() / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.place"

    @classmethod
    def read(cls, path: Path) -> KnownPlace | None:
        """What a file says, None if it cannot be read; whoever writes is refused then."""
        what = f"{path} (delete it if the ledger there is the right one)"
        with suppress(OSError), errors.turn_read_errors_into_refusal(what, LedgerDamaged):
            return cls.from_json(json.loads(path.read_text()))
        return None

    def remember(self) -> None:
        """Writes the file."""
        path = self.path_of(self.place)
        if self.read(path) != self:
            with errors.turn_file_errors_into_refusal(
                LedgerDamaged, f"The place of a ledger cannot be written in {path}"
            ):
                durable_files.write_json(path, self.to_json(), durable_files.PRIVATE)


class MirroredChain:
    """The chain at a place, compared with its mirrors at each opening; not `mirrored` for a rehearsal."""

    def __init__(self, place: str | Path, *, mirrored: bool = True) -> None:
        self.chain, self._mirrored = Chain(place), mirrored
        self._mirrors: tuple[Mirror, ...] = ()
        self._offered: str | None = None

    def identity(self) -> str:
        """The identity of the ledger, or the one that this object would give to one without a line."""
        with self.read_transaction() as lines:
            if lines is not None and (identity := lines.identity()) is not None:
                return identity
        self._offered = self._offered or new_nonce()
        return self._offered

    def create_if_missing(self) -> None:
        """Creates the chain if it is missing, with the lines that a mirror has of it."""
        with self.read_transaction() as lines:
            missing = lines is None
        if missing:
            self.chain.create_file_and_tables()

    @contextmanager
    def read_transaction(self) -> Iterator[Lines | None]:
        """As in `Chain.read_transaction`; lines that were missing are back before."""
        self._bring_back_lines()
        with self.chain.read_transaction() as lines:
            yield lines

    @contextmanager
    def write_transaction(self) -> Iterator[Lines | None]:
        """As in `Chain`, with mirrors that follow before and after; refuses another new identity than this one told."""
        self._bring_back_lines()
        name = self.chain.name
        with self.chain.write_transaction() as lines:
            if lines is None:
                yield None
                return
            self._follow(self._mirrors, lines.end())
            if lines.identity() not in (None, self._offered) and self._offered is not None:
                raise errors.LedgerOpenedMeanwhile(f"Another command opened the ledger {name}: this one begins again.")
            lines.offered = self._offered
            yield lines
            identity = lines.identity()
            if self._mirrored and lines.newest is not None and self.chain.file is not None and identity:
                own_mirror(identity).create()  # before its line is committed
                if lines.writer not in named_mirrors(lines)[1]:
                    append_body(lines, lines.account_names()[0], Mirrored())
            mirrors, end = self.mirrors_of(lines, ()), lines.end()
        if identity is not None and self._mirrored:
            self._follow(mirrors, end)
            for place in self.chain.places:
                KnownPlace(place=place, identity=identity).remember()

    def _bring_back_lines(self) -> None:
        """Refuses two ledgers, and another than lay here."""
        while self._mirrored:
            known = self.known_here()
            ends = [(mirror, mirror.end()) for mirror in self._mirrors]
            with self.chain.read_transaction() as lines:
                mirrors, identity = self.mirrors_of(lines, known.values()), lines and lines.identity()
                missing = [one for one, end in ends if end.entries and not (lines and lines.had_end(end))]
            if missing:
                self._append_lines_of(missing[0])
            elif mirrors == self._mirrors:
                if others := [path for path, other in known.items() if other != identity]:
                    raise LedgerDamaged(
                        f"The ledger {self.chain.name} is not the one that this machine remembers there: another one "
                        "was put in its place, or it was lost. Set DPSWEEP_LEDGER to the right one, or put back a copy "
                        f"of it; if it was on purpose, delete {others[0]}."
                    )
                return
            self._mirrors = mirrors

    def _append_lines_of(self, mirror: Mirror) -> None:
        rows = mirror.rows()
        self.chain.create_file_and_tables()
        with self.chain.write_transaction() as lines:
            if lines is None:
                raise LedgerDamaged(f"The ledger {self.chain.name} was taken away while lines came back.")
            lost, is_older_copy = rows_beyond(lines, rows)
            if lost and not is_older_copy:
                raise _two_ledgers(self.chain, mirror)
            for row in lost:  # each follows from the one before it, and the first from the ledger's last
                lines.insert(row)
            void_open_attempts(lines, [(row["account"], row["plan"]) for row in lost if row["plan"]])

    def mirrors_of(self, lines: Lines | None, known: Iterable[str]) -> tuple[Mirror, ...]:
        """The user's own mirror (without a line: of the `known` ledgers), if it is or was there, and the named ones."""
        named, writers = ((), set[str]()) if lines is None else named_mirrors(lines)
        identity = lines and lines.identity()
        own = map(own_mirror, [identity] if identity else known) if self.chain.file else ()
        return (*(one for one in own if os.access(one.path, os.F_OK) or (lines and lines.writer in writers)), *named)

    def known_here(self) -> dict[Path, str]:
        """The identities of the ledgers that lay last at this place, by the file that says so."""
        known = {path: KnownPlace.read(path) for path in map(KnownPlace.path_of, self.chain.places)}
        return {path: one.identity for path, one in known.items() if one is not None}

    def _follow(self, mirrors: Iterable[Mirror], end: End) -> None:
        for mirror in mirrors:
            if not os.access(mirror.path, os.F_OK):
                own = mirror.path.parent == state_folder()
                raise LedgerDamaged(
                    f"The mirror {mirror.path} of the ledger {self.chain.name} is gone, and with it lines that the "
                    "ledger may lack. Nothing is charged. Put it back; or, where you know that the ledger has all its "
                    f"lines, `dpsweep budget mirror{'' if own else f' {mirror.path}'}` begins it again, on the record."
                )
            if mirror.end() != end or not os.access(mirror.path, os.W_OK):
                mirror.follow(self.chain)


def _two_ledgers(chain: Chain, mirror: Mirror) -> LedgerDamaged:
    return LedgerDamaged(
        f"The ledger {chain.name} and its mirror {mirror.path} have a common beginning and then other lines each: both "
        "went on. Set DPSWEEP_LEDGER to the right one; or `dpsweep budget restore` charges what only the mirror has."
    )


def rows_beyond(lines: Lines, rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
    """The mirror's lines after the last common one, and whether the ledger ends there."""
    ends = [End(), *(End(entries=seq, head=row["digest"]) for seq, row in enumerate(rows, start=1))]
    common = next(end.entries for end in reversed(ends) if lines.had_end(end))
    return rows[common:], lines.end().entries == common


def void_open_attempts(lines: Lines, plans: Iterable[tuple[str, str]]) -> None:
    """Launches plans by a nonce that no private store has: no receipt of theirs is valid, nor is an open search."""
    for account, plan in dict.fromkeys(plans):
        append_body(lines, account, Launched(nonce=new_nonce()), plan=plan)


def named_mirrors(lines: Lines) -> tuple[tuple[Mirror, ...], set[str]]:
    """The mirrors that lines name and no later one drops; who wrote the first line, or one on a mirror of their own."""
    said = [(entry.who, body_of_kind(entry, Mirrored)) for entry in lines.entries(kind=Mirrored.kind)]
    kept = {body.path: not body.dropped for _, body in said if body.path}
    writers = {first.who for first in lines.entries(seq=1)} | {who for who, body in said if not body.path}
    return tuple(Mirror(path=Path(path)) for path, stays in kept.items() if stays), writers
