"""What the ledger holds of a release: a salted digest of its winner, once, and one of all its files, each time.

A charge covers one winner, its configuration and weights: a second, different one is refused. A release is written
again on another day or with another document, and an older one stays as true as it was. So a folder is whole if its
files equal those of any manifest line of its plan. The line is added before the folder is in its place: after a kill,
there may be a line without a folder, and never a folder without its line. Invariants:

* Whoever has a release can check it against the ledger: the release has the salt.
* A reader of the ledger alone learns nothing of the files, nor of their number: the salt is a hash of 128 random bits
  that stay in the sweep folder. It is made again from there, so a lost release loses nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken, turn_file_errors_into_refusal
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.ledger.book import Attempts, Released, ReleaseManifest
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.trial_result import OUTPUTS

CONFIG_FILE = "config.yaml"
WINNER_FILE = "winner.json"
COVERED = (CONFIG_FILE, *OUTPUTS)
DOMAIN, FOLDER = "dpsweep manifest 1", "folder"
"""The tag of the digest, and what stands for the digest of a folder."""


@dataclass(frozen=True, kw_only=True)
class ReleasedWinner(Stored):
    """The salt of a release, which is part of the digest of its winner."""

    salt: str

    @classmethod
    def from_secret_and_charge(cls, secret: str, charge: str) -> ReleasedWinner:
        """The winner of the charge with this digest; `secret` are random bits that every copy of the folder has."""
        return cls(salt=sha256(f"release {charge} {secret}".encode()).hexdigest())

    @classmethod
    def read_from_release(cls, folder: Path) -> ReleasedWinner | None:
        """Reads the salt from a release, None if it has none; raises `BadInput` for a damaged file."""
        return parse_json_file_or_none(folder / WINNER_FILE, lambda form: cls.from_json({"salt": form["salt"]}))

    @classmethod
    def of_release(cls, folder: Path) -> ReleasedWinner:
        """Reads the salt from a release or an export; raises `BadInput` if it has none."""
        winner = cls.read_from_release(refuse_link(folder))
        if winner is None:
            raise BadInput(f"Expected {folder / WINNER_FILE} to be there: it has the salt of the release's digest.")
        return winner

    def digest_of_winner_files(self, folder: Path) -> str:
        """The SHA-256 of the salt and of the winner's files in this folder (no files if there is no winner)."""
        files = {name: folder / name for name in COVERED}
        digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
        return sha256(json.dumps([self.salt, digests], sort_keys=True).encode()).hexdigest()

    def write_salt_and_covered_names(self, folder: Path) -> None:
        """Writes the salt and the names of the files that the digest covers into a release."""
        write_json(folder / WINNER_FILE, {"salt": self.salt, "covers": list(COVERED)})

    def digest_of_all_files(self, folder: Path) -> str:
        """The SHA-256 of a domain tag, the salt and all files and folders below: what a manifest line holds.

        Raises `BadInput` for a link, and for a file or a folder that cannot be read.
        """
        with turn_file_errors_into_refusal(BadInput, f"Expected all of {folder} to be readable"):
            files = _digests_by_path(refuse_link(folder))
        canonical = json.dumps([self.salt, files], sort_keys=True, separators=(",", ":"))
        return sha256(DOMAIN.encode() + canonical.encode("ascii")).hexdigest()


def record_release(ledger: Ledger, account: str, *, plan: str, winner: Released, manifest: ReleaseManifest) -> None:
    """Records the winner of a charge, once, and the files of a release of it, unless the last one had them.

    Raises `BadInput`, and records nothing, for no charge of the plan, and if another winner of it was released.
    """
    with ledger.transaction(account, plan) as (lines, _, append):
        own = Attempts(lines.entries(account=account, plan=plan))
        if {winner.charge, manifest.charge} - {entry.digest for entry in own.charges}:
            raise BadInput(f"Expected charge={winner.charge} to be a charge of plan {plan} on {account}.")
        if own.released.get(winner.charge, winner.winner) != winner.winner:
            raise BadInput(
                "Expected the winner to be the one that was released before: its charge pays for one winner, and "
                "this folder has another one."
            )
        if winner.charge not in own.released:
            append(winner)
        if [body for _, body in own.manifests if body.folder == manifest.folder][-1:] != [manifest]:
            append(manifest)


def _digests_by_path(folder: Path, prefix: str = "") -> dict[str, str]:
    """The SHA-256 of each file below a folder, by its path from there; a folder is listed with "/" at the end."""
    digests: dict[str, str] = {}
    for path in map(refuse_link, folder.iterdir()):
        if path.is_dir():
            below = f"{prefix}{path.name}/"
            digests |= {below: FOLDER, **_digests_by_path(path, below)}
        elif path.is_file():
            digests[prefix + path.name] = sha256(path.read_bytes()).hexdigest()
        else:
            raise BadInput(f"Expected {path} to be a file.")
    return digests


def verify_release_files_and_describe(folder: Path, attempts: Attempts) -> str:
    """Compares the files of a release or an export with the manifest lines of its plan, and returns a sentence.

    It has the date of the line that has these files, and says if there is a later one. Raises `ContractBroken` if no
    line has them.
    """
    if not folder.exists():
        return ""
    present = ReleasedWinner.of_release(folder).digest_of_all_files(folder)
    lines = [(at[:10], body.manifest) for at, body in attempts.manifests if body.folder == folder.name]
    days = [day for day, manifest in lines if manifest == present]
    if not days:
        again = f"`dpsweep {folder.name} {folder.parent}` writes it again"
        raise ContractBroken(f"The files in {folder} are those of no {folder.name} in the ledger. {again}.")
    later = "" if lines[-1][1] == present else f", and a later one was made on {lines[-1][0]}"
    return f" Its {folder.name} is the one of {days[-1]}{later}."
