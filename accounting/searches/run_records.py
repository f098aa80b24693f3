"""The runs of a search with their results, as every page reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of a search with its result, and the numbers of attempts charged and started.

    A try of a secret draw is charged once, with its search.
    """

    trial: Trial
    result: TrialResult | None
    charged: int
    started: int

    @property
    def finished(self) -> bool:
        """Whether the latest attempt finished."""
        result = self.result
        return result is not None and result.status is Status.FINISHED and result.attempt >= self.started

    @property
    def score(self) -> float | None:
        """The score of the latest attempt; None unless it finished with one."""
        return self.result.value if self.result is not None and self.finished else None


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs of a search in order, with the nouns for one and for several of them.

    `points` are the points of the runs, by their index in the plan, and `untried` those that no run has. `winner` is
    the run whose model is handed over, None if there is none or if it has not finished. `over` says whether the search
    has ended, its final run included. `final` is the final run, if the rule has one and its point is chosen.
    """

    rows: tuple[RunRecord, ...]
    points: Sequence[int]
    noun: str
    nouns: str
    final: RunRecord | None = None
    untried: tuple[Trial, ...] = ()
    winner: str | None = None
    over: bool = True

    @property
    def all(self) -> tuple[RunRecord, ...]:
        """The runs of the search, then the final run."""
        return self.rows if self.final is None else (*self.rows, self.final)


def charged_rows(folder: SweepFolder, plan: Plan, trials: Sequence[Trial], account: Statement) -> tuple[RunRecord, ...]:
    """The records of runs whose every attempt has a line in the ledger."""
    attempts = account.attempts(plan.id)
    paid = attempts.spares >= 0
    return tuple(
        RunRecord(
            trial=trial,
            result=TrialResult.read(folder.trial(trial.id)),
            charged=max(attempts.covered[trial.id], attempts.started[trial.id] if paid else 0),
            started=attempts.started[trial.id],
        )
        for trial in trials
    )
