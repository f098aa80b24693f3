"""The log of started and ended attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dpsweep.accounting.ledger.account import Attempts
from dpsweep.accounting.ledger.bodies import Ended
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.step_log import steps_spent
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.attempt_state import AttemptState, AttemptStates, stage_of, unused_receipt
from dpsweep.sweeper.searches.admission import attempt_states, attempts_of


class AttemptLog(Protocol):
    """The record of a sweep's attempts."""

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """Marks attempts as started before they are launched, and issues a receipt for each that may be launched."""
        ...

    def settle(self) -> None:
        """Records the end of every attempt that has ended."""
        ...

    def states(self) -> AttemptStates:
        """The states of all runs of the sweep."""
        ...

    def runs(self) -> tuple[Trial, ...]:
        """All runs of the sweep that are known so far."""
        ...


@dataclass(frozen=True, kw_only=True)
class LedgerAttemptLog:
    """An attempt log with a ledger line for every start and every end: for sweeps that may show all of their runs.

    `nonce` is the nonce of this launch, empty if nothing is to be started.
    """

    search: PlannedSearch
    ledger: Ledger
    nonce: str

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """A receipt for an attempt at each trial: the waiting attempt, the interrupted one, or a new one."""
        attempts = self._attempts()
        waiting, interrupted, more = {}, [], []
        for trial in trials:
            attempt, place = attempts.started[trial.id], self.search.folder.place(trial.id)
            ended = attempts.end_of(trial.id, attempt) is not None
            if attempt and not ended and (receipt := unused_receipt(place, attempt)) is not None:
                waiting[trial.id] = receipt
            elif attempt and stage_of(place, trial, attempt, ended=ended) is AttemptState.INTERRUPTED:
                interrupted.append(trial.id)
            else:
                more.append(trial.id)
        account, plan = self.search.plan.account, self.search.plan.id
        resumed = self.ledger.resume(account, plan=plan, trials=interrupted) if interrupted else ()
        started = self.ledger.start(account, plan=plan, trials=more) if more else ()
        receipts = waiting | {receipt.trial: receipt for receipt in (*resumed, *started)}
        return tuple(replace(receipts[trial.id], launch=self.nonce) for trial in trials)

    def settle(self) -> None:
        """Writes to the ledger the realised work of every attempt that has ended and is not settled yet."""
        trials = {trial.id: trial for trial in self.runs()}
        attempts = self._attempts()
        ends = []
        for trial, attempt, resume in attempts.unsettled_attempts():
            last = attempt == attempts.started[trial]
            realised = self._realised(trials[trial], attempt) if last else {"status": AttemptState.KILLED.value}
            if realised:
                ends.append(Ended(trial=trial, attempt=attempt, resume=resume, realised=realised))
        if ends:
            self.ledger.settle(self.search.plan.account, plan=self.search.plan.id, ended=ends)

    def states(self) -> AttemptStates:
        """The states of all runs, from the ledger first and the files second."""
        return AttemptStates.of(attempt_states(self.search, self._attempts()))

    def runs(self) -> tuple[Trial, ...]:
        """All runs that are known so far, the chosen final run among them."""
        return self.search.runs()

    def _attempts(self) -> Attempts:
        return attempts_of(self.search.plan, self.ledger)

    def _realised(self, trial: Trial, attempt: int) -> dict[str, Any]:
        """The realised work of a trial's last attempt and the digest of its result; empty if it has not ended."""
        place = self.search.folder.place(trial.id)
        stage = stage_of(place, trial, attempt)
        if stage in (AttemptState.FRESH, AttemptState.WORKING) or unused_receipt(place, attempt) is not None:
            return {}
        result = TrialResult.read(place.files)
        if result is not None and result.attempt == attempt:
            ran = {"status": result.status.value, "steps": result.steps, "event": result.event}
            return ran | {"result": TrialResult.digest(place.files)}
        return {"status": stage.value, "steps": steps_spent(place, trial, attempt)}
