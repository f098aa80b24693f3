"""A chain that is compared with its mirrors each time it is opened, and checked beyond its hashes.

Lines that a mirror has and the ledger lacks come back as they were (`accounting/ledger/mirror.py`). What they started
may have run elsewhere since, and the private store may be older than they are. So every plan that they name is launched
by a nonce that no store has: its receipts are void, and an attempt that has not ended counts as used. A mirror is read
before the ledger, so a line that is written meanwhile causes no false alarm.

Each user has a mirror of each ledger in a file; further ones are named by lines of the ledger, so that whoever writes
keeps them. A ledger on a server has only those. The first line, or a line of kind `mirror` that another user's first
command adds, names its writer and machine: where it is there and the file is not, the copy was lost, and nothing is
charged until the user says that the ledger has all its lines (`dpsweep budget mirror`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import SPENDING, End, Entry, Kind, Lines, random_ledger_identity
from dpsweep.accounting.chain.storage import Chain
from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput, LedgerDamaged, LedgerOpenedMeanwhile
from dpsweep.accounting.ledger.account import Balance, append_line_with_balance
from dpsweep.accounting.ledger.bodies import Launched, Mirrored, Opened, read_body
from dpsweep.accounting.ledger.mirror import (
    KnownPlace,
    Mirror,
    own_mirror,
    rows_beyond,
    state_folder,
    two_ledgers_message,
)
from dpsweep.accounting.ledger.private_store import new_nonce
from dpsweep.accounting.validation import turn_file_errors_into_refusal, turn_read_errors_into_refusal

CHANGES = (Kind.OPEN, Kind.RAISE, Kind.CLOSE, *SPENDING)
"""Kinds of entries that change the balance."""


def count_verified_entries(lines: Lines, name: str) -> int:
    """The number of entries; checks that each is whole and that its balance follows from the entries before it."""
    balances: dict[str, tuple[Mapping[str, Any], Balance]] = {}
    count = 0
    with turn_read_errors_into_refusal(f"the ledger {name}", LedgerDamaged):
        for entry in lines.iterate_verified_lines():
            count, known = entry.seq, balances.get(entry.account)
            if known is not None and entry.kind not in CHANGES and entry.balance == known[0]:
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
    return count


class MirroredChain:
    """The chain at a place, with its mirrors; `mirrored` is false for the ledger of a rehearsal, which bills nobody."""

    def __init__(self, place: str | Path, *, mirrored: bool = True) -> None:
        self.chain = Chain(place)
        self._mirrored = mirrored
        self._mirrors: tuple[Mirror, ...] = ()
        self._offered: str | None = None

    def identity(self) -> str:
        """The identity of the ledger; that of a ledger without a line is the one that this object would give it."""
        with self.read_transaction() as lines:
            identity = None if lines is None else lines.identity_in_first_line()
        if identity is None:
            self._offered = self._offered or random_ledger_identity()
        return identity or str(self._offered)

    def create_if_missing(self) -> None:
        """Creates the chain if it is missing, with the lines that a mirror has of it.

        Raises `LedgerOpenedMeanwhile` if another process gave the ledger another identity than this one told.
        """
        with self.read_transaction() as lines:
            missing = lines is None
            self._require_offered_identity(None if lines is None else lines.identity_in_first_line())
        if missing:
            self.chain.create_file_and_tables()

    @contextmanager
    def read_transaction(self) -> Iterator[Lines | None]:
        """One consistent view of the entries, None if there is no chain; lines that are missing are back before."""
        self._bring_back_lines()
        with self.chain.read_transaction() as lines:
            yield lines

    @contextmanager
    def write_transaction(self, without: Mirror | None = None) -> Iterator[Lines | None]:
        """As in `Chain.write_transaction`; the mirrors have its lines when it ends, those before it from the start on.

        The mirror `without` is about to be dropped, and need not be there.
        """
        self._bring_back_lines()
        with self.chain.write_transaction() as lines:
            if lines is None:
                yield None
                return
            _follow(self.chain, [mirror for mirror in self._mirrors if mirror != without], lines.end_of_chain())
            self._require_offered_identity(lines.identity_in_first_line())
            lines.offered = self._offered
            yield lines
            if lines.newest is not None:
                self._enrol_own_mirror(lines)
            identity, mirrors, end = lines.identity_in_first_line(), self._mirrors_of(lines), lines.end_of_chain()
        if identity is not None and self._mirrored:
            _follow(self.chain, mirrors, end)
            for place in self.chain.places:
                KnownPlace(place=place, identity=identity).remember()

    def name_mirror(self, path: Path | None) -> None:
        """Adds the line that the ledger has a mirror in this file, None for the user's own, and writes the mirror."""
        with self.read_transaction() as lines:
            identity = None if lines is None else lines.identity_in_first_line()
            if lines is None or identity is None:
                raise BadInput(f"Expected {self.chain.name} to be a ledger; the first sweep makes one.")
            if path is None and self.chain.file is None:
                raise BadInput(f"Expected a file for the mirror of {self.chain.name}: a server's has no other place.")
            mirror = _own_mirror_with_folder(identity) if path is None else Mirror(path=path.absolute())
            if not lines.contains_chain_end(mirror.end()):
                raise BadInput(f"Expected {mirror.path} to be a new file: it has lines of another ledger.")
        mirror.create()
        with self.write_transaction() as lines:
            self._append_mirror_line(lines, Mirrored(path="" if path is None else str(mirror.path)))

    def drop_mirror(self, path: Path) -> None:
        """Adds the line that the ledger has no mirror in this file any more."""
        mirror = Mirror(path=path.absolute())
        with self.write_transaction(without=mirror) as lines:
            if lines is None or mirror not in named_mirrors(lines):
                raise BadInput(f"Expected {mirror.path} to be a mirror that {self.chain.name} names.")
            self._append_mirror_line(lines, Mirrored(path=str(mirror.path), dropped=True))

    def mirrors_in_reach(self) -> tuple[Mirror, ...]:
        """The mirrors that are there; of a ledger that cannot be read, the user's own of the one that lay here."""
        try:
            with self.chain.read_transaction() as lines:
                mirrors = self._mirrors_of(lines)
        except LedgerDamaged:
            mirrors = tuple(map(own_mirror, self._identities_known_here().values()))
        return tuple(mirror for mirror in mirrors if mirror.exists())

    def verify_and_count_entries(self, ends: Sequence[End]) -> int:
        """Walks the chain and returns its number of entries; also requires `ends`, which receipts remember."""
        with self.read_transaction() as lines:
            count = 0 if lines is None else count_verified_entries(lines, self.chain.name)
            for end in ends:
                if end.entries and (lines is None or not lines.contains_chain_end(end)):
                    raise LedgerDamaged(
                        f"The ledger {self.chain.name} does not have entry {end.entries} as a receipt remembers it: it "
                        "lost lines, or is another one. Put back the copy that has them, or set DPSWEEP_LEDGER to it."
                    )
        return count

    def _require_offered_identity(self, identity: str | None) -> None:
        if identity is not None and self._offered not in (None, identity):
            raise LedgerOpenedMeanwhile(f"Another command opened the ledger {self.chain.name}: this one begins again.")

    def _bring_back_lines(self) -> None:
        """Appends the lines that a mirror has and the ledger lacks.

        Raises `LedgerDamaged` if each has lines that the other lacks, or if another ledger lay here.
        """
        while self._mirrored:
            ends = [(mirror, mirror.end()) for mirror in self._mirrors]
            with self.chain.read_transaction() as lines:
                mirrors = self._mirrors_of(lines)
                missing = [one for one, end in ends if end.entries and not (lines and lines.contains_chain_end(end))]
                identity = None if lines is None else lines.identity_in_first_line()
            if missing:
                self._append_lines_of(missing[0])
            elif mirrors == self._mirrors:
                self._require_known_identity(identity)
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
                raise LedgerDamaged(two_ledgers_message(self.chain.name, mirror.path))
            lines.append_copied_rows(lost)
            void_open_attempts(lines, [(row["account"], row["plan"]) for row in lost if row["plan"]])

    def _mirrors_of(self, lines: Lines | None) -> tuple[Mirror, ...]:
        """The user's own mirror, if it is or was there, and those that the ledger names."""
        if not self._mirrored:
            return ()
        named = () if lines is None else named_mirrors(lines)
        if self.chain.file is None:
            return named
        identity = None if lines is None else lines.identity_in_first_line()
        known = [own_mirror(one) for one in ([identity] if identity else self._identities_known_here().values())]
        return tuple(one for one in known if one.exists() or (lines is not None and _has_enrolled(lines))) + named

    def _identities_known_here(self) -> dict[Path, str]:
        """The identities of the ledgers that lay last at the places of this one, by the file that says so."""
        known = {path: KnownPlace.read(path) for path in map(KnownPlace.path_of, self.chain.places)}
        return {path: one.identity for path, one in known.items() if one is not None}

    def _require_known_identity(self, identity: str | None) -> None:
        for path, known in self._identities_known_here().items():
            if known != identity:
                raise LedgerDamaged(
                    f"The ledger {self.chain.name} is not the one that this machine remembers there: another one was "
                    "put in its place, or it was lost. Set DPSWEEP_LEDGER to the right one, or put back a copy of it; "
                    f"if it was on purpose, delete {path}."
                )

    def _enrol_own_mirror(self, lines: Lines) -> None:
        """Adds the line that this user has a mirror on this machine, and creates the file before it is committed."""
        identity = lines.identity_in_first_line()
        if self._mirrored and self.chain.file is not None and identity:
            _own_mirror_with_folder(identity).create()
            if not _has_enrolled(lines):
                self._append_mirror_line(lines, Mirrored())

    def _append_mirror_line(self, lines: Lines | None, body: Mirrored) -> None:
        if lines is None:
            raise LedgerDamaged(f"The ledger {self.chain.name} was taken away while its mirror was named.")
        append_line_with_balance(lines, lines.account_names()[0], body)


