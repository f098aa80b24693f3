"""Every point of the plan once, together where points can be trained together."""

from __future__ import annotations

from collections.abc import Sequence

from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.searches.open_search import OpenSearch


class EveryPoint(OpenSearch):
    """Every point once, as often as the plan names it."""

    noun, nouns = "point", "points"

    @property
    def names_of_attempts_to_charge(self) -> tuple[str, ...]:
        """Every point."""
        return tuple(trial.id for trial in self.plan.trials)

    @property
    def number_of_search_runs(self) -> int:
        """The number of points."""
        return len(self.plan.trials)

    @classmethod
    def trials_known_beforehand(cls, plan: Plan) -> tuple[Trial, ...]:
        """The points of the plan."""
        return plan.trials

    @classmethod
    def number_of_runs_that_may_win(cls, plan: Plan) -> float:
        """Every run of every point."""
        return len(plan.trials)

    def search_trials_so_far(self) -> tuple[Trial, ...]:
        """The points of the plan."""
        return self.plan.trials

    def point_index_of_each_search_run(self) -> Sequence[int]:
        """The first run of each point for all of its repeats."""
        return self.plan.point_index_of_each_trial

    def trainable_blocks(self) -> tuple[Block, ...]:
        """The plan's blocks, and the final run once it is chosen."""
        final = self.chosen_final_run()
        return self.plan.blocks + (() if final is None else (Block(trials=(final,)),))
