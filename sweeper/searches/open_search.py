"""What searches that may show all of their runs have in common: admission run by run, and a final run at the end."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.final_choice import read_final, recover_final
from dpsweep.accounting.searches.interface import search_of
from dpsweep.accounting.searches.open_search import OpenSearch
from dpsweep.sweeper.coordinator.admission import admit, is_over, open_account
from dpsweep.sweeper.coordinator.attempt_log import LedgerAttemptLog
from dpsweep.sweeper.coordinator.launches import attempts_of, launch, reconcile
from dpsweep.sweeper.searches.final_run import FinalRun
from dpsweep.sweeper.searches.interface import AdmittedSearch, RunQueue, nothing_more

LOSSES = (
    "runs failed or were killed; they stay charged. Their logs are in {folder}; the same command charges for the "
    "killed ones again and repeats them."
)


class AdmittedOpenSearch(AdmittedSearch):
    """A search with a ledger line for each start and each end."""

    idle: ClassVar[str]
    """What is printed if nothing is due, with the number of runs to fill in."""

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

    def recover(self, started: Container[str]) -> None:
        """Restores from the ledger what led to runs that began, if the folder was deleted."""
        recover_final(self.plan, self.folder.final, started)

    def more(self, log: LedgerAttemptLog) -> Callable[[int], tuple[Trial, ...]]:
        """What returns the next runs of the search, from the results so far."""
        return nothing_more

    def queue(self) -> RunQueue:
        """The admitted runs, followed by the final run if the plan has one."""
        plan, folder, ledger = self.plan, self.folder, self.ledger
        open_account(self.priced, ledger)
        reconcile(plan, ledger, folder)
        self.recover(attempts_of(plan, ledger).started)
        due = admit(self.priced, self.search, ledger, self.retry)
        to_come = due or len(self.search.search_runs()) < self.search.total
        to_come = to_come or (plan.finals and read_final(plan, folder.final) is None)
        log = LedgerAttemptLog(
            search=self.search, ledger=ledger, nonce=launch(plan, ledger, folder.private) if to_come else ""
        )
        queue = RunQueue(
            total=self.search.total,
            due=due,
            log=log,
            more=self.more(log),
            notice="",
            idle=self.idle.format(total=self.search.total),
            losses=LOSSES,
        )
        if not plan.finals:
            return queue
        final = FinalRun(search=self.search, queue=queue, ledger=ledger, retry=self.retry)
        return replace(queue, total=queue.total + 1, more=final.more)
