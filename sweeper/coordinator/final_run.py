"""The final run of a sweep: proposed when the search is over, then run, resumed and reported like any other run.

The charge of the plan pays for it, as one attempt at any of the points' final runs. Its point is stored before its
attempt begins. If the search has killed runs that the same command would repeat, the final run waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.records.final_run import read_final, store_final
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.records.proposal_file import read_proposals
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.selection.interface import Execution, rule_from_config
from dpsweep.sweeper.coordinator.admission import Retry
from dpsweep.sweeper.coordinator.work import RunQueue


@dataclass(frozen=True, kw_only=True)
class FinalRun:
    """The final run that follows the runs of `search`."""

    plan: Plan
    folder: SweepFolder
    search: RunQueue
    retry: Retry

    def more(self, many: int) -> tuple[Trial, ...]:
        """The next runs of the search; after the last one, the final run; then none."""
        runs = self.search.more(many)
        if runs or self.folder.stop.exists() or self._waits() or read_final(self.plan, self.folder.final):
            return runs
        point = rule_from_config(self.plan.rule).winner(self._scores())
        return () if point is None else (store_final(self.plan, self.folder.final, point),)

    def _waits(self) -> bool:
        where = self.search.log.states()
        repeated = () if self.retry is Retry.NONE else where.killed
        return bool(self.search.unproposed or where.fresh or where.interrupted or where.working or repeated)

    def _scores(self) -> dict[int, float]:
        """The best score of each finished point, by the point's index in the plan."""
        finished = {run.id for run in self.search.log.states().finished}
        runs, scores = self.folder.search_runs(self.plan), dict[int, float]()
        proposed = execution_of(self.plan) is Execution.PROPOSED
        points = read_proposals(self.plan, self.folder.proposals) if proposed else range(len(runs))
        for point, run in zip(points, runs, strict=True):
            result = TrialResult.read(self.folder.trial(run.id))
            if run.id in finished and result is not None and result.value is not None:
                scores[point] = max(result.value, scores.get(point, result.value))
        return scores


def then_final(search: RunQueue, plan: Plan, folder: SweepFolder, retry: Retry) -> RunQueue:
    """The queue of a search, followed by the final run if the plan has one."""
    if not plan.finals or execution_of(plan) is Execution.DRAWN_TRIES:
        return search  # a search with hidden trials runs its final run itself
    final = FinalRun(plan=plan, folder=folder, search=search, retry=retry)
    return replace(search, total=search.total + 1, more=final.more)
