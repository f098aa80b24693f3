"""What searches that may show all of their runs have in common: admission run by run, and a final run at the end.

The charge of the plan pays for the final run, as one attempt at any of the points' final runs. Its point is stored
before its attempt begins. If the search has killed runs that the same command would repeat, it waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.interface import search_of
from dpsweep.accounting.searches.open_search import OpenSearch, read_final, recover_final, store_final
from dpsweep.sweeper.searches.admission import (
    Retry,
    attempts_of,
    charge_and_admit_runs,
    is_over,
    open_account,
    reconcile_store_with_ledger,
    record_launch,
)
from dpsweep.sweeper.searches.attempt_log import LedgerAttemptLog
from dpsweep.sweeper.searches.interface import AdmittedSearch, RunQueue, no_further_runs

LOSSES = (
    "{runs} failed or were killed; they stay charged. Their logs are in {folder}; the same command charges for the "
    "killed ones again and repeats them."
)


class AdmittedOpenSearch(AdmittedSearch):
    """A search with a ledger line for each start and each end."""

    idle: ClassVar[str]
    """What is printed if nothing is due, with the number of runs to fill in."""

    runs: ClassVar[str]
    """What messages call the runs."""

    @cached_property
    def search(self) -> OpenSearch:
        """The search of the plan."""
        search = search_of(self.plan, self.folder)
        assert isinstance(search, OpenSearch)
        return search

    def is_over(self) -> bool:
        """Whether the plan is charged and each run that it pays for has a result."""
        if self.plan.account not in self.ledger.accounts():
            return False
        return is_over(self.search, attempts_of(self.plan, self.ledger))

    def recover_choices(self, started: Container[str]) -> None:
        """Restores from the ledger what led to runs that began, if the folder was deleted."""
        recover_final(self.plan, self.folder.final, started)

    def more(self, log: LedgerAttemptLog) -> Callable[[int], tuple[Trial, ...]]:
        """What returns the next runs of the search, from the results so far."""
        return no_further_runs

    def queue(self) -> RunQueue:
        """The admitted runs, followed by the final run if the plan has one."""
        plan, folder, ledger = self.plan, self.folder, self.ledger
        open_account(self.priced, ledger)
        reconcile_store_with_ledger(plan, ledger, folder)
        self.recover_choices(attempts_of(plan, ledger).started)
        due = charge_and_admit_runs(self.priced, self.search, ledger, self.retry)
        to_come = due or len(self.search.search_runs()) < self.search.total
        to_come = to_come or (plan.finals and read_final(plan, folder.final) is None)
        log = LedgerAttemptLog(
            search=self.search, ledger=ledger, nonce=record_launch(plan, ledger, folder.private) if to_come else ""
        )
        queue = RunQueue(
            total=self.search.total,
            due=due,
            log=log,
            more=self.more(log),
            notice="",
            idle=self.idle.format(total=self.search.total),
            losses=LOSSES.replace("{runs}", self.runs),
        )
        if not plan.finals:
            return queue
        final = FinalRun(search=self.search, queue=queue, ledger=ledger, retry=self.retry)
        return replace(queue, total=queue.total + 1, more=final.more)


@dataclass(frozen=True, kw_only=True)
class FinalRun:
    """The final run that follows the runs of a search."""

    search: OpenSearch
    queue: RunQueue
    ledger: Ledger
    retry: Retry

    def more(self, many: int) -> tuple[Trial, ...]:
        """The next runs of the search; after the last one, the final run; then none."""
        plan, folder = self.search.plan, self.search.folder
        runs = self.queue.more(many)
        if runs or folder.stop.exists() or self._search_has_open_runs() or read_final(plan, folder.final):
            return runs
        point = self.search.best_point(self.ledger.statement(plan.account, plan.id))
        return () if point is None else (store_final(plan, folder.final, point),)

    def _search_has_open_runs(self) -> bool:
        where = self.queue.log.states()
        repeated = () if self.retry is Retry.NONE else where.killed
        return bool(self.queue.unproposed_runs or where.fresh or where.interrupted or where.working or repeated)