def void_open_attempts(lines: Lines, plans: Iterable[tuple[str, str]]) -> None:
    """Launches plans, each after its account, by a nonce that no private store has.

    So no receipt and no open search of theirs is valid; also where a hidden search has stored its draw and was killed
    before its launch.
    """
    for account, plan in dict.fromkeys(plans):
        append_line_with_balance(lines, account, Launched(nonce=new_nonce()), plan=plan)


def _follow(chain: Chain, mirrors: Iterable[Mirror], end: End) -> None:
    """Brings mirrors up to the ledger's `end`; raises `LedgerDamaged` if one is lost or cannot be written."""
    for mirror in mirrors:
        if not mirror.exists():
            own = mirror.path.parent == state_folder()
            raise LedgerDamaged(
                f"The mirror {mirror.path} of the ledger {chain.name} is gone, so lines that this ledger may lack are "
                "not known. Nothing is charged. Put it back; or, where you know that the ledger has all its lines, "
                f"`dpsweep budget mirror{'' if own else f' {mirror.path}'}` begins it again, on the record."
            )
        if mirror.end() != end or not os.access(mirror.path, os.W_OK):
            mirror.follow(chain)


def _own_mirror_with_folder(identity: str) -> Mirror:
    with turn_file_errors_into_refusal(
        LedgerDamaged, f"The ledger cannot be mirrored in {state_folder()}", "; XDG_STATE_HOME names another place"
    ):
        make_folder_and_missing_parents(state_folder())
    return own_mirror(identity)


def named_mirrors(lines: Lines) -> tuple[Mirror, ...]:
    """The mirrors that lines of the ledger name and no later one drops."""
    named = {body.path: not body.dropped for _, body in _mirror_lines(lines) if body.path}
    return tuple(Mirror(path=Path(path)) for path, kept in named.items() if kept)


def _has_enrolled(lines: Lines) -> bool:
    """Whether the writer of this transaction wrote the first line, or one that says that it has a mirror of its own."""
    own = {entry.who for entry, body in _mirror_lines(lines) if not body.path}
    return lines.writer in own or ((first := lines.first_line()) is not None and lines.writer == first.who)


def _mirror_lines(lines: Lines) -> list[tuple[Entry, Mirrored]]:
    entries = lines.entries(kind=Kind.MIRROR)
    return [(entry, body) for entry in entries if isinstance(body := read_body(entry), Mirrored)]
