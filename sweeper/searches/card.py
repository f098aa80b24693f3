"""The card of a charged plan, from the side of its coordinator: who is asked about, when, and what may happen after.

The card is due once no run is left to make or to repeat. The coordinator claims the sealed part for the
winner's model; one job more reads it (`sweeper/trial/card.py`). After the claim nothing trains on the plan's charge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.statement import card_part
from dpsweep.accounting.records.card import NO_ANSWER_EVER, CardClaim, CardFiles
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.attempt_state import AttemptStates
from dpsweep.sweeper.searches.admission import Retry

LOSSES_AFTER_CARD = (
    "runs failed, were killed or are lost; they stay charged. The card was asked about the winner, so nothing of this "
    "plan trains any more; another plan is another search. Logs are in {folder}."
)
"""What is printed about runs without a result once the sealed part is claimed."""


@dataclass(frozen=True, kw_only=True)
class PlannedCard:
    """The card of a search, by the last charge that its plan has on the ledger; a plan without one has no files."""

    search: PlannedSearch
    ledger: Ledger
    retry: Retry

    @property
    def files(self) -> CardFiles | None:
        """The files of the card on the part that was charged; None without a card or before the charge."""
        plan = self.search.plan
        statement = None if plan.card is None else self.ledger.statement_or_none(plan.account, plan.id)
        part = None if statement is None else card_part(statement.attempts_of_plan(plan.id))
        return None if part is None else self.search.folder.card_files(part)

    @cached_property
    def is_begun(self) -> bool:
        """Whether the part was claimed before this command: then nothing trains any more."""
        return self.files is not None and self.files.is_begun

    @property
    def retry_after_claim(self) -> Retry:
        """What may be repeated: nothing after the claim; raises `BadInput` if the user asks for it."""
        if not self.is_begun:
            return self.retry
        if self.retry in (Retry.FAILED, Retry.AGAIN):
            raise BadInput(
                f"Expected hydra.sweeper.retry={self.retry} to be left out: the card of plan {self.search.plan.id} was "
                "asked about its winner, and no other may follow. Another plan is another search, for example with "
                "repeats=2."
            )
        return Retry.NONE

    def files_to_read_now(self, states: AttemptStates) -> CardFiles | None:
        """The files of the part, claimed for the winner, if the search has ended and the part was never read."""
        files, waiting = self.files, states.fresh + states.working + states.interrupted
        if files is None or waiting or self.waits_for_killed_runs(states) or files.is_read:
            return None
        plan = self.search.plan
        runs = self.search.read_runs_and_winner(self.ledger.statement(plan.account))
        won = next((row for row in runs.search_and_final_run_records if row.trial.id == runs.winner), None)
        if not runs.over or won is None or won.result is None or won.result.model is None:
            return None
        files.claim_for_model(CardClaim(plan=plan.id, part=files.part, trial=won.trial.id, model=won.result.model))
        return files

    def waits_for_killed_runs(self, states: AttemptStates) -> bool:
        """Whether runs that were killed may be repeated."""
        return self.retry is not Retry.NONE and bool(self.search.killed_runs_to_repeat(states.killed))

    def remark_on_missing_answer(self, states: AttemptStates) -> str:
        """Why there is no answer yet, or never will be; empty if there is one, or no card."""
        files = self.files
        if files is None or files.answer is not None:
            return ""
        if files.is_read:
            return NO_ANSWER_EVER
        if self.waits_for_killed_runs(states):
            return "The card waits until the killed runs are repeated; hydra.sweeper.retry=none gives them up."
        return ""
