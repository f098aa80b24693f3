"""The paths in a sweep's folder, defined in one object. Only the curator may read the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.audit_record import AUDIT_FILE
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.folders import FOLDER, make_folder
from dpsweep.accounting.ledger.private_store import PrivateStore, TrialPlace
from dpsweep.accounting.records.final_run import FINAL_FILE, read_final
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.records.proposal_file import PROPOSALS_FILE, read_proposals, runs_of
from dpsweep.accounting.records.stored_draw import (
    DRAW_FILE,
    ENDED,
    OUTCOME_FILE,
    DrawnTrial,
    SearchOutcome,
    StoredDraw,
    read_draw,
    read_final_try,
    read_tries,
    tries_of,
)
from dpsweep.accounting.selection.interface import Execution


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """The folder of a plan's files; `store` is the plan's private store, None if the folder is only read."""

    root: Path
    store: PrivateStore | None = None

    def make(self) -> None:
        """Creates the folder for its owner alone: the number of folders in trials/ may be as secret as a draw."""
        make_folder(self.root)
        self.root.chmod(FOLDER)

    @property
    def plan(self) -> Path:
        """The plan that was charged."""
        return self.root / "plan.json"

    @property
    def draw(self) -> Path:
        """The rule's draw, made before the first run; for the curator only."""
        return self.root / DRAW_FILE

    @property
    def outcome(self) -> Path:
        """The winning try of the draw, once it is known; for the curator only."""
        return self.root / OUTCOME_FILE

    @property
    def ended(self) -> Path:
        """The folder with an empty file for every ended try, which stays ended even if its folder is deleted."""
        return self.root / ENDED

    @property
    def proposals(self) -> Path:
        """The proposed points, in the order of their turns."""
        return self.root / PROPOSALS_FILE

    @property
    def final(self) -> Path:
        """The chosen point of the final run, under a rule that has one."""
        return self.root / FINAL_FILE

    @property
    def command(self) -> Path:
        """The configuration of the whole sweep, as Hydra's sweepers write it."""
        return self.root / "multirun.yaml"

    @property
    def lock(self) -> Path:
        """The lock that the coordinator of this folder holds."""
        return self.root / ".lock"

    @property
    def turn(self) -> Path:
        """The lock that a worker holds while it takes the next try of a draw."""
        return self.root / ".turn"

    @property
    def stop(self) -> Path:
        """The stop file: while it exists, no trial begins, and running trials write a checkpoint and stop."""
        return self.root / "stop"

    @property
    def study(self) -> Path:
        """The Optuna study, a journal file for optuna-dashboard."""
        return self.root / "study.log"

    @property
    def curator(self) -> Path:
        """The curator's pages, and the opening of the release's commitment."""
        return self.root / "curator"

    @property
    def audit(self) -> Path:
        """What `dpsweep audit` found, on records that nobody's privacy depends on."""
        return self.root / AUDIT_FILE

    @property
    def logged(self) -> Path:
        """The runs that each logger was given."""
        return self.root / "logged.json"

    @property
    def release(self) -> Path:
        """The release, which may be passed on; written by a separate command."""
        return self.root / "release"

    @property
    def export(self) -> Path:
        """The winner's model with its code and card, which may be passed on; written by a separate command."""
        return self.root / "export"

    @property
    def trials(self) -> Path:
        """The folder of the trials, with a folder for each run."""
        return self.root / "trials"

    def trial(self, trial_id: str) -> Path:
        """A trial's folder: config.yaml, train.log, result.json, receipt.json."""
        return self.trials / trial_id

    def place(self, trial_id: str) -> TrialPlace:
        """A trial's folder, and its record in the private store."""
        return self.private.place(self.trial(trial_id))

    @property
    def private(self) -> PrivateStore:
        """The plan's private store; raises `ValueError` for an object that only reads the folder."""
        if self.store is None:
            raise ValueError(f"Expected store={self.store} of {self.root} to be given where something trains.")
        return self.store

    def tries(self, plan: Plan, stored: StoredDraw) -> tuple[DrawnTrial, ...]:
        """The states of the stored draw's tries."""
        return read_tries(plan, stored, self.root)

    def final_try(self, plan: Plan, stored: StoredDraw) -> DrawnTrial | None:
        """The state of the final run of the stored draw's winner; None if there is none, or not yet."""
        return read_final_try(plan, stored, self.root)

    def drawn_trials(
        self, plan: Plan, stored: StoredDraw, outcome: SearchOutcome | None = None
    ) -> tuple[DrawnTrial, ...]:
        """The states of the stored draw's tries, and of the final run of its winner if there is one.

        `outcome` says who won if the folder may be an older copy, which does not know it.
        """
        final = read_final_try(plan, stored, self.root, outcome)
        return self.tries(plan, stored) + (() if final is None else (final,))

    def runs(self, plan: Plan) -> tuple[Trial, ...]:
        """The trials that may run now: those of the search, and the final run once it is chosen."""
        final = self.final_run(plan)
        return self.search_runs(plan) + (() if final is None else (final,))

    def final_run(self, plan: Plan) -> Trial | None:
        """The final run of the search's winner; None if the rule has none, or if its point is not chosen yet."""
        if not plan.finals or execution_of(plan) is not Execution.DRAWN_TRIES:
            return read_final(plan, self.final)
        stored = read_draw(plan, self.draw)
        final = None if stored is None else self.final_try(plan, stored)
        return None if final is None else final.trial

    def search_runs(self, plan: Plan) -> tuple[Trial, ...]:
        """The trials of the search: the plan's points, the proposed runs, or the tries of the stored draw."""
        return _RUNS[execution_of(plan)](self, plan)

    def blocks(self, plan: Plan) -> tuple[Block, ...]:
        """The blocks that jobs may train: the plan's blocks, or one for each run."""
        together = plan.blocks if execution_of(plan) is Execution.EVERY_POINT else ()
        apart = self.runs(plan)[len(plan.trials) if together else 0 :]
        return together + tuple(Block(trials=(trial,)) for trial in apart)

    def block(self, plan: Plan, block_id: str) -> Block:
        """The block with this id; raises `BadInput` if there is none."""
        for block in self.blocks(plan):
            if block.id == block_id:
                return block
        raise BadInput(f"Expected block={block_id} to be among what plan {plan.id} runs in {self.root}.")


def _points(folder: SweepFolder, plan: Plan) -> tuple[Trial, ...]:
    return plan.trials


def _proposed(folder: SweepFolder, plan: Plan) -> tuple[Trial, ...]:
    return runs_of(plan, read_proposals(plan, folder.proposals))


def _tries(folder: SweepFolder, plan: Plan) -> tuple[Trial, ...]:
    stored = read_draw(plan, folder.draw)
    return () if stored is None else tries_of(plan, stored.draw)


_RUNS: Mapping[Execution, Callable[[SweepFolder, Plan], tuple[Trial, ...]]] = {
    Execution.EVERY_POINT: _points,
    Execution.PROPOSED: _proposed,
    Execution.DRAWN_TRIES: _tries,
}
