"""The point that won a sweep on public data, to be run once on private records (`tuning=public`).

What a search on private records found is not free, so the sweep's plan must declare its data public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rehearsal import is_rehearsal_plan
from dpsweep.accounting.searches.interface import index_of_winning_run, search_for_plan

PUBLIC = "public"
"""The tag of the rule."""

LEFT_OUT = ("privacy.noise_multiplier",)
"""Axes that are not taken over: private records have a noise multiplier of their own."""


@dataclass(frozen=True, kw_only=True)
class PublicWinner:
    """The best run of a public sweep: the sweep's plan, the run's method, and its values by typed keys."""

    plan: str
    method: str
    values: Mapping[str, Any]


def winner_of_public_sweep(root: Path) -> PublicWinner:
    """The winner of the public sweep in this folder; raises `BadInput` if there is none, or if it is not public."""
    folder = SweepFolder(root=root)
    if not folder.plan_path.is_file():
        raise BadInput(f"Expected tuning.sweep={root} to be the folder of a sweep, with a plan.json.")
    plan = Plan.read(folder.plan_path)
    if is_rehearsal_plan(plan):
        raise BadInput(f"Expected tuning.sweep={root} to be a sweep; it is a rehearsal on generated records.")
    if not plan.has_public_data:
        raise BadInput(
            f"Expected tuning.sweep={root} to be a sweep with dataset.public=true: what a search on private records of "
            f"{plan.account} found is not free."
        )
    search = search_for_plan(plan, folder)
    runs = search.search_trials_so_far()
    scores = {
        place: score for place, run in enumerate(runs) if (score := _score_of_finished_run(folder, run)) is not None
    }
    points = search.point_index_of_each_search_run()
    best = index_of_winning_run(search.rule, scores, points, plan.least_runs_per_point)
    if best is None:
        raise BadInput(f"Expected tuning.sweep={root} to have a finished run, got none.")
    values = {key: value for key, value in runs[best].axes.items() if key not in LEFT_OUT}
    return PublicWinner(plan=plan.id, method=runs[best].method, values=values)


def _score_of_finished_run(folder: SweepFolder, run: Trial) -> float | None:
    result = TrialResult.read(folder.trial_folder(run.id))
    return result.score_value if result is not None and result.status is Status.FINISHED else None
