"""The private store of one plan: the starts and ends of its attempts, outside every sweep folder.

A sweep folder can be deleted, copied and restored, so it is only a record. The ledger cannot be, but several people
read it, and under a rule that hides its losers it must not reveal the number of tries. So the ledger and this store
together decide which trials may still train. Invariants:

* A worker claims a session of an attempt by exclusive creation of a file in the store, whatever folder it works in. So
  a receipt is used once, also if its folder was copied, and a restored folder frees no receipt.
* The steps of an attempt are marked in the store before they run (`accounting/records/step_log.py`), so a restored
  checkpoint cannot run them again.
* Every launch of a coordinator has a nonce, which is one entry of the ledger and one entry of the store. A store that
  lacks the ledger's last nonce is lost or was restored, and no attempt resumes from it. A receipt of an earlier launch
  is void.
* A claim is written to the sweep folder first, then to the store. So after any crash the store holds no claim that the
  folder lacks; if it does, the folder is an older copy.

Rules for changing this file: the program never removes anything here, and only the owner can read it. What scripts are
handed while they run lies beside the stores, and is removed.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import FOLDER, make_private_folder_durably, write_json
from dpsweep.accounting.team_folder import mode_with_group
from dpsweep.accounting.validation import require_text

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.ledger import Ledger

LAUNCH_FILE = "launch.json"
LAST_FOLDER_FILE = "folder.json"
"""Where the plan was run last."""

HOME_VARIABLE = "DPSWEEP_PRIVATE"
"""The environment variable that names the folder of private stores."""

HANDED_OVER = "handed-over"
"""The folder of what scripts of the user's are given while they run, beside the stores of all ledgers."""

NONCE_BYTES = 16
PRIVATE = 0o600


@dataclass(frozen=True)
class PathFromRoot:
    """A path by its name in the folder `root` of the object that has it, or in one so many levels above."""

    name: str
    above: int = 0

    def __get__(self, folder: Any, owner: type) -> Path:
        return Path([folder.root, *folder.root.parents][self.above], self.name)


@dataclass(frozen=True, kw_only=True)
class TrialPlace:
    """The two places of a trial: `files` in the sweep folder, the record, and `record` in the store, which decides."""

    files: Path
    record: Path

    @property
    def name(self) -> str:
        """The trial's id."""
        return self.files.name


@dataclass(frozen=True, kw_only=True)
class LastFolder(Stored):
    """The sweep folder where a plan was run last, and whether nothing of it was left to run there."""

    folder: str
    finished: bool

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)


