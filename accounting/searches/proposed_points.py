"""A fixed number of runs whose points a sampler proposes, one after another from the scores of earlier runs.

Justification: composition covers a number of mechanisms that is fixed beforehand, each within one Renyi curve or one
privacy profile for all earlier outputs, and a proposal reads only scores that were charged and may be shown.
Invariants:

* The plan fixes the number of turns (proposed runs), and charges each like the costliest point that it may have
  (`priced_events_of_runs`).
* A turn's point is stored before its run begins, and never changed. There is no proposal after the last turn.
* A run is a point with its turn: a point that is proposed twice is two runs, each with its own folder and randomness.
* Samplers see scores as they were measured, noisy or on public records, and failures as failures; nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.codec import Count
from dpsweep.accounting.durable_files import write_json
from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.ledger.book import Attempts, Statement
from dpsweep.accounting.ledger.permit import claim_path
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.searches.interface import StoredChoice
from dpsweep.accounting.searches.open_search import OpenSearch

TURN = "turn"
"""The key of the turn in a run's configuration."""


class ProposedPoints(OpenSearch):
    """The runs that a sampler proposes; the charge names none of them, since they are not known yet."""

    noun, nouns = "run", "runs"

    @property
    def names_of_attempts_to_charge(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def number_of_unnamed_attempts_to_charge(self) -> int:
        """One for each turn, and what every plan pays for."""
        return super().number_of_unnamed_attempts_to_charge + self.number_of_search_runs

    def number_of_unnamed_attempts_needed(self, attempts: Attempts) -> int:
        """One for each turn and for the final run that has not begun."""
        finals = {final.id for final in self.plan.final_runs}
        begun = sum(starts > 0 and trial not in finals for trial, starts in attempts.started.items())
        return super().number_of_unnamed_attempts_needed(attempts) + self.number_of_search_runs - begun

    @property
    def number_of_search_runs(self) -> int:
        """The number of turns."""
        return len(self.plan.allowed_point_indices_per_turn)

    @classmethod
    def size_text(cls, plan: Plan) -> str:
        """The number of turns."""
        runs = plan.required_proposals.trials
        return f"{runs} run{'s' if runs > 1 else ''}"

    @classmethod
    def number_of_runs_text(cls, plan: Plan) -> str:
        """The number of turns, and who proposes their points."""
        proposed = plan.required_proposals
        return f"{proposed.trials}, of the points that {proposed.sampler_name} proposes from the scores so far"

    @classmethod
    def expected_number_of_runs(cls, plan: Plan) -> float:
        """The number of turns."""
        return plan.required_proposals.trials

    @classmethod
    def number_of_runs_that_may_win(cls, plan: Plan) -> float:
        """Each turn with each point that it may have: the proposal depends on scores, a run at a turn does not."""
        return sum(map(len, plan.allowed_point_indices_per_turn))

    def search_trials_so_far(self) -> tuple[Trial, ...]:
        """A run for each proposal so far."""
        return trials_of_proposals(self.plan, self.point_index_of_each_search_run())

    def point_index_of_each_search_run(self) -> Sequence[int]:
        """The proposals so far."""
        return read_proposed_point_indices(self.plan, self.folder.proposals_path)

    def trials_of_unproposed_points(self) -> tuple[Trial, ...]:
        """The points that nothing has proposed."""
        proposed = set(self.point_index_of_each_search_run())
        return tuple(trial for point, trial in enumerate(self.plan.trials) if point not in proposed)

    def verify_runs_and_describe(self, account: Statement) -> str:
        """Also checks that every run was proposed, and that no more attempts were started than charged."""
        known = {run.id for run in self.search_and_final_runs()}
        for place in self.folder.trials_folder.glob("*"):
            if claim_path(place, 1).exists() and place.name not in known:
                raise ContractBroken(f"Trial {place.name} ran without having been proposed.")
        if account.attempts_of_plan(self.plan.id).spares < 0:
            raise ContractBroken(f"More runs of plan {self.plan.id} were started than were charged.")
        proposed = f"{len(known)} of {self.number_of_search_runs} runs were proposed"
        return f"{proposed}; {super().verify_runs_and_describe(account)}"


def trial_of_point_at_turn(plan: Plan, turn: int, point: int) -> Trial:
    """The run of a point at a turn."""
    trial = plan.trials[point]
    return replace(trial, config={**trial.config, TURN: turn})


def trials_of_proposals(plan: Plan, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """A run for each proposal so far; `proposals` are points by their index in the plan.

    Raises `BadInput` if the plan charges fewer runs, or a turn may not have the proposed point.
    """
    choices = plan.allowed_point_indices_per_turn
    if len(proposals) > len(choices):
        raise BadInput(f"Expected {len(proposals)} proposals to be at most {len(choices)}, which are paid for.")
    for turn, (point, choice) in enumerate(zip(proposals, choices, strict=False)):
        if point not in choice:
            raise BadInput(f"Expected turn {turn} of plan {plan.id} to take one of its points {choice}, got {point}.")
    return tuple(trial_of_point_at_turn(plan, turn, point) for turn, point in enumerate(proposals))


@dataclass(frozen=True, kw_only=True)
class StoredProposals(StoredChoice):
    """The points that were proposed for a plan, by their index in the plan, in the order of turns."""

    proposals: tuple[Count, ...]


def read_proposed_point_indices(plan: Plan, path: Path) -> tuple[int, ...]:
    """The points proposed so far, in the order of turns, by their index in the plan."""
    stored = StoredProposals.read_for_plan(path, plan.id)
    return () if stored is None else stored.proposals


def store_proposals_and_return_trials(plan: Plan, path: Path, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """Stores proposals, which must begin with the stored ones, and returns all runs."""
    before, runs = read_proposed_point_indices(plan, path), trials_of_proposals(plan, proposals)
    if tuple(proposals[: len(before)]) != before:
        raise BadInput(f"Expected proposals to begin with the {len(before)} in {path}: what was proposed stays so.")
    write_json(path, StoredProposals(plan=plan.id, proposals=tuple(proposals)).to_json())
    return runs
