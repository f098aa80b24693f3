"""What searches that may show all of their runs have in common: admission run by run, and a final run at the end.

The charge of the plan pays for the final run, as one attempt at any of the points' final runs. Its point is stored
before its attempt begins. If the search has killed runs that another attempt may replace, it waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.accounting.searches.open_search import OpenSearch
from dpsweep.sweeper.searches.admission import (
    Retry,
    charge_and_admit_runs,
    killed_runs_notice,
    open_account_or_check_budget,
    record_launch_and_return_nonce,
    states_of_known_runs,
    void_open_attempts_if_store_was_lost,
)
from dpsweep.sweeper.searches.attempt_log import AttemptLog, LedgerAttemptLog
from dpsweep.sweeper.searches.interface import AdmittedSearch, RunQueue, no_further_runs

LOSSES = "{runs} failed or were killed; they stay charged. Their logs are in {folder}."

NOTHING_DUE = "No run that is paid for is left; nothing is run or charged."
"""What is printed if nothing is due, and killed runs wait for another charge."""


class AdmittedOpenSearch(AdmittedSearch):
    """A search with a ledger line for each start and each end."""

    idle: ClassVar[str]
    """What is printed if nothing is due, with the number of runs to fill in."""

    runs: ClassVar[str]
    """What messages call the runs."""

    @cached_property
    def search_of_plan(self) -> OpenSearch:
        """The search of the plan."""
        search = search_for_plan(self.plan, self.folder)
        assert isinstance(search, OpenSearch)
        return search

    def are_all_runs_finished(self) -> bool:
        """Whether the plan is charged and each run that it pays for has a result."""
        statement = self.ledger.statement_or_none(self.plan.account, self.plan.id)
        if statement is None or not (attempts := statement.attempts_of_plan(self.plan.id)).charges:
            return False
        finished = states_of_known_runs(self.search_of_plan, attempts).finished
        return len(finished) == self.search_of_plan.number_of_runs

    def restore_choices_in_folder_from_ledger(self, started: Container[str]) -> None:
        """Restores from the ledger what led to runs that began, if the folder was deleted."""
        self.search_of_plan.recover_final_run(started)

    def next_runs_callback(self, log: AttemptLog) -> Callable[[int], tuple[Trial, ...]]:
        """What returns the next runs of the search, from the results so far."""
        return no_further_runs

    def charge_and_queue_due_runs(self) -> RunQueue:
        """The admitted runs, followed by the final run if the plan has one."""
        plan, folder, ledger = self.plan, self.folder, self.ledger
        open_account_or_check_budget(self.priced, ledger)
        void_open_attempts_if_store_was_lost(plan, ledger, folder)
        self.restore_choices_in_folder_from_ledger(ledger.attempts_of_plan(plan.account, plan.id).started)
        due = charge_and_admit_runs(self.priced, self.search_of_plan, ledger, self.retry)
        known, paid = len(self.search_of_plan.search_trials_so_far()), self.search_of_plan.number_of_search_runs
        to_come = due or known < paid or self.search_of_plan.is_final_run_to_come()
        log = LedgerAttemptLog(
            search=self.search_of_plan,
            ledger=ledger,
            nonce=record_launch_and_return_nonce(plan, ledger, folder.private_store) if to_come else "",
        )
        queue = RunQueue(
            total=self.search_of_plan.number_of_search_runs,
            due=due,
            log=log,
            more=self.next_runs_callback(log),
            notice="",
            idle=NOTHING_DUE
            if not due and log.states_of_runs().killed
            else self.idle.format(total=self.search_of_plan.number_of_search_runs),
            losses=LOSSES.replace("{runs}", self.runs),
            repetition=partial(killed_runs_notice, self.priced, self.search_of_plan, ledger),
        )
        if not plan.final_runs:
            return queue
        return replace(queue, total=queue.total + 1, more=partial(self._next_runs_or_final_run, queue))

    def _next_runs_or_final_run(self, queue: RunQueue, many: int) -> tuple[Trial, ...]:
        """The next runs of the search, which `queue` has; after the last one, the final run; then none."""
        plan, search = self.plan, self.search_of_plan
        runs = queue.more(many)
        if (
            runs
            or self.folder.stop_file_path.exists()
            or self._has_search_unfinished_runs(queue)
            or not search.is_final_run_to_come()
        ):
            return runs
        point = search.best_point_index(self.ledger.statement(plan.account, plan.id))
        return () if point is None else (search.store_final_run(point),)

    def _has_search_unfinished_runs(self, queue: RunQueue) -> bool:
        where = queue.log.states_of_runs()
        repeated = () if self.retry is Retry.NONE else where.killed
        return bool(queue.number_of_unproposed_runs or where.fresh or where.interrupted or where.working or repeated)
