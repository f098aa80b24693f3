"""What a sweep runs, and who writes down what was started and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dpsweep.accounting.ledger.account import Attempts
from dpsweep.accounting.ledger.bodies import Ended
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.step_log import steps_spent
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.sweeper.coordinator.admission import Retry, admit, open_account, stages
from dpsweep.sweeper.coordinator.attempt_state import AttemptState, AttemptStates, stage_of, unused_receipt
from dpsweep.sweeper.coordinator.launches import launch, reconcile


class AttemptLog(Protocol):
    """The record of a sweep's attempts."""

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """Marks attempts as started before they are launched, and gives out a receipt for each that may be."""
        ...

    def settle(self) -> None:
        """Records how all attempts ended that have ended."""
        ...

    def standing(self) -> AttemptStates:
        """Where everything that the sweep runs stands."""
        ...

    def runs(self) -> tuple[Trial, ...]:
        """Everything that the sweep runs, as far as it is known."""
        ...


def nothing_more(many: int) -> tuple[Trial, ...]:
    """What follows where all that runs is due from the beginning."""
    return ()


@dataclass(frozen=True, kw_only=True)
class RunQueue:
    """How many runs a plan has, what is due now and paid for, the book that it is kept in, and words for the user.

    `more` gives what is due after that, for so many at once, from what came out; nothing in most sweeps. `notice` is
    said before anything runs, `idle` where nothing is due, `losses` about runs that failed or were killed. `in_turn`
    says that what is due next depends on what came out.
    """

    total: int
    due: tuple[Trial, ...]
    book: AttemptLog
    notice: str
    idle: str
    losses: str
    in_turn: bool = False
    more: Callable[[int], tuple[Trial, ...]] = nothing_more

    @property
    def runs(self) -> tuple[Trial, ...]:
        """Everything that runs, as far as it is known."""
        return self.book.runs()

    @property
    def unproposed(self) -> int:
        """How many runs are still to be proposed."""
        return self.total - len(self.runs)


@dataclass(frozen=True, kw_only=True)
class LedgerAttemptLog:
    """A line of the ledger for every start and every end: for sweeps that may show all of their runs.

    `nonce` is that of this launch, empty where nothing is to be started.
    """

    plan: Plan
    folder: SweepFolder
    ledger: Ledger
    nonce: str

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """An attempt at each trial: the one that waits to be taken, the one that goes on, or one more."""
        attempts = self._attempts()
        waiting, interrupted, more = {}, [], []
        for trial in trials:
            attempt, place = attempts.started[trial.id], self.folder.place(trial.id)
            ended = attempts.end_of(trial.id, attempt) is not None
            if attempt and not ended and (receipt := unused_receipt(place, attempt)) is not None:
                waiting[trial.id] = receipt
            elif attempt and stage_of(place, trial, attempt, ended=ended) is AttemptState.INTERRUPTED:
                interrupted.append(trial.id)
            else:
                more.append(trial.id)
        account, plan = self.plan.account, self.plan.id
        resumed = self.ledger.resume(account, plan=plan, trials=interrupted) if interrupted else ()
        started = self.ledger.start(account, plan=plan, trials=more) if more else ()
        receipts = waiting | {receipt.trial: receipt for receipt in (*resumed, *started)}
        return tuple(replace(receipts[trial.id], launch=self.nonce) for trial in trials)

    def settle(self) -> None:
        """Writes into the ledger what each attempt did that has ended and was not written down before."""
        trials = {trial.id: trial for trial in self.runs()}
        attempts = self._attempts()
        ended = []
        for trial, attempt, resume in attempts.unsettled():
            last = attempt == attempts.started[trial]
            realised = self._realised(trials[trial], attempt) if last else {"status": AttemptState.KILLED.value}
            if realised:
                ended.append(Ended(trial=trial, attempt=attempt, resume=resume, realised=realised))
        if ended:
            self.ledger.settle(self.plan.account, plan=self.plan.id, ended=ended)

    def standing(self) -> AttemptStates:
        """By the ledger first and the files second."""
        return AttemptStates.of(stages(self.plan, self.folder, self._attempts()))

    def runs(self) -> tuple[Trial, ...]:
        """The plan's points, or what was proposed of them so far."""
        return self.folder.runs(self.plan)

    def _attempts(self) -> Attempts:
        return self.ledger.statement(self.plan.account, self.plan.id).attempts(self.plan.id)

    def _realised(self, trial: Trial, attempt: int) -> dict[str, Any]:
        """What the last attempt at a trial did, and the digest of its result; nothing where it has not ended."""
        place = self.folder.place(trial.id)
        stage = stage_of(place, trial, attempt)
        if stage in (AttemptState.FRESH, AttemptState.WORKING) or unused_receipt(place, attempt) is not None:
            return {}
        result = TrialResult.read(place.files)
        if result is not None and result.attempt == attempt:
            ran = {"status": result.status.value, "steps": result.steps, "event": result.event}
            return ran | {"result": TrialResult.digest(place.files)}
        return {"status": stage.value, "steps": steps_spent(place, trial, attempt)}


def every_point(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> RunQueue:
    """The work of a plan that runs every point once, admitted."""
    open_account(priced, ledger)
    reconcile(priced.plan, ledger, folder)
    due = admit(priced, ledger, folder, retry)
    nonce = launch(priced.plan, ledger, folder.private) if due else ""
    return RunQueue(
        total=len(priced.plan.trials),
        due=due,
        book=LedgerAttemptLog(plan=priced.plan, folder=folder, ledger=ledger, nonce=nonce),
        notice="",
        idle=f"All {len(priced.plan.trials)} trials of this plan are finished; nothing is run or charged.",
        losses="trials failed or were killed; they stay charged. Their logs are in {folder}; the same command charges "
        "for the killed ones again and repeats them.",
    )
