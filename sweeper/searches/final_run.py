"""The final run of a search that may show all of its runs: chosen when the search is over, then run like any other run.

The charge of the plan pays for it, as one attempt at any of the points' final runs. Its point is stored before its
attempt begins. If the search has killed runs that the same command would repeat, the final run waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.final_choice import read_final, store_final
from dpsweep.accounting.searches.open_search import OpenSearch
from dpsweep.sweeper.coordinator.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue


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
        if runs or folder.stop.exists() or self._waits() or read_final(plan, folder.final):
            return runs
        point = self.search.best_point(self.ledger.statement(plan.account, plan.id))
        return () if point is None else (store_final(plan, folder.final, point),)

    def _waits(self) -> bool:
        where = self.queue.log.states()
        repeated = () if self.retry is Retry.NONE else where.killed
        return bool(self.queue.unproposed or where.fresh or where.interrupted or where.working or repeated)
