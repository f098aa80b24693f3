"""Runs whose points are proposed one after another, from the scores of the runs before.

Why it may be done: composition covers a number of mechanisms that is fixed beforehand, each within one Renyi curve or
one privacy profile whatever came out before it, and a proposal reads nothing but scores that were paid for and may be
shown. What always holds:

* The plan says how many turns there are, and pays for each as if the costliest of the points that it may take
  were run (`paid_for`).
* A turn's point is stored before its run begins, and never changed. Nothing is proposed beyond the last turn.
* A run is a point at its turn: a point that is proposed twice is two runs, each with its own folder and randomness.
* Samplers see scores as they were measured, noisy or on public records, and failures as failures; nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.json_files import write_json
from dpsweep.accounting.records.execution import read_stored
from dpsweep.accounting.records.plan import Plan, Trial

TURN = "turn"
"""The key of a run's turn, in its configuration."""

PROPOSALS_FILE = "proposals.json"
"""Where a sweep's folder keeps what was proposed."""


def choices_of(plan: Plan) -> tuple[Sequence[int], ...]:
    """The points that each turn of a plan whose points are proposed may take, by their places."""
    if plan.turns is None:
        raise BadInput(f"Expected plan {plan.id} to say how many runs are proposed.")
    return plan.turns


def run_at(plan: Plan, turn: int, point: int) -> Trial:
    """The run of a point at its turn."""
    trial = plan.trials[point]
    return replace(trial, config={**trial.config, TURN: turn})


def runs_of(plan: Plan, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """A run for each turn so far, `proposals` being points by their places in the plan.

    Raises `BadInput` where the plan does not pay for so many, or has no such points.
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


def read_proposals(plan: Plan, path: Path) -> tuple[int, ...]:
    """The points that were proposed so far, turn after turn, by their places in the plan."""
    stored = read_stored(path, lambda form: (str(form["plan"]), tuple(map(int, form["proposals"]))))
    if stored is None:
        return ()
    if stored[0] != plan.id:
        raise BadInput(f"Expected {path} to be the proposals of plan {plan.id}; they are those of plan {stored[0]}.")
    return stored[1]


def store_proposals(plan: Plan, path: Path, proposals: Sequence[int]) -> tuple[Trial, ...]:
    """Stores proposals, which go on from those that are stored, and returns all runs."""
    before, runs = read_proposals(plan, path), runs_of(plan, proposals)
    if tuple(proposals[: len(before)]) != before:
        raise BadInput(f"Expected proposals to begin with the {len(before)} in {path}: what was proposed stays so.")
    write_json(path, {"plan": plan.id, "proposals": list(proposals)})
    return runs
