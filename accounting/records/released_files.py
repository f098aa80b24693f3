"""What the ledger holds of a release: a salted digest of its winner, once, and one of all its files, each time.

A charge covers one winner, its configuration and weights: a second, different one is refused. A release is written
again on another day or with another document, and an older one stays as true as it was. So a folder is whole if its
files equal those of any manifest line of its plan. The line is added before the folder is in its place: after a kill,
there may be a line without a folder, and never a folder without its line. Invariants:

* Whoever has a release can check it against the ledger: the release has the salt.
* A reader of the ledger alone learns nothing of the files, nor of their number: the salt is a hash of 128 random bits
  that stay in the sweep folder. It is made again from there, so a lost release loses nothing.
* The curator's list of the files names those that differ. It decides nothing, so it may be lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.account import Attempts
from dpsweep.accounting.ledger.private_store import PRIVATE
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.accounting.validation import refuse_link, require_json_object, turn_file_errors_into_refusal

CONFIG_FILE = "config.yaml"
WINNER_FILE = "winner.json"
COVERED = (CONFIG_FILE, *OUTPUTS)
LIST_FILE = "released_files.json"
"""The name of the curator's list."""

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

    def digest_of_winner_files(self, folder: Path) -> str:
        """The SHA-256 of the salt and of the winner's files in this folder (no files if there is no winner)."""
        files = {name: folder / name for name in COVERED}
        digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.exists()}
        return sha256(json.dumps([self.salt, digests], sort_keys=True).encode()).hexdigest()

    def write_salt_and_covered_names(self, folder: Path) -> None:
        """Writes the salt and the names of the files that the digest covers into a release."""
        write_json(folder / WINNER_FILE, {"salt": self.salt, "covers": list(COVERED)})


@dataclass(frozen=True, kw_only=True)
class ReleasedFiles(Stored):
    """The SHA-256 of every file below a folder, by its path from there, and the salt of their common digest.

    A folder below it is listed by its path with "/" at the end.
    """

    salt: str
    files: Mapping[str, str]

    @classmethod
    def from_folder(cls, folder: Path) -> ReleasedFiles:
        """The files that lie in a release or an export.

        Raises `BadInput` for a link, for a file or a folder that cannot be read, and where the salt is missing.
        """
        winner = ReleasedWinner.read_from_release(refuse_link(folder))
        if winner is None:
            raise BadInput(f"Expected {folder / WINNER_FILE} to be there: it has the salt of the release's digest.")
        with turn_file_errors_into_refusal(BadInput, f"Expected all of {folder} to be readable"):
            files = dict(_iterate_paths_with_digests(folder))
        return cls(salt=winner.salt, files=dict(sorted(files.items())))

    @property
    def manifest_digest(self) -> str:
        """The SHA-256 of a domain tag, the salt and all files: what the ledger holds."""
        canonical = json.dumps([self.salt, self.files], sort_keys=True, separators=(",", ":"))
        return sha256(DOMAIN.encode() + canonical.encode("ascii")).hexdigest()

    def differing_paths(self, other: ReleasedFiles) -> tuple[str, ...]:
        """The paths of the files that are missing in one of both, or differ."""
        paths = sorted(self.files.keys() | other.files.keys())
        return tuple(path for path in paths if self.files.get(path) != other.files.get(path))

    def write_into_curator_list(self, curator: Path, folder: str) -> None:
        """Writes the files of a release or an export into the curator's list, readable by its owner alone."""
        lists = {**_read_curator_list(curator), folder: self.to_json()}
        write_json(curator / LIST_FILE, lists, mode=PRIVATE)

    @classmethod
    def read_from_curator_list(cls, curator: Path, folder: str) -> ReleasedFiles | None:
        """The files of a release or an export in the curator's list; None if it has none, or is damaged."""
        form = _read_curator_list(curator).get(folder)
        return None if form is None else cls.from_json(form)


def _iterate_paths_with_digests(folder: Path) -> Iterator[tuple[str, str]]:
    """The paths below a folder with their digests; raises OSError for a folder that cannot be listed."""
    for place, folders, files in os.walk(folder, onerror=_raise_error):
        for name in folders:
            yield f"{refuse_link(Path(place, name)).relative_to(folder).as_posix()}/", FOLDER
        for name in files:
            path = refuse_link(Path(place, name))
            if not path.is_file():
                raise BadInput(f"Expected {path} to be a file.")
            yield path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()


def _raise_error(cause: OSError) -> None:
    raise cause


def verify_release_files_and_describe(folder: Path, curator: Path, attempts: Attempts) -> str:
    """Compares the files of a release or an export with the manifest lines of its plan, and returns a sentence.

    It has the date of the line that has these files, and says if there is a later one. Raises `ContractBroken`, with
    the names of the files that differ from the curator's list, if no line has them.
    """
    if not folder.exists():
        return ""
    present = ReleasedFiles.from_folder(folder)
    lines = [(at[:10], body.manifest) for at, body in attempts.manifests if body.folder == folder.name]
    days = [day for day, manifest in lines if manifest == present.manifest_digest]
    if days:
        later = "" if lines[-1][1] == present.manifest_digest else f", and a later one was made on {lines[-1][0]}"
        return f" Its {folder.name} is the one of {days[-1]}{later}."
    noted = ReleasedFiles.read_from_curator_list(curator, folder.name)
    known = noted is not None and noted.manifest_digest in {manifest for _, manifest in lines}
    names = present.differing_paths(noted) if known and noted is not None else ()
    raise ContractBroken(
        f"The files in {folder} are those of no {folder.name} in the ledger"
        f"{f'; not as in the last one: {_first_names_text(names)}' if names else ''}. "
        f"`dpsweep {folder.name} {folder.parent}` writes it again."
    )


def _first_names_text(names: tuple[str, ...], most: int = 5) -> str:
    more = len(names) - most
    return f"{', '.join(names[:most])}{f' and {more} more' if more > 0 else ''}"


def _read_curator_list(curator: Path) -> Mapping[str, Any]:
    return parse_json_file_or_none(curator / LIST_FILE, lambda form: require_json_object(LIST_FILE, form)) or {}
