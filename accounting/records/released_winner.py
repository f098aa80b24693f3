"""The winner that one charge lets out: the ledger holds a salted digest of it, and a release the salt.

A rule that pays for one winner pays for one: a second, other winner of the same charge is refused. The digest in the
ledger covers the released configuration and weights. Whoever holds a release can check it against the ledger; who has
the ledger alone learns nothing, since the salt is 128 random bits that stay in the sweep folder until the release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.records.trial_result import MODEL_FILE

CONFIG_FILE = "config.yaml"
WINNER_FILE = "winner.json"
COVERED = (CONFIG_FILE, MODEL_FILE)


@dataclass(frozen=True, kw_only=True)
class ReleasedWinner:
    """The salt of a release, which goes into the digest of its winner."""

    salt: str

    @classmethod
    def of(cls, secret: str, charge: str) -> ReleasedWinner:
        """The winner of the charge with this digest; `secret` are random bits that every copy of its folder holds."""
        return cls(salt=sha256(f"release {charge} {secret}".encode()).hexdigest())

    @classmethod
    def read(cls, folder: Path) -> ReleasedWinner | None:
        """What a release says of its winner, None where it says nothing; raises `BadInput` where damaged."""
        path = folder / WINNER_FILE
        try:
            return cls(salt=str(json.loads(path.read_text())["salt"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise BadInput(f"Expected {path} to be whole and readable, got {cause!r}.") from cause

    def digest(self, folder: Path) -> str:
        """The SHA-256 of the salt and of the winner's files in this folder, none of them where nothing won."""
        files = {name: folder / name for name in COVERED}
        digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
        return sha256(json.dumps([self.salt, digests], sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Puts the salt into a release, and the names of the files that the digest covers."""
        write_json(folder / WINNER_FILE, {"salt": self.salt, "covers": list(COVERED)})