@dataclass(frozen=True, kw_only=True)
class PrivateStore:
    """The starts and ends of one plan's attempts; `root` is a folder that only its owner can read."""

    root: Path

    features_folder = PathFromRoot("frozen-features", above=2)
    """The folder of the frozen features of records, which all plans and ledgers of a user share."""

    record_hashes_folder = PathFromRoot("record-hashes", above=2)
    """The folder of what a pass over large files of records found, which all plans and ledgers of a user share."""

    device_leases_folder = PathFromRoot("devices", above=2)
    """The folder of the locks by which all sweeps of a user lease GPUs."""

    @classmethod
    def for_plan(cls, ledger: Ledger, account: str, plan: str) -> PrivateStore:
        """The store of a plan that is charged to an account of this ledger.

        It lies beside a ledger's file, and in the user's data directory for a ledger on a server; `DPSWEEP_PRIVATE`
        names another folder, which all machines of a sweep must share. Each ledger has separate stores, in a folder
        that is named by the ledger's identity, and rehearsals have a folder of their own.
        """
        folder, identity = ledger.home or os.environ.get(HOME_VARIABLE), ledger.identity()
        home = (
            Path(folder).expanduser().absolute() / identity
            if folder
            else ledger.folder_for_local_files / f"{identity}.private"
        )
        return cls(root=home / f"{account}-{plan}")

    @classmethod
    def from_record_folder(cls, record: Path) -> PrivateStore:
        """The store that holds a trial's record."""
        return cls(root=record.parents[1])

    @property
    def script_inputs_folder(self) -> Path:
        """The folder of the records and settings that this plan's scripts are given; each is removed at its end.

        Stores of several ledgers may share their home, so its path names the ledger too.
        """
        return self.root.parents[1] / HANDED_OVER / self.root.parent.name / self.root.name

    def exists(self) -> bool:
        """Whether the store exists."""
        return self.root.is_dir()

    def create_if_missing(self) -> None:
        """Creates the store, readable by its owner alone, if it is missing."""
        make_private_folder_durably(self.root)

    def trial_record_folder(self, trial: str) -> Path:
        """The folder of a trial's claims and step marks."""
        return self.root / "trials" / trial

    def trial_place_from_files_folder(self, files: Path) -> TrialPlace:
        """The two places of the trial with its files in this folder."""
        return TrialPlace(files=files, record=self.trial_record_folder(files.name))

    def has_launch_nonce(self, nonce: str | None) -> bool:
        """Whether the store knows the launch with this nonce, the ledger's last; None means no launch so far."""
        return nonce is None or nonce in self._read_nonces().values()

    def is_nonce_of_current_launch(self, nonce: str) -> bool:
        """Whether a receipt of the launch with this nonce is valid."""
        return bool(nonce) and self._read_nonces().get("nonce") == nonce

    def announce_launch(self, nonce: str, *, last: str | None) -> None:
        """Stores the nonce of a launch before the ledger records it; receipts of the launch are not valid yet.

        `last` is the ledger's last nonce. If a kill kept it from being confirmed, it is kept beside this one: the store
        still agrees with the ledger, and no receipt becomes valid by that.
        """
        self.create_if_missing()
        known = self._read_nonces()
        kept = {"last": last} if last is not None and last in known.values() else {}
        self._write_nonces({**known, **kept, "next": nonce})

    def confirm_launch(self, nonce: str) -> None:
        """Makes receipts of this launch valid, and receipts of all other launches void."""
        self._write_nonces({"nonce": nonce})

    def note_folder(self, folder: Path, *, finished: bool) -> None:
        """Notes that the plan runs in this sweep folder, or was finished there."""
        self.create_if_missing()
        write_json(self.root / LAST_FOLDER_FILE, LastFolder(folder=str(folder), finished=finished).to_json(), PRIVATE)

    def last_folder(self) -> LastFolder | None:
        """The sweep folder where the plan was run last, None if it was not."""
        return parse_json_file_or_none(self.root / LAST_FOLDER_FILE, LastFolder.from_json)

    def _read_nonces(self) -> dict[str, str]:
        nonces = parse_json_file_or_none(
            self.root / LAUNCH_FILE, lambda form: {key: require_text(key, value) for key, value in form.items()}
        )
        return nonces or {}

    def _write_nonces(self, nonces: dict[str, str]) -> None:
        write_json(self.root / LAUNCH_FILE, nonces, mode=PRIVATE)


def new_nonce() -> str:
    """128 bits of the operating system's entropy, in hexadecimal digits."""
    return secrets.token_hex(NONCE_BYTES)


def restrict_to_owner(path: Path) -> None:
    """Takes the rights of others to a file, or to a folder with all in it; below a group's folder not its own."""
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        restrict_one_to_owner(one)


def restrict_one_to_owner(path: Path) -> None:
    """Does what `restrict_to_owner` does for one path alone.

    One with the right mode may be another user's. No right is given, and no link followed: a member of the group may
    have put it there.
    """
    now = path.lstat().st_mode
    kept = mode_with_group(path, FOLDER if stat.S_ISDIR(now) else PRIVATE) | stat.S_ISGID
    if not stat.S_ISLNK(now) and stat.S_IMODE(now) & ~kept:
        path.chmod(stat.S_IMODE(now) & kept)
