"""The log of one attempt at a search that hides its losers, in its folder and its private store, not in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, mode_with_group
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import is_claimed
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import (
    DrawnTrial,
    SearchOutcome,
    SearchRecord,
    StoredDraw,
    compared_score_by_index_of_ended_try,
    end_mark_path,
)
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, state_of_started_attempt


@dataclass(frozen=True, kw_only=True)
class HiddenSearchLog:
    """The log of one attempt at a hidden search; `receipt` is the receipt of the whole search at this launch."""

    search: SecretDraw
    stored: StoredDraw
    receipt: Receipt

    @property
    def sweep_folder(self) -> SweepFolder:
        """The folder of the sweep."""
        return self.search.folder

    @property
    def private_record_of_attempt(self) -> SearchRecord:
        """The private store's record of this attempt."""
        return self.search.private_record_of_draw(self.stored)

    def start_and_issue_receipts(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """A receipt for each trial that may begin or resume and could still win; the ledger records nothing."""
        where = self.states_of_runs()
        able = {trial.id for trial in where.fresh + where.interrupted}
        return tuple(self._receipt_for_trial(trial) for trial in trials if trial.id in able)

    def final_run_if_due(self, many: int) -> tuple[Trial, ...]:
        """The final run, if the search is over and it has not begun; none otherwise."""
        final = self.search.state_of_final_run(self.stored)
        if final is None or final.begun or not self.receipt.launch or self.sweep_folder.stop_file_path.exists():
            return ()
        return (final.trial,)

    def record_ended_attempts(self) -> None:
        """Marks ended trials as over and, after the last try, stores the winner; the ledger records nothing."""
        for one in self.search.states_of_tries_and_final_run(self.stored):
            if self._state_of_drawn_trial(one) in (AttemptState.FINISHED, AttemptState.FAILED, AttemptState.KILLED):
                self.private_record_of_attempt.store_end_of_try(
                    one.trial.id, self.sweep_folder.trial_folder(one.trial.id)
                )
                mark = end_mark_path(self.sweep_folder, one.trial, self.stored.attempt)
                make_folder_and_missing_parents(mark.parent)
                mark.touch(mode=mode_with_group(mark))
        scores = compared_score_by_index_of_ended_try(self.stored.draw, self.drawn_tries_in_current_state())
        if not self.stored.draw.over(scores):
            return
        if self.search.outcome_of_draw(self.stored) is None:
            won = SearchOutcome(attempt=self.stored.attempt, winner=self.stored.draw.index_of_winning_try(scores))
            self.private_record_of_attempt.store_outcome_once(won).write(self.sweep_folder.outcome_path)

    def states_of_runs(self) -> AttemptStates:
        """States from the store's marks and the results; once the search is over, tries that wait are left out.

        They cannot win: those that did not begin, and those that were interrupted beyond the winner.
        """
        tries, final = self.drawn_tries_in_current_state(), self.search.state_of_final_run(self.stored)
        waiting = (AttemptState.FRESH, AttemptState.INTERRUPTED)
        over = self.stored.draw.over(compared_score_by_index_of_ended_try(self.stored.draw, tries))
        stages = [(one.trial, self._state_of_drawn_trial(one)) for one in tries]
        able = [(trial, stage) for trial, stage in stages if not over or stage not in waiting]
        return AttemptStates.from_trials_with_states(
            able + ([] if final is None else [(final.trial, self._state_of_drawn_trial(final))])
        )

    def known_runs(self) -> tuple[Trial, ...]:
        """The trials of the whole draw, and the final run once the winner is known."""
        return tuple(one.trial for one in self.search.states_of_tries_and_final_run(self.stored))

    def drawn_tries_in_current_state(self) -> tuple[DrawnTrial, ...]:
        """All trials of the draw in their current state."""
        return self.search.states_of_tries(self.stored)

    def _state_of_drawn_trial(self, one: DrawnTrial) -> AttemptState:
        """The state of a drawn trial; a trial marked as over without a result was killed, whatever its folder holds."""
        if not one.begun:
            return AttemptState.FRESH
        if one.ended and one.result is None:
            return AttemptState.KILLED
        return state_of_started_attempt(
            self.sweep_folder.trial_folder_and_private_record(one.trial.id), one.trial, self.stored.attempt
        )

    def _receipt_for_trial(self, trial: Trial) -> Receipt:
        """The receipt of the next session: the first that no worker has claimed."""
        place = self.sweep_folder.trial_folder_and_private_record(trial.id)
        receipts = (
            replace(self.receipt, trial=trial.id, attempt=self.stored.attempt, resume=resume) for resume in count()
        )
        return next(receipt for receipt in receipts if not is_claimed(receipt, place))
