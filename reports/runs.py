"""What a sweep folder holds of the runs that its plan allows: every point once, or the tries of a secret draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accounting.errors import BadInput
from accounting.execution import DRAW_FILE, OUTCOME_FILE, Execution, Outcome, execution_of, read_draw, read_tries
from accounting.ledger import Statement
from accounting.plan import Plan, Trial
from accounting.result import TrialResult


@dataclass(frozen=True, kw_only=True)
class Run:
    """A point or a try with what came back of it, and how many attempts at it were charged and started.

    A try is charged with its search, once.
    """

    trial: Trial
    result: TrialResult | None
    charged: int
    started: int


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs in order. `drawn` says that they are tries of a secret draw.

    Of such a search `winner` is the try that was written down as its winner, None where there is none, and `over` says
    whether it has ended; where points are run once each, the scores tell.
    """

    rows: tuple[Run, ...]
    drawn: bool
    winner: str | None = None
    over: bool = True


def read_runs(folder: Path, plan: Plan, account: Statement) -> Runs:
    """The runs of a plan that was charged to this account; raises `BadInput` where the folder contradicts itself."""
    return _READERS[execution_of(plan)](folder, plan, account)


def _points(folder: Path, plan: Plan, account: Statement) -> Runs:
    covered, started = _attempts(plan.id, account)
    rows = (
        Run(
            trial=trial,
            result=TrialResult.read(folder / "trials" / trial.id),
            charged=covered.get(trial.id, 0),
            started=started.get(trial.id, 0),
        )
        for trial in plan.trials
    )
    return Runs(rows=tuple(rows), drawn=False)


def _tries(folder: Path, plan: Plan, account: Statement) -> Runs:
    stored, outcome = read_draw(plan, folder / DRAW_FILE), Outcome.read(folder / OUTCOME_FILE)
    if stored is None:
        return Runs(rows=(), drawn=True, over=False)
    tries = read_tries(plan, stored, folder)
    charged = int(stored.attempt <= min(account.covered(plan.id, plan.id), account.started(plan.id, plan.id)))
    rows = tuple(Run(trial=one.trial, result=one.result, charged=charged, started=int(one.begun)) for one in tries)
    if outcome is None or outcome.attempt != stored.attempt:
        return Runs(rows=rows, drawn=True, over=False)
    if outcome.winner is not None and tries[outcome.winner].score is None:
        raise BadInput(f"Expected {folder} to hold the result of the try that won.")
    return Runs(rows=rows, drawn=True, winner=None if outcome.winner is None else rows[outcome.winner].trial.id)


def _attempts(plan_id: str, account: Statement) -> tuple[dict[str, int], dict[str, int]]:
    """How many attempts at each point were charged, and how many started."""
    covered: dict[str, int] = {}
    started: dict[str, int] = {}
    for entry in account.entries:
        if entry.plan == plan_id and entry.kind == "charge":
            for trial in entry.body["trials"]:
                covered[trial] = covered.get(trial, 0) + 1
        elif entry.plan == plan_id and entry.kind == "start":
            started[entry.body["trial"]] = started.get(entry.body["trial"], 0) + 1
    return covered, started


_READERS: Mapping[Execution, Callable[[Path, Plan, Statement], Runs]] = {
    Execution.EVERY_POINT: _points,
    Execution.DRAWN_TRIES: _tries,
}
