"""The tries of a secret draw, of which only the winner is shown (`stored_draw.py`).

The ledger has one attempt at the search as a whole. The private store has the rest (`SearchRecord`), by which a folder
that is an older copy is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsweep.accounting.errors import BadInput, ContractBroken, turn_read_errors_into_refusal
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.ledger.book import Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import claim_path
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import PlannedSearch, RunRecord, Runs, verify_result_ran_as_declared
from dpsweep.accounting.searches.stored_draw import (
    DrawnTrial,
    SearchOutcome,
    SearchRecord,
    StoredDraw,
    read_state_of_try,
    trials_of_draw,
)


class SecretDraw(PlannedSearch):
    """The tries of the rule's draw, and the final run of its winner if the rule has one."""

    noun, nouns = "try", "tries"

    @property
    def names_of_attempts_to_charge(self) -> tuple[str, ...]:
        """The search as a whole."""
        return (self.plan.id,)

    def declared_events(self, trials: Sequence[Trial]) -> dict[str, tuple[PlanEvent, ...]]:
        """Those of all points: the search is one attempt."""
        return {self.plan.id: tuple(trial.event_with_final_run for trial in self.plan.trials)}

    @property
    def number_of_unnamed_attempts_to_charge(self) -> int:
        """None: the final run is part of the search."""
        return 0

    @property
    def number_of_search_runs(self) -> int:
        """The number of tries, 0 before the draw; as secret as the draw."""
        return len(self.search_trials_so_far())

    @property
    def stored_draw(self) -> StoredDraw | None:
        """The stored draw; None before it is made."""
        return StoredDraw.read_for_plan(self.folder.draw_path, self.plan.id)

    def private_record_of_draw(self, stored: StoredDraw) -> SearchRecord:
        """The private store's record of the attempt that this draw is for."""
        return SearchRecord(store=self.folder.private_store, attempt=stored.attempt)

    @classmethod
    def number_of_runs_text(cls, plan: Plan) -> str:
        """Nothing: the number of tries is secret."""
        return ""

    def killed_runs_to_repeat(self, killed: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """None: another try would depend on how the first one went."""
        return ()

    @classmethod
    def number_of_runs_that_may_win(cls, plan: Plan) -> float:
        """The mean number of tries by the law that the draw is from, never the number drawn."""
        return max(1.0, cls.expected_number_of_runs(plan))

    def search_trials_so_far(self) -> tuple[Trial, ...]:
        """The tries of the stored draw."""
        stored = self.stored_draw
        return () if stored is None else trials_of_draw(self.plan, stored.draw)

    def point_index_of_each_search_run(self) -> Sequence[int]:
        """The points that were drawn."""
        stored = self.stored_draw
        return () if stored is None else stored.draw.tries

    def chosen_final_run(self) -> Trial | None:
        """The final run of the winner that the folder names."""
        stored = self.stored_draw
        final = None if stored is None else self.state_of_final_run(stored)
        return None if final is None else final.trial

    def outcome_of_draw(self, stored: StoredDraw) -> SearchOutcome | None:
        """The outcome in the folder; None if the search that the draw is for is not over."""
        outcome = SearchOutcome.read(self.folder.outcome_path)
        return outcome if outcome is not None and outcome.attempt == stored.attempt else None

    def states_of_tries(self, stored: StoredDraw) -> tuple[DrawnTrial, ...]:
        """The states of the draw's tries."""
        return tuple(read_state_of_try(trial, stored, self.folder) for trial in trials_of_draw(self.plan, stored.draw))

    def state_of_final_run(self, stored: StoredDraw, outcome: SearchOutcome | None = None) -> DrawnTrial | None:
        """The state of the final run of the draw's winner; None if there is none, or not yet.

        `outcome` says who won if the folder may be an older copy, which does not know it.
        """
        outcome, finals = outcome or self.outcome_of_draw(stored), self.plan.final_runs
        if not finals or outcome is None or outcome.winner is None:
            return None
        with turn_read_errors_into_refusal(f"the winner in {self.folder.root}"):
            return read_state_of_try(finals[stored.draw.tries[outcome.winner]], stored, self.folder)

    def states_of_tries_and_final_run(
        self, stored: StoredDraw, outcome: SearchOutcome | None = None
    ) -> tuple[DrawnTrial, ...]:
        """The states of the draw's tries, then that of the final run if there is one."""
        final = self.state_of_final_run(stored, outcome)
        return self.states_of_tries(stored) + (() if final is None else (final,))

    def difference_from_private_store_text(self, stored: StoredDraw) -> str | None:
        """The difference between the folder and the private store, in words that follow "it"; None if they agree."""
        record = self.private_record_of_draw(stored)
        tries = self.states_of_tries_and_final_run(stored, record.outcome)
        return record.difference_from_folder_text(self.folder, tries)

    def read_runs_and_winner(self, account: Statement) -> Runs:
        """The tries with their results; the winner is the recorded one, and stays if its final run was killed."""
        stored = self.stored_draw
        if stored is None:
            return Runs(rows=(), points=(), noun=self.noun, nouns=self.nouns, over=False)
        outcome = self.outcome_of_draw(stored)
        last = None if outcome is None else self.state_of_final_run(stored, outcome)
        charged = int(self._is_charged(stored, account))
        rows = [
            RunRecord(trial=one.trial, result=one.result, charged=charged, started=int(one.begun))
            for one in (*self.states_of_tries(stored), *([] if last is None else [last]))
        ]
        final = None if last is None else rows.pop()
        won = None if outcome is None or outcome.winner is None else rows[outcome.winner]
        if won is not None and won.score is None:
            raise BadInput(f"Expected {self.folder.root} to hold the result of the winning try.")
        shown = final if final is not None and final.finished else won
        return Runs(
            rows=tuple(rows),
            points=stored.draw.tries,
            noun=self.noun,
            nouns=self.nouns,
            final=final,
            winner=None if shown is None else shown.trial.id,
            over=outcome is not None and (last is None or last.ended),
        )

    def verify_runs_and_describe(self, account: Statement) -> str:
        """Checks that every run is a try of the stored draw of a charged search; their number stays secret."""
        stored, search = self.stored_draw, self.plan.id
        if stored is None:
            return "its draw is lost, and the search with it."
        if not self._is_charged(stored, account):
            raise ContractBroken(f"Attempt {stored.attempt} at the search {search} was not started on a charge.")
        tries = {one.trial.id: one for one in self.states_of_tries_and_final_run(stored)}
        for place in self.folder.trials_folder.glob("*"):
            if claim_path(place, stored.attempt).exists() and place.name not in tries:
                raise ContractBroken(f"Trial {place.name} ran without a place in the draw.")
        for one in tries.values():
            if one.result is not None:
                verify_result_ran_as_declared(one.trial, one.result)
        outcome = SearchOutcome.read(self.folder.outcome_path)
        if outcome is None or outcome.attempt < stored.attempt:
            return "its search is not over."
        if outcome.attempt > stored.attempt:
            raise ContractBroken(f"The outcome in {self.folder.root} is one of an attempt that was never made.")
        if outcome.winner is not None and tuple(tries.values())[outcome.winner].score is None:
            raise ContractBroken(f"The winner of the search {search} has no score.")
        return "its search is over, paid, and ran nothing but its draw."

    def _is_charged(self, stored: StoredDraw, account: Statement) -> bool:
        search = self.plan.id
        started = account.attempts_of_plan(search).started[search]
        return stored.attempt <= started <= account.attempts_of_plan(search).covered[search]

    def verify_results_match_attempt_ends(self, ledger: Ledger) -> None:
        """Compares the folder with the private store, if this machine has it."""
        stored = self.stored_draw
        if (
            stored is not None
            and self.private_record_of_draw(stored).exists
            and (difference := self.difference_from_private_store_text(stored))
        ):
            raise ContractBroken(f"{self.folder.root} does not hold the search that was made: it {difference}.")

    def charge_digest_and_folder_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The charge of the draw's attempt, and the draw's salt."""
        stored = self.stored_draw
        attempt = 1 if stored is None else stored.attempt
        charge = account.attempts_of_plan(self.plan.id).charge_of(self.plan.id, attempt)
        return charge.digest, "" if stored is None else stored.salt
