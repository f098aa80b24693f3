"""The released winner of a charge: the ledger holds a salted digest of it, and the release holds the salt.

A charge covers one winner: a second, different winner of the same charge is refused. The digest in the ledger covers
the released configuration and weights. A reader with a release can check it against the ledger; a reader with only the
ledger learns nothing, since the salt is 128 random bits that stay in the sweep folder until the release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.accounting.validation import DAMAGE, in_short, text

CONFIG_FILE = "config.yaml"
WINNER_FILE = "winner.json"
COVERED = (CONFIG_FILE, *OUTPUTS)


@dataclass(frozen=True, kw_only=True)
class ReleasedWinner:
    """The salt of a release, which is part of the digest of its winner."""

    salt: str

    @classmethod
    def of(cls, secret: str, charge: str) -> ReleasedWinner:
        """The winner of the charge with this digest; `secret` are random bits that every copy of the folder has."""
        return cls(salt=sha256(f"release {charge} {secret}".encode()).hexdigest())

    @classmethod
    def read(cls, folder: Path) -> ReleasedWinner | None:
        """Reads the salt from a release, None if it has none; raises `BadInput` for a damaged file."""
        path = folder / WINNER_FILE
        try:
            return cls(salt=text("salt", json.loads(path.read_text())["salt"]))
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGE) as cause:
            raise BadInput(f"Expected {path} to be whole and readable, got {in_short(cause)}.") from cause

    def digest(self, folder: Path) -> str:
        """The SHA-256 of the salt and of the winner's files in this folder (no files if there is no winner)."""
        files = {name: folder / name for name in COVERED}
        digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
        return sha256(json.dumps([self.salt, digests], sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Writes the salt and the names of the files that the digest covers into a release."""
        write_json(folder / WINNER_FILE, {"salt": self.salt, "covers": list(COVERED)})
