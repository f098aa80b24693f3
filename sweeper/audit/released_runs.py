"""The runs of a search, and which of them its rule releases: one draw, as a sweep would make it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom

from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.plan_execution import execution_of
from dpsweep.accounting.selection.interface import Draw, Execution, rule_from_config


@dataclass(frozen=True, kw_only=True)
class ReleasedRuns:
    """The trials to run in their order, and the rule's draw; None if every run is released.

    With `shared` they have the same subsamples.
    """

    trials: tuple[Trial, ...]
    draw: Draw | None
    shared: bool

    @classmethod
    def drawn(cls, plan: Plan) -> ReleasedRuns:
        """One search under the plan's rule; a proposed run has any point that it may have, drawn at random."""
        rng, execution, points = SystemRandom(), execution_of(plan), plan.trials
        if execution is Execution.DRAWN_TRIES:
            draw = rule_from_config(plan.rule).draw(len(points), rng)
            return cls(trials=tuple(points[place] for place in draw.tries), draw=draw, shared=False)
        if execution is Execution.PROPOSED:
            points = tuple(points[rng.choice(list(turn))] for turn in plan.turns or ())
        return cls(trials=points, draw=None, shared=plan.shared)

    @property
    def compares_counts(self) -> bool:
        """Whether the rule adds noise in units of right predictions to the scores."""
        return self.draw is not None and bool(self.draw.handicaps)

    def released(self, scores: Sequence[float | None]) -> tuple[int, ...]:
        """The places of the runs that the rule releases, for these scores of all runs."""
        if self.draw is None:
            return tuple(range(len(self.trials)))
        winner = self.draw.winner(dict(enumerate(scores)))
        return () if winner is None else (winner,)
