"""Searches by a sampler without training: grids, and runs that the test plays as they are proposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpsweep.accounting.ledger.book import Attempts
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.proposed_points import read_proposed_point_indices
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue
from tests.sweeper.search_programs import GRID, Place, result_of

SIX = (*GRID, "search=random", "search.trials=6")
WIDE = (*GRID, "trainer.lr=32,0.5,8,2", "trainer.regularizer=10,0.01,1,0.1")
"""Sixteen points, their values in no order."""


def begin(here: Place, retry: Retry = Retry.KILLED) -> RunQueue:
    return here.begin(retry)


def run(here: Place, work: RunQueue, runs: Sequence[Trial], fate: float | str | None = 0.5) -> None:
    """Does a job's work for these runs: a fate is a score, a status, or None for a job that dies."""
    for receipt, trial in zip(work.log.start_and_issue_receipts(runs), runs, strict=True):
        folder = here.folder.trial_folder(trial.id)
        receipt.write(folder)
        Receipt.claim(folder, here.folder.private_store, plan=here.plan.id, trial=trial.id)
        if fate is not None:
            result_of(trial, fate, receipt.attempt).write(folder)
    work.log.record_ended_attempts()


def go_on(here: Place, work: RunQueue, many: int = 1, fates: Iterator[Any] | None = None) -> int:
    """Runs what is due and then what is proposed, so many at a time; returns how many that were."""
    count, due = 0, work.due or work.more(many)
    while due:
        for trial in due:
            run(here, work, [trial], 0.5 if fates is None else next(fates))
        count, due = count + len(due), work.more(many)
    return count


def attempts(here: Place) -> Attempts:
    return here.ledger.statement("digits").attempts_of_plan(here.plan.id)


def proposals(here: Place) -> tuple[int, ...]:
    return read_proposed_point_indices(here.plan, here.folder.proposals_path)
