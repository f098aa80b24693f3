"""The tries of a secret draw, of which only the winner is shown (`stored_draw.py`).

The ledger has one attempt at the search as a whole. The private store has the rest (`search_record.py`), by which a
folder that is an older copy is recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import PlannedSearch, RunRecord, Runs, Sample, verify_result
from dpsweep.accounting.searches.stored_draw import (
    DrawnTrial,
    SearchOutcome,
    SearchRecord,
    StoredDraw,
    read_draw,
    read_try,
    tries_of,
)
from dpsweep.accounting.selection.interface import rule_from_config
from dpsweep.accounting.validation import as_written


class SecretDraw(PlannedSearch):
    """The tries of the rule's draw, and the final run of its winner if the rule has one."""

    noun, nouns = "try", "tries"

    @property
    def paid_by_name(self) -> tuple[str, ...]:
        """The search as a whole."""
        return (self.plan.id,)

    @property
    def paid_without_name(self) -> int:
        """None: the final run is part of the search."""
        return 0

    def reserved(self, attempts: Attempts) -> int:
        """None."""
        return 0

    @property
    def total(self) -> int:
        """The number of tries, 0 before the draw; as secret as the draw."""
        return len(self.search_runs())

    @property
    def stored(self) -> StoredDraw | None:
        """The stored draw; None before it is made."""
        return read_draw(self.plan, self.folder.draw)

    def record(self, stored: StoredDraw) -> SearchRecord:
        """The private store's record of the attempt that this draw is for."""
        return SearchRecord(store=self.folder.private, attempt=stored.attempt)

    def search_runs(self) -> tuple[Trial, ...]:
        """The tries of the stored draw."""
        stored = self.stored
        return () if stored is None else tries_of(self.plan, stored.draw)

    def points(self) -> Sequence[int]:
        """The points that were drawn."""
        stored = self.stored
        return () if stored is None else stored.draw.tries

    def final_run(self) -> Trial | None:
        """The final run of the winner that the folder names."""
        stored = self.stored
        final = None if stored is None else self.final_try(stored)
        return None if final is None else final.trial

    def tries(self, stored: StoredDraw) -> tuple[DrawnTrial, ...]:
        """The states of the draw's tries."""
        return tuple(read_try(trial, stored, self.folder) for trial in tries_of(self.plan, stored.draw))

    def final_try(self, stored: StoredDraw, outcome: SearchOutcome | None = None) -> DrawnTrial | None:
        """The state of the final run of the draw's winner; None if there is none, or not yet.

        `outcome` says who won if the folder may be an older copy, which does not know it.
        """
        outcome = outcome or SearchOutcome.read(self.folder.outcome)
        if not self.plan.finals or outcome is None or outcome.attempt != stored.attempt or outcome.winner is None:
            return None
        with as_written(f"the winner in {self.folder.root}"):
            return read_try(self.plan.finals[stored.draw.tries[outcome.winner]], stored, self.folder)

    def drawn_trials(self, stored: StoredDraw, outcome: SearchOutcome | None = None) -> tuple[DrawnTrial, ...]:
        """The states of the draw's tries, then that of the final run if there is one."""
        final = self.final_try(stored, outcome)
        return self.tries(stored) + (() if final is None else (final,))

    def difference(self, stored: StoredDraw) -> str | None:
        """The difference between the folder and the private store, in words that follow "it"; None if they agree."""
        record = self.record(stored)
        tries = self.drawn_trials(stored, record.outcome)
        places = {one.trial.id: self.folder.trial(one.trial.id) for one in tries}
        return record.contradiction(self.folder.draw, self.folder.outcome, places, tries)

    def records(self, account: Statement) -> Runs:
        """The tries with their results; the winner is the recorded one, and stays if its final run was killed."""
        stored, outcome = self.stored, SearchOutcome.read(self.folder.outcome)
        if stored is None:
            return Runs(rows=(), points=(), noun=self.noun, nouns=self.nouns, over=False)
        search = self.plan.id
        charged = int(stored.attempt <= min(account.covered(search, search), account.started(search, search)))
        tries = self.tries(stored)
        rows = tuple(_run_record(one, charged) for one in tries)
        begun = Runs(rows=rows, points=stored.draw.tries, noun=self.noun, nouns=self.nouns, over=False)
        if outcome is None or outcome.attempt != stored.attempt:
            return begun
        if outcome.winner is not None and tries[outcome.winner].score is None:
            raise BadInput(f"Expected {self.folder.root} to hold the result of the winning try.")
        winner = None if outcome.winner is None else rows[outcome.winner].trial.id
        last = self.final_try(stored)
        if last is None:
            return replace(begun, winner=winner, over=True)
        final = _run_record(last, charged)
        return replace(begun, final=final, winner=final.trial.id if final.finished else winner, over=last.ended)

    def verify(self, account: Statement) -> str:
        """Checks that every run is a try of the stored draw of a charged search; their number stays secret."""
        stored, search = self.stored, self.plan.id
        if stored is None:
            return "its draw is lost, and the search with it."
        if not stored.attempt <= account.started(search, search) <= account.covered(search, search):
            raise ContractBroken(f"Attempt {stored.attempt} at the search {search} was not started on a charge.")
        tries = {one.trial.id: one for one in self.drawn_trials(stored)}
        for place in self.folder.trials.iterdir() if self.folder.trials.exists() else ():
            if Receipt.claimed(place, stored.attempt) and place.name not in tries:
                raise ContractBroken(f"Trial {place.name} ran without a place in the draw.")
        for one in tries.values():
            if one.result is not None:
                verify_result(one.trial, one.result)
        outcome = SearchOutcome.read(self.folder.outcome)
        if outcome is not None and outcome.attempt > stored.attempt:
            raise ContractBroken(
                f"The outcome in {self.folder.root} is one of attempt {outcome.attempt}, which was never made."
            )
        if outcome is None or outcome.attempt != stored.attempt:
            return "its search is not over."
        won = None if outcome.winner is None else tuple(tries.values())[outcome.winner].score
        if (outcome.winner is None) != (won is None):
            raise ContractBroken(f"The winner of the search {search} has no score.")
        return "its search is over, paid, and ran nothing but its draw."

    def verify_ends(self, ledger: Ledger) -> None:
        """Compares the folder with the private store, if this machine has it."""
        stored = self.stored
        if stored is not None and self.record(stored).exists and (difference := self.difference(stored)):
            raise ContractBroken(
                f"The search in {self.folder.root} is not the one that was made: its folder {difference}."
            )

    def charge_and_secret(self, account: Statement, winner: str | None) -> tuple[str, str]:
        """The charge of the draw's attempt, and the draw's salt."""
        stored = self.stored
        attempt = 1 if stored is None else stored.attempt
        charge = account.attempts(self.plan.id).charge_of(self.plan.id, attempt)
        return charge.digest, "" if stored is None else stored.salt

    @classmethod
    def sample(cls, plan: Plan, rng: Random) -> Sample:
        """The tries of one draw."""
        draw = rule_from_config(plan.rule).draw(len(plan.trials), rng)
        return Sample(trials=tuple(plan.trials[place] for place in draw.tries), draw=draw)

    @classmethod
    def released_runs(cls, plan: Plan, alone: Trial) -> tuple[Trial, ...]:
        """The winner alone."""
        return (alone,)


def _run_record(one: DrawnTrial, charged: int) -> RunRecord:
    return RunRecord(trial=one.trial, result=one.result, charged=charged, started=int(one.begun))
