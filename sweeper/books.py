"""What a sweep runs, and who writes down what was started and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from accounting.ledger import Ledger
from accounting.plan import Plan, Trial
from accounting.receipt import Receipt
from accounting.result import TrialResult
from sweeper.admission import Retry, Standing, admit, standing
from sweeper.compose import PricedPlan
from sweeper.folder import SweepFolder


class Book(Protocol):
    """The record of a sweep's attempts."""

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """Marks attempts as started before they are launched, and gives out a receipt for each that may be."""
        ...

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Records how these attempts ended, once no job is at work."""
        ...

    def standing(self) -> Standing:
        """Where everything that the sweep runs stands."""
        ...


@dataclass(frozen=True, kw_only=True)
class Work:
    """All that a plan runs, what of it is due now and paid for, the book that it is kept in, and words for the user.

    `notice` is said before anything runs, `idle` where nothing is due, `losses` about runs that failed or were killed.
    """

    runs: tuple[Trial, ...]
    due: tuple[Trial, ...]
    book: Book
    notice: str
    idle: str
    losses: str


@dataclass(frozen=True, kw_only=True)
class EveryRun:
    """A line of the ledger for every start and every end: for sweeps that may show all of their runs."""

    plan: Plan
    folder: SweepFolder
    ledger: Ledger

    def start(self, trials: Sequence[Trial]) -> tuple[Receipt, ...]:
        """Starts one attempt at each trial in the ledger."""
        return self.ledger.start(self.plan.account, plan=self.plan.id, trials=[trial.id for trial in trials])

    def settle(self, receipts: Sequence[Receipt]) -> None:
        """Writes into the ledger what each attempt did."""
        for receipt in receipts:
            self.ledger.settle(
                receipt.account,
                plan=receipt.plan,
                trial=receipt.trial,
                attempt=receipt.attempt,
                realised=self._realised(receipt),
            )

    def standing(self) -> Standing:
        """By the ledger first and the result files second."""
        return standing(self.plan, self.folder, self.ledger.statement(self.plan.account))

    def _realised(self, receipt: Receipt) -> dict[str, Any]:
        result = TrialResult.read(self.folder.trial(receipt.trial))
        if result is None or result.attempt != receipt.attempt:
            return {"status": "killed"}
        return {"status": result.status.value, "steps": result.steps, "event": result.event}


def every_point(priced: PricedPlan, ledger: Ledger, folder: SweepFolder, retry: Retry) -> Work:
    """The work of a plan that runs every point once, admitted."""
    due = admit(priced, ledger, folder, retry)
    return Work(
        runs=priced.plan.trials,
        due=due,
        book=EveryRun(plan=priced.plan, folder=folder, ledger=ledger),
        notice="",
        idle=f"All {len(priced.plan.trials)} trials of this plan are finished; nothing is run or charged.",
        losses="trials failed or were killed; they stay charged. Their logs are in {folder}; the same command charges "
        "for the killed ones again and repeats them.",
    )
