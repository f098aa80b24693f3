"""The paths in a sweep's folder, defined in one object. Only the curator may read the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.private_store import PathFromRoot, PrivateStore, TrialPlace, restrict_one_to_owner
from dpsweep.accounting.records.card import CardFiles

LIVE_PAGE = "live.html"
"""The name of the page of a running sweep; nothing that is reported or released is made from it."""


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
        return self.private_store.trial_place_from_files_folder(self.trial_folder(trial_id))

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
