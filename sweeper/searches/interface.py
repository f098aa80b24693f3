"""The queue of a search's runs, which each kind of search fills in its own way.

A kind of search is a class here, `AdmittedEveryPoint` in `every_point`, that charges and starts the runs of the kind of
the same name in `accounting/searches`. Invariant: `queue` returns only runs that are paid for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.interface import class_of_search_kind, search_class_for_plan
from dpsweep.sweeper.launchers.workers import Workers
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.attempt_log import AttemptLog
from dpsweep.sweeper.searches.runner import Runner


def no_further_runs(many: int) -> tuple[Trial, ...]:
    """No further runs: the `more` and the `refill` of a plan with all runs due from the beginning."""
    return ()


def no_repetition(command: str) -> str:
    """No notice: killed runs are never repeated."""
    return ""


@dataclass(frozen=True, kw_only=True)
class RunQueue:
    """The number of runs of a plan, the runs that are due and paid for, their attempt log (`log`), and user messages.

    `more` returns the next runs, at most a given number, from the results so far; none in most sweeps. `refill` returns
    one of them beside runs at work, for a free worker, unless more than a given number have not begun. `notice` is
    printed before anything runs, `idle` if nothing is due, `losses` about runs that failed or were killed. `repetition`
    says what another attempt at the killed ones costs, and names the command that accepts it. `all_known` says that no
    further runs are certain to come. `run` hands runs that are due to the launcher, and returns the complaints of its
    jobs.
    """

    total: int
    due: tuple[Trial, ...]
    log: AttemptLog
    notice: str
    idle: str
    losses: str
    repetition: Callable[[str], str] = no_repetition
    all_known: bool = False
    more: Callable[[int], tuple[Trial, ...]] = no_further_runs
    refill: Callable[[int], tuple[Trial, ...]] = no_further_runs
    run: Callable[[Runner, Sequence[Trial]], tuple[str, ...]] = Runner.run_blocks_and_collect_errors

    @property
    def known_runs(self) -> tuple[Trial, ...]:
        """All runs that are known so far."""
        return self.log.known_runs()

    @property
    def number_of_unproposed_runs(self) -> int:
        """The number of runs that are not proposed yet."""
        return 0 if self.all_known else self.total - len(self.known_runs)


@dataclass(frozen=True, kw_only=True)
class AdmittedSearch(ABC):
    """The search of a priced plan in a sweep's folder, as it is charged on a ledger and run.

    `retry` says which ended attempts are repeated.
    """

    priced: PricedPlan
    folder: SweepFolder
    ledger: Ledger
    retry: Retry

    @classmethod
    def workers_that_share_runs(cls, workers: Workers) -> Workers:
        """Those of the workers that may share the runs: all of them by default."""
        return workers

    @classmethod
    def launcher_refusal_sentence(cls, rule: str, workers: Workers, resume: int) -> str:
        """Why these workers may not run the search under the rule of this name; empty if they may.

        `resume` is how often an interrupted run is launched again.
        """
        return ""

    @property
    def plan(self) -> Plan:
        """The plan of the search."""
        return self.priced.plan

    @abstractmethod
    def are_all_runs_finished(self) -> bool:
        """Whether every run has finished, so that nothing is run or charged unless all is repeated."""

    @abstractmethod
    def charge_and_queue_due_runs(self) -> RunQueue:
        """Charges what is not charged yet, and returns the runs that are due; or raises `BudgetRefused`."""


def admitted_search_for_plan(priced: PricedPlan, folder: SweepFolder, ledger: Ledger, retry: Retry) -> AdmittedSearch:
    """The search of this plan, of the kind that its rule names."""
    search_class_for_plan(priced.plan)
    return admitted_class_for_plan(priced.plan)(priced=priced, folder=folder, ledger=ledger, retry=retry)


def admitted_class_for_plan(plan: Plan) -> type[AdmittedSearch]:
    """The kind of search that the plan's rule names, whether its price covers it or not."""
    return class_of_search_kind(__package__, plan, "Admitted")
