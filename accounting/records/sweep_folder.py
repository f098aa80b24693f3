"""The sweep's folder: one object owns every path below it. All of it is the curator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.private_store import FOLDER, PrivateStore, TrialPlace
from dpsweep.accounting.records.execution import (
    DRAW_FILE,
    ENDED,
    OUTCOME_FILE,
    DrawnTrial,
    StoredDraw,
    execution_of,
    read_draw,
    read_tries,
    tries_of,
)
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.proposal_file import PROPOSALS_FILE, read_proposals, runs_of
from dpsweep.accounting.selection.interface import Execution


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """Where a plan's files lie; `store` is the plan's private store, None for who only reads the folder."""

    root: Path
    store: PrivateStore | None = None

    def make(self) -> None:
        """Makes the folder for its owner alone: how many folders trials/ holds may be as secret as a draw."""
        self.root.mkdir(parents=True, exist_ok=True, mode=FOLDER)
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
        """Which try of the draw won, once that is known; for the curator only."""
        return self.root / OUTCOME_FILE

    @property
    def ended(self) -> Path:
        """An empty file for every try that is over: it stays so even if its folder is deleted."""
        return self.root / ENDED

    @property
    def proposals(self) -> Path:
        """The points that were proposed, in their turns."""
        return self.root / PROPOSALS_FILE

    @property
    def command(self) -> Path:
        """The configuration of the whole sweep, as Hydra's own sweepers write it."""
        return self.root / "multirun.yaml"

    @property
    def lock(self) -> Path:
        """Held by the one coordinator of this folder."""
        return self.root / ".lock"

    @property
    def stop(self) -> Path:
        """While it is there, no trial begins, and those at work write a checkpoint and leave."""
        return self.root / "stop"

    @property
    def study(self) -> Path:
        """The Optuna study, an SQLite file for optuna-dashboard."""
        return self.root / "study.db"

    @property
    def release(self) -> Path:
        """What may leave, written by its own command."""
        return self.root / "release"

    @property
    def trials(self) -> Path:
        """What has been run, a folder each."""
        return self.root / "trials"

    def trial(self, trial_id: str) -> Path:
        """A trial's own folder: config.yaml, train.log, result.json, receipt.json."""
        return self.trials / trial_id

    def place(self, trial_id: str) -> TrialPlace:
        """A trial's folder, and its record in the private store."""
        return self.private.place(self.trial(trial_id))

    @property
    def private(self) -> PrivateStore:
        """The plan's private store; only who trains, or decides on training, may ask for it."""
        if self.store is None:
            raise ValueError(f"Expected store={self.store} of {self.root} to be given where something trains.")
        return self.store

    def tries(self, plan: Plan, stored: StoredDraw) -> tuple[DrawnTrial, ...]:
        """The tries of the stored draw as they stand."""
        return read_tries(plan, stored, self.root)

    def runs(self, plan: Plan) -> tuple[Trial, ...]:
        """What may be run here so far: the plan's points, what was proposed, or the tries of the stored draw."""
        return _RUNS[execution_of(plan)](self, plan)

    def blocks(self, plan: Plan) -> tuple[Block, ...]:
        """What jobs may be started here: the plan's blocks, or one for each run."""
        execution = execution_of(plan)
        if execution is Execution.EVERY_POINT:
            return plan.blocks
        return tuple(Block(trials=(trial,)) for trial in _RUNS[execution](self, plan))

    def block(self, plan: Plan, block_id: str) -> Block:
        """The block of that id, or a refusal."""
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
