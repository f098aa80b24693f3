"""Which ledger lay at a place when this machine saw it last: a resolved path, an address, a database.

A ledger has an identity, by which its memory is found wherever it lies. That alone would take a ledger that was deleted
and made anew, or exchanged for another one, for a new ledger. So each place remembers the identity of the ledger there,
and another ledger at a known place is refused, or none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.chain.entries import Kind
from dpsweep.accounting.chain.hash_chain import Lines
from dpsweep.accounting.codec import Stored
from dpsweep.accounting.errors import LedgerDamaged
from dpsweep.accounting.json_files import write_line
from dpsweep.accounting.ledger.bodies import Identified, LedgerIdentity, read_body
from dpsweep.accounting.ledger.remembered_ends import folder_of_ends, short_hash
from dpsweep.accounting.validation import DAMAGE, in_short


def identities_of(lines: Lines | None) -> tuple[str, ...]:
    """The identities that a ledger had, the present one last; none without a line."""
    first = None if lines is None else lines.beginning()
    if lines is None or first is None:
        return ()
    bodies = [read_body(entry) for entry in lines.of_kind(Kind.IDENTITY)]
    return (first, *(body.identity for body in bodies if isinstance(body, Identified)))


def identity_of(lines: Lines | None) -> str | None:
    """The identity of a ledger, None without a line."""
    known = identities_of(lines)
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

    def identities(self) -> dict[str, str]:
        """The identity of the ledger that each place had last, by place; without places never seen."""
        known = {place: self._read(place) for place in self.places}
        return {place: identity for place, identity in known.items() if identity is not None}

    def remember(self, identity: str) -> None:
        """Remembers which ledger lies at these places."""
        for place in self.places:
            if self._read(place) != identity:
                self._write(place, identity)

    def path(self, place: str) -> Path:
        """The file of a place; deleting it forgets which ledger lay there. Only a person should do so, on purpose."""
        return folder_of_ends(self.ends) / f"{short_hash(place)}.place"

    def _read(self, place: str) -> str | None:
        path = self.path(place)
        try:
            return KnownPlace.from_json(json.loads(path.read_text())).identity
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, *DAMAGE) as cause:
            raise LedgerDamaged(
                f"What this machine remembers of {place} cannot be read ({in_short(cause)}). Where you know that the "
                f"ledger there is the right one, delete {path}."
            ) from cause

    def _write(self, place: str, identity: str) -> None:
        path = self.path(place)
        try:
            write_line(path, KnownPlace(place=place, identity=identity).to_json(), mode=0o600)
        except OSError as cause:
            raise LedgerDamaged(
                f"The place of the ledger {place} cannot be remembered in {path.parent}: {cause.strerror}; "
                "XDG_STATE_HOME names another place."
            ) from cause
