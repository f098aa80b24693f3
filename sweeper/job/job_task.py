"""A job's part of a sweep: it claims the receipts of trials and trains them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.files import call_for_each
from dpsweep.accounting.ledger.permit import Receipt, Session, read_marks
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder, TrialPlace
from dpsweep.accounting.records.taken_steps import is_claimed
from dpsweep.accounting.records.trial_result import RESULT_FILE
from dpsweep.accounting.searches.interface import level_of_told_interval, search_for_plan
from dpsweep.accounting.stored_names.stored_classes import SCRIPT, tag_or_path_of_class
from dpsweep.sweeper.job.locks import training_lock
from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.sweeper.trial.run import train_sessions_and_write_results
from dpsweep.sweeper.trial.script_run import run_scripts_and_write_results
from dpsweep.sweeper.trial.session import Machine, TrialSession

_RUNNERS = {SCRIPT: run_scripts_and_write_results}
"""How the trials of a method are run, if not by dpsweep's own training."""


@dataclass(frozen=True, kw_only=True)
class JobTask:
    """A job's sweep folder, plan, block and machine, and its stop request."""

    folder: SweepFolder
    plan: Plan
    block: Block
    machine: Machine
    should_stop: Callable[[], bool]

    def claim_and_train_trials(self, trials: Sequence[Trial]) -> None:
        """Trains these trials together, if all of their receipts can be claimed."""
        with ExitStack() as resources:
            self.train_claimed_trials(self.claim_receipts_and_open_sessions(trials, resources))

    def claim_receipts_and_open_sessions(self, trials: Sequence[Trial], resources: ExitStack) -> list[TrialSession]:
        """The sessions of these trials, all of whose receipts were claimed; `resources` has their locks and logs."""
        places = [self.folder.trial_folder_and_private_record(trial.id) for trial in trials]
        for place in places:
            resources.enter_context(training_lock(place.files))
        if self.block.shared:
            self._refuse_if_others_of_charge_are_ahead(places)
        declared = search_for_plan(self.plan, self.folder).declared_events(trials)

        def claim_and_open(trial: Trial) -> TrialSession:
            place = self.folder.trial_folder_and_private_record(trial.id)
            claimed = Session.claim(
                place.files,
                self.folder.private_store,
                plan=self.plan.id,
                trial=trial.id,
                event=trial.event,
                declared=declared.get(trial.id) or declared[self.plan.id],
            )
            level = level_of_told_interval(self.plan, trial)
            return TrialSession(trial=trial, claimed=claimed, place=place, told_level=level)

        sessions = call_for_each(claim_and_open, trials)
        for session in sessions:
            resources.enter_context(session.write_log_to_trial_file())
        return sessions

    def train_claimed_trials(self, sessions: Sequence[TrialSession]) -> None:
        """Trains claimed trials together."""
        run = _RUNNERS.get(tag_or_path_of_class(sessions[0].trial.config["trainer"]), train_sessions_and_write_results)
        run(sessions, self.machine, self.should_stop, shared=self.block.shared)

    def _refuse_if_others_of_charge_are_ahead(self, places: Sequence[TrialPlace]) -> None:
        """Raises `ContractBroken` if other trials of the same charge have taken further steps without these trials.

        On the same subsamples they are priced as one mechanism; on different subsamples they would cost more.
        """
        ours: dict[str, int] = {}
        for receipt in filter(None, (Receipt.read(place.files) for place in places)):
            ours[receipt.charge] = min(receipt.resume, ours.get(receipt.charge, receipt.resume))
        for place in {self.folder.trial_folder_and_private_record(trial.id) for trial in self.block.trials} - set(
            places
        ):
            other = Receipt.read(place.files)
            if other is not None and read_marks(place.record, other.attempt)[2] > ours.get(other.charge, math.inf):
                raise ContractBroken(
                    f"Expected trial {place.files.name} to have the same number of steps as the runs that share its "
                    "subsamples: they are charged together and must train together. Start a new sweep, with a new "
                    "charge."
                )

    def groups_trained_together(self, trials: Sequence[Trial]) -> Iterator[Sequence[Trial]]:
        """The groups of trials that are trained together, one group after another."""
        size = len(trials) if self.block.shared else max(1, most_stacked_points(trials[0].config))
        for first in range(0, len(trials), size):
            yield trials[first : first + size]


def write_receipt(receipt: Receipt, place: Path) -> None:
    """Writes a receipt into its trial's folder, and keeps the result of an earlier attempt beside the new one."""
    if (place / RESULT_FILE).exists():
        (place / RESULT_FILE).rename(place / f"result-{receipt.attempt - 1}.json")
    receipt.write(place)


def has_unused_receipt(place: TrialPlace) -> bool:
    """Whether the trial in this folder has an unused receipt."""
    receipt = Receipt.read(place.files)
    return receipt is not None and not is_claimed(receipt, place)
