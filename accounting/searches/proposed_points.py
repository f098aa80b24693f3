"""A fixed number of runs whose points a sampler proposes, one after another from the scores of earlier runs.

Justification: composition covers a number of mechanisms that is fixed beforehand, each within one Renyi curve or one
privacy profile for all earlier outputs, and a proposal reads only scores that were charged and may be shown.
Invariants:

* The plan fixes the number of turns (proposed runs), and charges each like the costliest point that it may have
  (`paid_for`).
* A turn's point is stored before its run begins, and never changed. There is no proposal after the last turn.
* A run is a point with its turn: a point that is proposed twice is two runs, each with its own folder and randomness.
* Samplers see scores as they were measured, noisy or on public records, and failures as failures; nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from dpsweep.accounting.codec import Count, Stored, read_stored
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.account import Attempts, Statement
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import Sample
from dpsweep.accounting.searches.open_search import OpenSearch

TURN = "turn"
"""The key of the turn in a run's configuration."""


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


def choices_of(plan: Plan) -> tuple[Sequence[int], ...]:
    """The points (by index) that each turn may have, for a plan whose points are proposed."""
    if plan.turns is None:
        raise BadInput(f"Expected plan {plan.id} to say how many runs are proposed.")
    return plan.turns


def run_at(plan: Plan, turn: int, point: int) -> Trial:
    """The run of a point at a turn."""
    trial = plan.trials[point]
    return replace(trial, config={**trial.config, TURN: turn})


def runs_of(plan: Plan, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """A run for each proposal so far; `proposals` are points by their index in the plan.

    Raises `BadInput` if the plan charges fewer runs, or a turn may not have the proposed point.
    """
    choices = choices_of(plan)
    if len(proposals) > len(choices):
        raise BadInput(
            f"Expected {len(proposals)} proposals to be at most {len(choices)}, which plan {plan.id} pays for."
        )
    for turn, (point, choice) in enumerate(zip(proposals, choices, strict=False)):
        if point not in choice:
            raise BadInput(f"Expected turn {turn} of plan {plan.id} to take one of its points {choice}, got {point}.")
    return tuple(run_at(plan, turn, point) for turn, point in enumerate(proposals))


@dataclass(frozen=True, kw_only=True)
class StoredProposals(Stored):
    """The points that were proposed for a plan, by their index in the plan, in the order of turns."""

    plan: str
    proposals: tuple[Count, ...]


def read_proposals(plan: Plan, path: Path) -> tuple[int, ...]:
    """The points proposed so far, in the order of turns, by their index in the plan."""
    stored = read_stored(path, StoredProposals.from_json)
    if stored is None:
        return ()
    if stored.plan != plan.id:
        raise BadInput(f"Expected {path} to be the proposals of plan {plan.id}; they are those of plan {stored.plan}.")
    return stored.proposals


def store_proposals(plan: Plan, path: Path, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """Stores proposals, which must begin with the stored ones, and returns all runs."""
    before, runs = read_proposals(plan, path), runs_of(plan, proposals)
    if tuple(proposals[: len(before)]) != before:
        raise BadInput(f"Expected proposals to begin with the {len(before)} in {path}: what was proposed stays so.")
    write_json(path, StoredProposals(plan=plan.id, proposals=tuple(proposals)).to_json())
    return runs
