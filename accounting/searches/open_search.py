"""What the searches that may show all of their runs have in common: a ledger line for each start and each end.

The winner is the run that the rule names, given the scores of all finished runs. Invariants of a final run:

* The plan charges one final run, at the price of the costliest point, before the search begins.
* Its point is chosen once, when the search is over, and stored before the final run begins. It is never chosen again:
  another final run is another charge.
* A final run is one of `Plan.final_runs`, with its own configuration, identity, folder and randomness.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from dpsweep.accounting.codec import Count, Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.interface import (
    PlannedSearch,
    RunRecord,
    Runs,
    run_records_with_attempt_counts,
    verify_result_ran_as_declared,
)


class OpenSearch(PlannedSearch):
    """A search that may show all of its runs."""

    def trials_of_unproposed_points(self) -> tuple[Trial, ...]:
        """The points that no run has; none by default."""
        return ()

    def number_of_unnamed_attempts_needed(self, attempts: Attempts) -> int:
        """One for the final run, until it has begun."""
        candidates = self.final_run_choice.candidates
        return int(bool(candidates) and not any(attempts.started[final.id] for final in candidates))

    @property
    def final_run_choice(self) -> FinalRunChoice:
        """The choice of the final run in the sweep's folder."""
        return FinalRunChoice(plan=self.plan.id, candidates=self.plan.final_runs, path=self.folder.final_point_path)

    def chosen_final_run(self) -> Trial | None:
        """The final run of the stored choice."""
        return self.final_run_choice.read()

    def read_runs_and_winner(self, account: Statement) -> Runs:
        """The runs with their attempts in the ledger; the winner is the final run, if the rule has one."""
        rows = run_records_with_attempt_counts(self.folder, self.plan, self.search_trials_so_far(), account)
        best, several = self._best_run_index(rows), self.plan.least_runs_per_point > 1
        winner = None if best is None else rows[best].trial.id
        runs = Runs(
            rows=rows,
            points=self.point_index_of_each_search_run()[: len(rows)],
            noun="run" if several else self.noun,
            nouns="runs" if several else self.nouns,
            untried=self.trials_of_unproposed_points(),
            winner=winner,
        )
        return self._runs_with_final_run_as_winner(runs, account) if self.final_run_choice.candidates else runs

    def best_point_index(self, account: Statement) -> int | None:
        """The point of the run that the rule names now, by its index in the plan; None if none has finished."""
        best = self._best_run_index(
            run_records_with_attempt_counts(self.folder, self.plan, self.search_trials_so_far(), account)
        )
        return None if best is None else self.point_index_of_each_search_run()[best]

    def _best_run_index(self, rows: Sequence[RunRecord]) -> int | None:
        scores = {place: row.score for place, row in enumerate(rows) if row.score is not None}
        return self.rule.index_of_winning_run(
            scores, self.point_index_of_each_search_run(), self.plan.least_runs_per_point
        )

    def _runs_with_final_run_as_winner(self, runs: Runs, account: Statement) -> Runs:
        chosen = self.chosen_final_run()
        if chosen is None:
            return replace(runs, winner=None, over=False)
        (final,) = run_records_with_attempt_counts(self.folder, self.plan, (chosen,), account)
        return replace(runs, final=final, winner=final.trial.id if final.finished else None)

    def verify_runs_and_describe(self, account: Statement) -> str:
        """Checks that each result belongs to a started attempt and to its declaration."""
        self._verify_started_final_run_was_chosen(account)
        runs = self.search_and_final_runs()
        results = [(trial, TrialResult.read(self.folder.trial_folder(trial.id))) for trial in runs]
        found = [(trial, result) for trial, result in results if result is not None]
        for trial, result in found:
            if not result.attempt <= account.number_of_started_attempts(self.plan.id, trial.id):
                raise ContractBroken(f"Attempt {result.attempt} at trial {trial.id} was not started on a charge.")
            verify_result_ran_as_declared(trial, result)
        return f"{len(found)} of {len(runs)} results are there, all paid."

    def _verify_started_final_run_was_chosen(self, account: Statement) -> None:
        """Compares the point that was chosen for the final run with the one whose final run was started."""
        choice, chosen = self.final_run_choice, self.chosen_final_run()
        began = {final.id for final in choice.candidates if account.number_of_started_attempts(self.plan.id, final.id)}
        if chosen is not None and began and chosen.id not in began:
            raise ContractBroken(f"The final run that {choice.path} names is not the one that was started.")

    def verify_results_match_attempt_ends(self, ledger: Ledger) -> None:
        """Compares each result with the digest in its attempt's last settle line."""
        attempts = ledger.attempts_of_plan(self.plan.account, self.plan.id)
        for trial in self.search_and_final_runs():
            result = TrialResult.read(self.folder.trial_folder(trial.id))
            if result is None:
                continue
            key = trial.id, result.attempt
            end = attempts.settled.get((*key, attempts.resumed[key]))
            if end is not None and end.get("result") not in (
                None,
                TrialResult.digest_of_result_file(self.folder.trial_folder(trial.id)),
            ):
                raise ContractBroken(
                    f"The result of trial {trial.id} in {self.folder.root} is not the one that its attempt ended with: "
                    "it was changed since, or comes from another copy of this folder."
                )

    def charge_digest_and_folder_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The last charge, and the salt of the winner's result."""
        result = None if winner is None else TrialResult.read(self.folder.trial_folder(winner))
        return account.attempts_of_plan(self.plan.id).charges[-1].digest, "" if result is None else result.salt


@dataclass(frozen=True, kw_only=True)
class ChosenPoint(Stored):
    """The point of a plan's final run, by its index in the plan."""

    plan: str
    point: Count


@dataclass(frozen=True, kw_only=True)
class FinalRunChoice:
    """The choice of a plan's final run, in a file of the sweep's folder: chosen once, never replaced.

    `candidates` are the final runs of all points, in their order; none if the rule pays for none.
    """

    plan: str
    candidates: tuple[Trial, ...]
    path: Path

    def read(self) -> Trial | None:
        """The chosen final run, None if none is chosen yet; refuses a damaged file, and one of another plan."""
        if not self.candidates:
            return None
        chosen = parse_json_file_or_none(self.path, ChosenPoint.from_json)
        if chosen is None:
            return None
        if chosen.plan != self.plan:
            raise BadInput(
                f"Expected {self.path} to be the final run of plan {self.plan}; it is one of plan {chosen.plan}."
            )
        if chosen.point >= len(self.candidates):
            raise BadInput(
                f"Expected the point of {self.path} to be one of the {len(self.candidates)} of plan {self.plan}."
            )
        return self.candidates[chosen.point]

    def is_to_come(self) -> bool:
        """Whether a final run is paid for and not chosen yet."""
        return bool(self.candidates) and self.read() is None

    def store(self, point: int) -> Trial:
        """Stores the choice of a point, by its index in the plan, and returns its final run."""
        known = self.read()
        if known is not None and known != self.candidates[point]:
            raise BadInput(f"Expected {self.path} to be absent: a final run is never chosen again.")
        write_json(self.path, ChosenPoint(plan=self.plan, point=point).to_json())
        return self.candidates[point]

    def recover(self, started: Container[str]) -> None:
        """Restores from the ledger the choice of a final run that began, if the folder was deleted."""
        if self.read() is None:
            begun = (point for point, final in enumerate(self.candidates) if final.id in started)
            for point in islice(begun, 1):
                self.store(point)
