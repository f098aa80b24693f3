"""The winner that one charge lets out: the ledger holds a salted digest of it, and a release the salt.

A rule that pays for one winner pays for one: a second, other winner of the same charge is refused. The digest in the
ledger covers the released configuration and weights. Whoever holds a release can check it against the ledger; who has
the ledger alone learns nothing, since the salt is 128 random bits that stay in the sweep folder until the release.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from accounting.errors import BadInput
from accounting.plan import write_json
from accounting.result import MODEL_FILE

CONFIG_FILE = "config.yaml"
WINNER_FILE = "winner.json"
COVERED = (CONFIG_FILE, MODEL_FILE)


@dataclass(frozen=True, kw_only=True)
class ReleasedWinner:
    """The digest of what a release holds of its winner, and the salt that goes into it."""

    salt: str
    sha256: str

    @classmethod
    def of(cls, folder: Path, secret: str, charge: str) -> ReleasedWinner:
        """The winner whose files lie in this folder, none of them where nothing won.

        `secret` are random bits that every copy of the sweep folder holds; the salt follows from them and from the
        digest of the charge.
        """
        salt = sha256(f"release {charge} {secret}".encode()).hexdigest()
        return cls(salt=salt, sha256=_digest(folder, salt))

    @classmethod
    def read(cls, folder: Path) -> ReleasedWinner | None:
        """What a release says of its winner, None where it says nothing; raises `BadInput` where damaged."""
        path = folder / WINNER_FILE
        try:
            form = json.loads(path.read_text())
            return cls(salt=str(form["salt"]), sha256=str(form["sha256"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise BadInput(f"Expected {path} to be whole and readable, got {cause!r}.") from cause

    def covers(self, folder: Path) -> bool:
        """Whether the files in a release are those that the digest is of."""
        return _digest(folder, self.salt) == self.sha256

    def write(self, folder: Path) -> None:
        """Puts it into a release."""
        write_json(folder / WINNER_FILE, asdict(self) | {"covers": list(COVERED)})


def _digest(folder: Path, salt: str) -> str:
    files = {name: folder / name for name in COVERED}
    digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
    return sha256(json.dumps([salt, digests], sort_keys=True).encode()).hexdigest()
