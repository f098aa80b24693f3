"""The log of started and ended attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dpsweep.accounting.ledger.book import Ended
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.taken_steps import steps_spent
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, state_of_started_attempt, unused_receipt
from dpsweep.sweeper.searches.admission import states_of_known_runs


class AttemptLog(Protocol):
    """The record of a sweep's attempts."""

    def start_and_issue_receipts(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """Marks attempts as started before they are launched, and issues a receipt for each that may be launched."""

    def record_ended_attempts(self) -> None:
        """Records the end of every attempt that has ended."""

    def states_of_runs(self) -> AttemptStates:
        """The states of all runs of the sweep."""

    def known_runs(self) -> tuple[Trial, ...]:
        """All runs of the sweep that are known so far."""


@dataclass(frozen=True, kw_only=True)
class LedgerAttemptLog:
    """An attempt log with a ledger line for every start and every end: for sweeps that may show all of their runs.

    `nonce` is the nonce of this launch, empty if nothing is to be started.
    """

    search: PlannedSearch
    ledger: Ledger
    nonce: str

    def start_and_issue_receipts(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """A receipt for an attempt at each trial: the waiting attempt, the interrupted one, or a new one."""
        attempts = self.ledger.attempts_of_plan(self.search.plan.account, self.search.plan.id)
        waiting, interrupted, more = {}, [], []
        for trial in trials:
            attempt, place = attempts.started[trial.id], self.search.folder.trial_folder_and_private_record(trial.id)
            ended = attempts.final_end(trial.id, attempt) is not None
            if attempt and not ended and (receipt := unused_receipt(place, attempt)) is not None:
                waiting[trial.id] = receipt
            elif attempt and state_of_started_attempt(place, trial, attempt, ended=ended) is AttemptState.INTERRUPTED:
                interrupted.append(trial.id)
            else:
                more.append(trial.id)
        account, plan = self.search.plan.account, self.search.plan.id
        resumed = self.ledger.resume(account, plan=plan, trials=interrupted) if interrupted else ()
        declared = self.search.declared_events((*self.search.search_trials_so_far(), *trials))
        started = self.ledger.start(account, plan=plan, trials=more, declared=declared) if more else ()
        receipts = waiting | {receipt.trial: receipt for receipt in (*resumed, *started)}
        return tuple(replace(receipts[trial.id], launch=self.nonce) for trial in trials)

    def record_ended_attempts(self) -> None:
        """Writes to the ledger the realised work of every attempt that has ended and is not settled yet."""
        trials = {trial.id: trial for trial in self.known_runs()}
        attempts = self.ledger.attempts_of_plan(self.search.plan.account, self.search.plan.id)
        ends = []
        for trial, attempt in attempts.starts:
            resume = attempts.resumed[trial, attempt]
            if (trial, attempt, resume) in attempts.settled:
                continue
            last = attempt == attempts.started[trial]
            realised = (
                self._realised_work_of_attempt(trials[trial], attempt)
                if last
                else {"status": AttemptState.KILLED.value}
            )
            if realised:
                ends.append(Ended(trial=trial, attempt=attempt, resume=resume, realised=realised))
        if ends:
            self.ledger.end(self.search.plan.account, plan=self.search.plan.id, ended=ends)

    def states_of_runs(self) -> AttemptStates:
        """The states of all runs, from the ledger first and the files second."""
        attempts = self.ledger.attempts_of_plan(self.search.plan.account, self.search.plan.id)
        return states_of_known_runs(self.search, attempts)

    def known_runs(self) -> tuple[Trial, ...]:
        """All runs that are known so far, the chosen final run among them."""
        return self.search.search_and_final_runs()

    def _realised_work_of_attempt(self, trial: Trial, attempt: int) -> dict[str, Any]:
        """The realised work of a trial's last attempt and the digest of its result; empty if it has not ended."""
        place = self.search.folder.trial_folder_and_private_record(trial.id)
        stage = state_of_started_attempt(place, trial, attempt)
        if stage in (AttemptState.FRESH, AttemptState.WORKING) or unused_receipt(place, attempt) is not None:
            return {}
        result = TrialResult.read(place.files)
        if result is not None and result.attempt == attempt:
            ran = {"status": result.status.value, "steps": result.steps, "event": result.event}
            return ran | {"result": TrialResult.digest_of_result_file(place.files)}
        return {"status": stage.value, "steps": steps_spent(place, trial, attempt)}
