"""The runs in a sweep folder: every point once, the proposed runs, or the tries of a secret draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.account import Statement
from dpsweep.accounting.records.final_run import FINAL_FILE, read_final
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.records.proposal_file import PROPOSALS_FILE, read_proposals, runs_of
from dpsweep.accounting.records.stored_draw import (
    DRAW_FILE,
    OUTCOME_FILE,
    SearchOutcome,
    read_draw,
    read_final_try,
    read_tries,
)
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.selection.interface import Execution


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A point, a proposed run or a try, with its result and the numbers of attempts charged and started.

    A try is charged once, with its search.
    """

    trial: Trial
    result: TrialResult | None
    charged: int
    started: int


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs in order. `untried` are the points that no proposed run has.

    For a secret draw `winner` is the recorded winner of the tries, None if there is none, and `over` says whether the
    search has ended. Otherwise the scores determine the winner. `final` is its final run, if the rule has one and its
    point is chosen.
    """

    rows: tuple[RunRecord, ...]
    execution: Execution
    final: RunRecord | None = None
    untried: tuple[Trial, ...] = ()
    winner: str | None = None
    over: bool = True

    @property
    def all(self) -> tuple[RunRecord, ...]:
        """The runs of the search, then the final run."""
        return self.rows if self.final is None else (*self.rows, self.final)

    @property
    def drawn(self) -> bool:
        """Whether the runs are tries of a secret draw."""
        return self.execution is Execution.DRAWN_TRIES

    @property
    def noun(self) -> str:
        """The noun for one run."""
        return _NOUNS[self.execution][0]

    @property
    def nouns(self) -> str:
        """The noun for several runs."""
        return _NOUNS[self.execution][1]


def read_runs(folder: Path, plan: Plan, account: Statement) -> Runs:
    """The runs of a plan that was charged to this account; raises `BadInput` if the folder is inconsistent."""
    runs = _READERS[execution_of(plan)](folder, plan, account)
    if runs.drawn or not plan.finals:
        return runs
    chosen = read_final(plan, folder / FINAL_FILE)
    if chosen is None:
        return replace(runs, over=False)
    (final,) = _rows(folder, plan, (chosen,), account)
    return replace(runs, final=final)


def _points(folder: Path, plan: Plan, account: Statement) -> Runs:
    return Runs(rows=_rows(folder, plan, plan.trials, account), execution=Execution.EVERY_POINT)


def _proposed(folder: Path, plan: Plan, account: Statement) -> Runs:
    proposals = read_proposals(plan, folder / PROPOSALS_FILE)
    return Runs(
        rows=_rows(folder, plan, runs_of(plan, proposals), account),
        execution=Execution.PROPOSED,
        untried=tuple(trial for point, trial in enumerate(plan.trials) if point not in proposals),
    )


def _rows(folder: Path, plan: Plan, trials: Sequence[Trial], account: Statement) -> tuple[RunRecord, ...]:
    attempts = account.attempts(plan.id)
    paid = attempts.spares >= 0
    return tuple(
        RunRecord(
            trial=trial,
            result=TrialResult.read(folder / "trials" / trial.id),
            charged=max(attempts.covered[trial.id], attempts.started[trial.id] if paid else 0),
            started=attempts.started[trial.id],
        )
        for trial in trials
    )


def _tries(folder: Path, plan: Plan, account: Statement) -> Runs:
    draw, outcome = read_draw(plan, folder / DRAW_FILE), SearchOutcome.read(folder / OUTCOME_FILE)
    if draw is None:
        return Runs(rows=(), execution=Execution.DRAWN_TRIES, over=False)
    tries = read_tries(plan, draw, folder)
    charged = int(draw.attempt <= min(account.covered(plan.id, plan.id), account.started(plan.id, plan.id)))
    rows = tuple(
        RunRecord(trial=one.trial, result=one.result, charged=charged, started=int(one.begun)) for one in tries
    )
    if outcome is None or outcome.attempt != draw.attempt:
        return Runs(rows=rows, execution=Execution.DRAWN_TRIES, over=False)
    if outcome.winner is not None and tries[outcome.winner].score is None:
        raise BadInput(f"Expected {folder} to hold the result of the winning try.")
    winner = None if outcome.winner is None else rows[outcome.winner].trial.id
    runs = Runs(rows=rows, execution=Execution.DRAWN_TRIES, winner=winner)
    last = read_final_try(plan, draw, folder)
    if last is None:
        return runs
    final = RunRecord(trial=last.trial, result=last.result, charged=charged, started=int(last.begun))
    return replace(runs, final=final, over=last.ended)


_READERS: Mapping[Execution, Callable[[Path, Plan, Statement], Runs]] = {
    Execution.EVERY_POINT: _points,
    Execution.PROPOSED: _proposed,
    Execution.DRAWN_TRIES: _tries,
}

_NOUNS: Mapping[Execution, tuple[str, str]] = {
    Execution.EVERY_POINT: ("point", "points"),
    Execution.PROPOSED: ("run", "runs"),
    Execution.DRAWN_TRIES: ("try", "tries"),
}
