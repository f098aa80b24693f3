"""The log of one attempt at a search that hides its losers, in its folder and its private store, not in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsweep.accounting.durable_files import make_folder
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.secret_draw import SecretDraw
from dpsweep.accounting.searches.stored_draw import (
    DrawnTrial,
    SearchOutcome,
    SearchRecord,
    StoredDraw,
    end_mark,
    scores_of,
)
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, stage_of


@dataclass(frozen=True, kw_only=True)
class HiddenSearchLog:
    """The log of one attempt at a hidden search; `receipt` is the receipt of the whole search at this launch."""

    search: SecretDraw
    stored: StoredDraw
    receipt: Receipt

    @property
    def folder(self) -> SweepFolder:
        """The folder of the sweep."""
        return self.search.folder

    @property
    def record(self) -> SearchRecord:
        """The private store's record of this attempt."""
        return self.search.record(self.stored)

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """A receipt for each trial that may begin or resume and could still win; the ledger records nothing."""
        where = self.states()
        able = {trial.id for trial in where.fresh + where.interrupted}
        return tuple(self._receipt(trial) for trial in trials if trial.id in able)

    def next_final(self, many: int) -> tuple[Trial, ...]:
        """The final run, if the search is over and it has not begun; none otherwise."""
        final = self.final()
        if final is None or final.begun or not self.receipt.launch or self.folder.stop.exists():
            return ()
        return (final.trial,)

    def settle(self) -> None:
        """Marks ended trials as over and, after the last try, stores the winner; the ledger records nothing."""
        for one in self.trials():
            if self._stage(one) in (AttemptState.FINISHED, AttemptState.FAILED, AttemptState.KILLED):
                self.record.end(one.trial.id, self.folder.trial(one.trial.id))
                mark = end_mark(self.folder, one.trial, self.stored.attempt)
                make_folder(mark.parent)
                mark.touch(mode=0o600)
        scores = scores_of(self.stored.draw, self.tries())
        if not self.stored.draw.over(scores):
            return
        known = SearchOutcome.read(self.folder.outcome)
        if known is None or known.attempt != self.stored.attempt:
            won = SearchOutcome(attempt=self.stored.attempt, winner=self.stored.draw.winner(scores))
            self.record.conclude(won).write(self.folder.outcome)

    def states(self) -> AttemptStates:
        """States from the store's marks and the results; once the search is over, tries that wait are left out.

        They cannot win: those that did not begin, and those that were interrupted beyond the winner.
        """
        tries, final = self.tries(), self.final()
        waiting = (AttemptState.FRESH, AttemptState.INTERRUPTED)
        over = self.stored.draw.over(scores_of(self.stored.draw, tries))
        stages = [(one.trial, self._stage(one)) for one in tries]
        able = [(trial, stage) for trial, stage in stages if not over or stage not in waiting]
        return AttemptStates.of(able + ([] if final is None else [(final.trial, self._stage(final))]))

    def runs(self) -> tuple[Trial, ...]:
        """The trials of the whole draw, and the final run once the winner is known."""
        return tuple(one.trial for one in self.trials())

    def tries(self) -> tuple[DrawnTrial, ...]:
        """All trials of the draw in their current state."""
        return self.search.tries(self.stored)

    def final(self) -> DrawnTrial | None:
        """The final run of the winner in its current state; None if there is none, or not yet."""
        return self.search.final_try(self.stored)

    def trials(self) -> tuple[DrawnTrial, ...]:
        """All trials of the draw and the final run."""
        return self.search.drawn_trials(self.stored)

    def _stage(self, one: DrawnTrial) -> AttemptState:
        """The state of a drawn trial; a trial marked as over without a result was killed, whatever its folder holds."""
        if not one.begun:
            return AttemptState.FRESH
        if one.ended and one.result is None:
            return AttemptState.KILLED
        return stage_of(self.folder.place(one.trial.id), one.trial, self.stored.attempt)

    def _receipt(self, trial: Trial) -> Receipt:
        sessions = Receipt.sessions(self.folder.place(trial.id), self.stored.attempt)
        return replace(self.receipt, trial=trial.id, resume=sessions)
