"""A fixed number of runs whose points a sampler proposes, each from the scores of the runs before it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import Sample
from dpsweep.accounting.searches.open_search import OpenSearch
from dpsweep.accounting.searches.proposal_file import choices_of, read_proposals, runs_of


class ProposedPoints(OpenSearch):
    """The runs that a sampler proposes; the charge names none of them, since they are not known yet."""

    noun, nouns = "run", "runs"

    @property
    def paid_by_name(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def paid_without_name(self) -> int:
        """One for each turn, and what every plan pays for."""
        return super().paid_without_name + self.total

    def reserved(self, attempts: Attempts) -> int:
        """One for each turn and for the final run that has not begun."""
        finals = sum(attempts.started[final.id] > 0 for final in self.plan.finals)
        return super().reserved(attempts) + self.total - (len(+attempts.started) - finals)

    @property
    def total(self) -> int:
        """The number of turns."""
        return len(choices_of(self.plan))

    def search_runs(self) -> tuple[Trial, ...]:
        """A run for each proposal so far."""
        return runs_of(self.plan, self.points())

    def points(self) -> Sequence[int]:
        """The proposals so far."""
        return read_proposals(self.plan, self.folder.proposals)

    def untried(self) -> tuple[Trial, ...]:
        """The points that nothing has proposed."""
        proposed = set(self.points())
        return tuple(trial for point, trial in enumerate(self.plan.trials) if point not in proposed)

    def verify(self, account: Statement) -> str:
        """Also checks that every run was proposed, and that no more attempts were started than charged."""
        known = {run.id for run in self.runs()}
        for place in self.folder.trials.iterdir() if self.folder.trials.exists() else ():
            if Receipt.claimed(place, 1) and place.name not in known:
                raise ContractBroken(f"Trial {place.name} ran without having been proposed.")
        if account.attempts(self.plan.id).spares < 0:
            raise ContractBroken(f"More runs of plan {self.plan.id} were started than were charged.")
        return f"{len(known)} of {self.total} runs were proposed; {super().verify(account)}"

    @classmethod
    def sample(cls, plan: Plan, rng: Random) -> Sample:
        """A run for each turn, of any point that it may have, drawn at random."""
        return Sample(trials=tuple(plan.trials[rng.choice(list(turn))] for turn in choices_of(plan)))

    @classmethod
    def released_runs(cls, plan: Plan, alone: Trial) -> tuple[Trial, ...]:
        """As many of the point that costs most as there are turns."""
        return (alone,) * len(choices_of(plan))
