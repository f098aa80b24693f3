"""The bodies of lines about the ledger as a whole: its identity, if a copy goes on as another one, and its witness.

The rules of `accounting/ledger/bodies.py` hold here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsweep.accounting.chain.entries import Kind
from dpsweep.accounting.chain.hash_chain import IDENTITY
from dpsweep.accounting.validation import text


@dataclass(frozen=True, kw_only=True)
class Identified:
    """Gives a new identity to the copy of a ledger that goes on as another one; `former` is the identity before."""

    kind: ClassVar[Kind] = Kind.IDENTITY
    identity: str
    former: str

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        return {"identity": self.identity, "former": self.former}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Identified:
        """Reads `to_json`'s form."""
        identity = text("identity", form["identity"])
        if IDENTITY.fullmatch(identity) is None:
            raise ValueError(f"Expected identity={identity[:80]!r} to be hexadecimal digits.")
        return cls(identity=identity, former=text("former", form["former"]))


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """Says that from here on a witness sees what is charged, launched and released; `witness` is its name now.

    Where an announced release was not committed, `manifest` is that of the files that may be released in `folder`.
    """

    kind: ClassVar[Kind] = Kind.WITNESS
    witness: str
    folder: str = ""
    manifest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` restores an equal body."""
        pinned = {"folder": self.folder, "manifest": self.manifest} if self.manifest else {}
        return {"witness": self.witness} | pinned

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Witnessed:
        """Reads `to_json`'s form."""
        pinned = {name: text(name, form.get(name, "")) for name in ("folder", "manifest")}
        return cls(witness=text("witness", form["witness"]), **pinned)
