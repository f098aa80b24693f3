"""Adaptive search: a sampler proposes the points; one charge pays for all runs, then runs are proposed a few at a time.

The charge names no runs, since they are not known yet: it pays for a fixed number of attempts at any points of the
plan. The order is

    charge -> proposals.json -> start -> a receipt per run -> results -> the next proposals

and a coordinator that dies at any of these steps continues from there: the proposed runs are run, and the sampler
receives the results of all runs again. The coordinator proposes as many runs at once as the launcher runs at once,
then one whenever a run ends, if the launcher refills its workers one by one. A run that fails or is killed uses up one
of the paid runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.proposed_points import (
    read_proposed_point_indices,
    store_proposals_and_return_trials,
    trial_of_point_at_turn,
)
from dpsweep.sweeper.job.attempt_state import AttemptStates
from dpsweep.sweeper.planning.optuna_samplers import Seen, propose_next_point_index
from dpsweep.sweeper.searches.attempt_log import AttemptLog
from dpsweep.sweeper.searches.interface import RunQueue
from dpsweep.sweeper.searches.open_search import AdmittedOpenSearch


class AdmittedProposedPoints(AdmittedOpenSearch):
    """The runs that a sampler proposes."""

    runs = "runs"
    idle = "All {total} runs of this plan are over; nothing is run or charged."

    def charge_and_queue_due_runs(self) -> RunQueue:
        """The admitted runs, once the sampler has shown that it proposes points of this grid."""
        check_sampler_proposes_grid_points(self.plan)
        queue = super().charge_and_queue_due_runs()
        return replace(queue, refill=partial(self._propose_and_store_next_runs, queue.log, 1))

    def restore_choices_in_folder_from_ledger(self, started: Container[str]) -> None:
        """Also the proposals that began."""
        super().restore_choices_in_folder_from_ledger(started)
        plan, path = self.plan, self.folder.proposals_path
        proposals = list(read_proposed_point_indices(plan, path))
        known, points = len(proposals), range(len(plan.trials))
        for turn in range(known, len(plan.allowed_point_indices_per_turn)):
            starts = (one for one in points if trial_of_point_at_turn(plan, turn, one).id in started)
            if (point := next(starts, None)) is None:
                break
            proposals.append(point)
        if len(proposals) > known:
            store_proposals_and_return_trials(plan, path, proposals)

    def next_runs_callback(self, log: AttemptLog) -> Callable[[int], tuple[Trial, ...]]:
        """The next proposals."""
        return partial(self._propose_and_store_next_runs, log)

    def _propose_and_store_next_runs(self, log: AttemptLog, many: int, waiting: int = 0) -> tuple[Trial, ...]:
        """The next runs, at most `many` and all of one phase, stored before any of them begins.

        Returns none once all runs are proposed, and none while more than `waiting` earlier proposals wait: then the
        launcher does not work, or the sweep is being stopped. A phase begins when the previous phase is over.
        """
        plan, folder = self.plan, self.folder
        proposals, where = read_proposed_point_indices(plan, folder.proposals_path), log.states_of_runs()
        past = plan.allowed_point_indices_per_turn[: len(proposals)]
        ahead = plan.allowed_point_indices_per_turn[len(proposals) :]
        if not ahead or len(where.fresh) > waiting or where.interrupted or folder.stop_file_path.exists():
            return ()
        if (where.fresh or where.working) and past[-1] != ahead[0]:
            return ()
        seen = self._runs_as_seen_by_sampler(proposals, where)
        for _ in itertools.takewhile(lambda choice: choice == ahead[0], ahead[:many]):
            seen.append(Seen(point=propose_next_point_index(plan, seen)))
        runs = store_proposals_and_return_trials(plan, folder.proposals_path, [run.point for run in seen])
        return runs[len(proposals) :]

    def _runs_as_seen_by_sampler(self, proposals: tuple[int, ...], where: AttemptStates) -> list[Seen]:
        """Every run so far, in the form that the sampler receives."""
        at_work = {run.id for run in (*where.fresh, *where.working)}
        finished = {run.id for run in where.finished}
        return [
            Seen(
                point=point,
                ended=run.id not in at_work,
                score=self._score_in_result_of_run_or_none(run) if run.id in finished else None,
            )
            for point, run in zip(proposals, self.search_of_plan.search_trials_so_far(), strict=True)
        ]

    def _score_in_result_of_run_or_none(self, run: Trial) -> float | None:
        result = TrialResult.read(self.folder.trial_folder(run.id))
        return None if result is None else result.score_value


def check_sampler_proposes_grid_points(plan: Plan) -> None:
    """Raises `BadInput` unless the sampler proposes a point for the last run after made-up scores for the others."""
    *before, _ = enumerate(plan.allowed_point_indices_per_turn)
    try:
        propose_next_point_index(
            plan, [Seen(point=own[turn % len(own)], ended=True, score=turn % 7 / 7) for turn, own in before]
        )
    except Exception as cause:
        raise BadInput(f"Expected search to be a sampler that proposes points of this grid: {cause}.") from cause
