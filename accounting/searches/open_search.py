"""What the searches that may show all of their runs have in common: a ledger line for each start and each end.

The winner is the run that the rule names, given the scores of all finished runs. Invariants of a final run:

* The plan charges one final run, at the price of the costliest point, before the search begins.
* Its point is chosen once, when the search is over, and stored before the final run begins. It is never chosen again:
  another final run is another charge.
* A final run is one of `Plan.final_runs`, with its own configuration, identity, folder and randomness.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from dpsweep.accounting.codec import Count
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.book import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.interface import (
    PlannedSearch,
    RunRecord,
    Runs,
    StoredChoice,
    index_of_winning_run,
    verify_result_ran_as_declared,
)


class OpenSearch(PlannedSearch):
    """A search that may show all of its runs."""

    def trials_of_unproposed_points(self) -> tuple[Trial, ...]:
        """The points that no run has; none by default."""
        return ()

    def number_of_unnamed_attempts_needed(self, attempts: Attempts) -> int:
        """One for the final run, until it has begun."""
        finals = self.plan.final_runs
        return int(bool(finals) and not any(attempts.started[final.id] for final in finals))

    def chosen_final_run(self) -> Trial | None:
        """The final run of the stored choice; refuses a damaged file, and one of another plan."""
        finals, path = self.plan.final_runs, self.folder.final_point_path
        chosen = ChosenPoint.read_for_plan(path, self.plan.id) if finals else None
        if chosen is not None and chosen.point >= len(finals):
            raise BadInput(f"Expected the point of {path} to be one of the {len(finals)} of plan {self.plan.id}.")
        return None if chosen is None else finals[chosen.point]

    def is_final_run_to_come(self) -> bool:
        """Whether a final run is paid for and not chosen yet."""
        return bool(self.plan.final_runs) and self.chosen_final_run() is None

    def store_final_run(self, point: int) -> Trial:
        """Stores the choice of a point, by its index in the plan, and returns its final run; never replaces one."""
        final = self.plan.final_runs[point]
        if self.chosen_final_run() not in (None, final):
            raise BadInput(f"Expected {self.folder.final_point_path} to be absent: a final run is never chosen again.")
        write_json(self.folder.final_point_path, ChosenPoint(plan=self.plan.id, point=point).to_json())
        return final

    def recover_final_run(self, started: Container[str]) -> None:
        """Restores from the ledger the choice of a final run that began, if the folder was deleted."""
        for point, final in enumerate(self.plan.final_runs):
            if final.id in started and self.is_final_run_to_come():
                self.store_final_run(point)

    def read_runs_and_winner(self, account: Statement) -> Runs:
        """The runs with their attempts in the ledger; the winner is the final run, if the rule has one."""
        chosen, several = self.chosen_final_run(), self.plan.least_runs_per_point > 1
        rows = self._run_records(self.search_trials_so_far(), account)
        final = None if chosen is None else self._run_records([chosen], account)[0]
        winner = final if final is not None and final.finished else None
        if not self.plan.final_runs and (best := self._best_run_index(rows)) is not None:
            winner = rows[best]
        return Runs(
            rows=rows,
            points=self.point_index_of_each_search_run()[: len(rows)],
            noun="run" if several else self.noun,
            nouns="runs" if several else self.nouns,
            final=final,
            untried=self.trials_of_unproposed_points(),
            winner=None if winner is None else winner.trial.id,
            over=chosen is not None or not self.plan.final_runs,
        )

    def best_point_index(self, account: Statement) -> int | None:
        """The point of the run that the rule names now, by its index in the plan; None if none has finished."""
        best = self._best_run_index(self._run_records(self.search_trials_so_far(), account))
        return None if best is None else self.point_index_of_each_search_run()[best]

    def _run_records(self, trials: Sequence[Trial], account: Statement) -> tuple[RunRecord, ...]:
        """The records of runs whose every attempt has a line in the ledger."""
        attempts = account.attempts_of_plan(self.plan.id)
        paid = attempts.spares >= 0
        return tuple(
            RunRecord(
                trial=trial,
                result=TrialResult.read(self.folder.trial_folder(trial.id)),
                charged=max(attempts.covered[trial.id], attempts.started[trial.id] if paid else 0),
                started=attempts.started[trial.id],
            )
            for trial in trials
        )

    def _best_run_index(self, rows: Sequence[RunRecord]) -> int | None:
        scores = {place: row.score for place, row in enumerate(rows) if row.score is not None}
        points = self.point_index_of_each_search_run()
        return index_of_winning_run(self.rule, scores, points, self.plan.least_runs_per_point)

    def verify_runs_and_describe(self, account: Statement) -> str:
        """Checks that each result belongs to a started attempt and to its declaration, and the final run was chosen."""
        chosen, runs = self.chosen_final_run(), self.search_and_final_runs()
        began = {final.id for final in self.plan.final_runs if self._number_of_starts(account, final)}
        if chosen is not None and began and chosen.id not in began:
            raise ContractBroken(f"{self.folder.final_point_path} names another final run than was started.")
        results = self._results_of_runs()
        for trial, result in results:
            if result.attempt > self._number_of_starts(account, trial):
                raise ContractBroken(f"Attempt {result.attempt} at trial {trial.id} was not started on a charge.")
            verify_result_ran_as_declared(trial, result)
        return f"{len(results)} of {len(runs)} results are there, all paid."

    def _number_of_starts(self, account: Statement, trial: Trial) -> int:
        return account.attempts_of_plan(self.plan.id).started[trial.id]

    def _results_of_runs(self) -> list[tuple[Trial, TrialResult]]:
        read = ((trial, TrialResult.read(self.folder.trial_folder(trial.id))) for trial in self.search_and_final_runs())
        return [(trial, result) for trial, result in read if result is not None]

    def verify_results_match_attempt_ends(self, ledger: Ledger) -> None:
        """Compares each result with the digest in its attempt's last settle line."""
        attempts = ledger.attempts_of_plan(self.plan.account, self.plan.id)
        for trial, result in self._results_of_runs():
            key = trial.id, result.attempt
            end = attempts.settled.get((*key, attempts.resumed[key])) or {}
            if end.get("result") not in (None, TrialResult.digest_of_result_file(self.folder.trial_folder(trial.id))):
                raise ContractBroken(f"The result of trial {trial.id} is not the one that its attempt ended with.")

    def charge_digest_and_folder_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The last charge, and the salt of the winner's result."""
        result = None if winner is None else TrialResult.read(self.folder.trial_folder(winner))
        return account.attempts_of_plan(self.plan.id).charges[-1].digest, "" if result is None else result.salt


@dataclass(frozen=True, kw_only=True)
class ChosenPoint(StoredChoice):
    """The point of a plan's final run, by its index in the plan."""

    point: Count
