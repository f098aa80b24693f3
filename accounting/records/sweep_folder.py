"""The paths in a sweep's folder, defined in one object. Only the curator may read the folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.codec import Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import (
    FOLDER,
    PRIVATE,
    make_folder_and_missing_parents,
    make_private_folder_durably,
    mode_with_group,
    write_json,
)
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.permit import HOME_VARIABLE, PrivateStore
from dpsweep.accounting.records.card import CardFiles

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.ledger import Ledger

LIVE_PAGE = "live.html"
"""The name of the page of a running sweep; nothing that is reported or released is made from it."""


FEATURES, RECORD_HASHES, DEVICES = "frozen-features", "record-hashes", "devices"
"""Shared folders: frozen features, what a pass over large files of records found, locks by which sweeps lease GPUs."""

LAST_FOLDER_FILE = "folder.json"


def private_store_of_plan(ledger: Ledger, account: str, plan: str) -> PrivateStore:
    """The store of a plan on an account of this ledger, in a folder of the ledger's identity.

    It lies beside a ledger's file, or in the user's data directory, or in `DPSWEEP_PRIVATE`, which all machines of a
    sweep must share. Rehearsals have a folder of their own.
    """
    folder, identity = ledger.home or os.environ.get(HOME_VARIABLE), ledger.chain.identity()
    home = (
        Path(folder).expanduser().absolute() / identity
        if folder
        else ledger.folder_for_local_files / f"{identity}.private"
    )
    return PrivateStore(root=home / f"{account}-{plan}")


def shared_folder(store: PrivateStore, name: str) -> Path:
    """A folder beside the stores, for what all plans and ledgers of a user share."""
    return store.root.parents[1] / name


@dataclass(frozen=True)
class PathFromRoot:
    """A path by its name in the folder `root` of the object that has it."""

    name: str

    def __get__(self, folder: SweepFolder, owner: type) -> Path:
        return folder.root / self.name


@dataclass(frozen=True, kw_only=True)
class LastFolder(Stored):
    """The sweep folder where a plan was run last, and whether nothing of it was left to run there."""

    folder: str
    finished: bool

    @classmethod
    def read(cls, store: PrivateStore) -> LastFolder | None:
        """What a plan's store says, None if the plan was never run."""
        return parse_json_file_or_none(store.root / LAST_FOLDER_FILE, cls.from_json)

    def write(self, store: PrivateStore) -> None:
        """Writes it into a plan's store."""
        make_private_folder_durably(store.root)
        write_json(store.root / LAST_FOLDER_FILE, self.to_json(), PRIVATE)


@dataclass(frozen=True, kw_only=True)
class TrialPlace:
    """The two places of a trial: `files` in the sweep folder, the record, and `record` in the store, which decides."""

    files: Path
    record: Path


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """The folder of a plan's files; `store` is the plan's private store, None if the folder is only read."""

    root: Path
    store: PrivateStore | None = None

    plan_path = PathFromRoot("plan.json")
    """The plan that was charged."""

    draw_path = PathFromRoot("draw.json")
    """The rule's draw, made before the first run; for the curator only."""

    outcome_path = PathFromRoot("outcome.json")
    """The winning try of the draw, once it is known; for the curator only."""

    end_marks_folder = PathFromRoot("ended")
    """The folder with an empty file for every ended try, which stays ended even if its folder is deleted."""

    proposals_path = PathFromRoot("proposals.json")
    """The proposed points, in the order of their turns."""

    final_point_path = PathFromRoot("final.json")
    """The chosen point of the final run, under a rule that has one."""

    multirun_config_path = PathFromRoot("multirun.yaml")
    """The configuration of the whole sweep, as Hydra's sweepers write it."""

    coordinator_lock_path = PathFromRoot(".lock")
    """The lock that the coordinator of this folder holds."""

    next_try_lock_path = PathFromRoot(".turn")
    """The lock that a worker holds while it takes the next try of a draw."""

    stop_file_path = PathFromRoot("stop")
    """The stop file: while it exists, no trial begins, and running trials write a checkpoint and stop."""

    optuna_study_path = PathFromRoot("study.log")
    """The Optuna study, a journal file for optuna-dashboard."""

    live_page_path = PathFromRoot(LIVE_PAGE)
    """The page of the sweep while it runs, which then leads to the curator's page."""

    curator_folder = PathFromRoot("curator")
    """The curator's pages."""

    audit_record_path = PathFromRoot("audit.json")
    """What `dpsweep audit` found, on records that nobody's privacy depends on."""

    logged_runs_path = PathFromRoot("logged.json")
    """The runs that each logger was given."""

    release_folder = PathFromRoot("release")
    """The release, which may be passed on; written by a separate command."""

    export_folder = PathFromRoot("export")
    """The winner's model with its code and card, which may be passed on; written by a separate command."""

    trials_folder = PathFromRoot("trials")
    """The folder of the trials, with a folder for each run."""

    def create_folder(self) -> None:
        """Creates the folder for its owner or group: the number of folders in trials/ may be as secret as a draw."""
        make_folder_and_missing_parents(self.root)
        restrict_one_to_owner(self.root)

    def card_files(self, part: int) -> CardFiles:
        """The files of the card on a sealed part; for the curator only."""
        return CardFiles(folder=self.root, store=None if self.store is None else self.store.root, part=part)

    def trial_folder(self, trial_id: str) -> Path:
        """A trial's folder: train.log, result.json, receipt.json; its settings are in the plan."""
        return self.trials_folder / trial_id

    def trial_folder_and_private_record(self, trial_id: str) -> TrialPlace:
        """A trial's folder, and its record in the private store."""
        return TrialPlace(files=self.trial_folder(trial_id), record=self.private_store.trial_record_folder(trial_id))

    @property
    def private_store(self) -> PrivateStore:
        """The plan's private store; raises `ValueError` for an object that only reads the folder."""
        if self.store is None:
            raise ValueError(f"Expected store={self.store} of {self.root} to be given where something trains.")
        return self.store


def require_sweep_folder(root: Path) -> Path:
    """The folder; raises `BadInput` unless it has a plan."""
    if not SweepFolder(root=root).plan_path.is_file():
        raise BadInput(f"Expected {root} to be a sweep folder with a plan.json.")
    return root


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
