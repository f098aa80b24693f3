"""What the other kind of subsample would have cost: shared by all runs, or each run's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.accountants.interface import plan_epsilon
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.notation import epsilon_up, noise_up
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.sweeper.planning.plan_builder import PricedPlan
from dpsweep.sweeper.planning.solver import SearchTerms
from dpsweep.sweeper.trial.blocks import blocks_of
from dpsweep.sweeper.trial.spec import declare


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """What a plan would need or cost with the other kind of subsample.

    Where an epsilon was asked for, `noise_multiplier` is what it would take; where the noise was given, `epsilon` is
    what training would cost. Both by Renyi curves, so about.
    """

    subsample: str
    noise_multiplier: float | None = None
    epsilon: float | None = None

    def __str__(self) -> str:
        noise = noise_up(self.noise_multiplier or 0.0, 4)
        need = f"about {noise}" if self.epsilon is None else f"about epsilon {epsilon_up(self.epsilon)}"
        return f"with subsample={self.subsample} {need}"


def alternative(priced: PricedPlan) -> Alternative | None:
    """The other kind's price, None where there is no choice."""
    plan = priced.plan
    if not _could_share(priced):
        return None
    here = SearchTerms(
        rule=priced.rule, panel=priced.panel, delta=plan.delta, adjacency=plan.adjacency, shared=plan.shared
    )
    there = replace(here, shared=not plan.shared)
    subsample = "independent" if plan.shared else "shared"
    try:
        if plan.target_epsilon is None:
            event = there.event(PlanEvent(training=trial.event.training) for trial in plan.trials)
            return Alternative(subsample=subsample, epsilon=plan_epsilon(Rdp(), event, plan.delta, plan.adjacency))
        ours, theirs = (_noise(terms, plan) for terms in (here, there))
    except (UnsupportedEvent, BadInput):
        return None
    noise: float = plan.trials[0].config["privacy"]["noise_multiplier"]
    return Alternative(subsample=subsample, noise_multiplier=noise * theirs / ours)


def _noise(terms: SearchTerms, plan: Plan) -> float:
    declared = [declare(trial.config) for trial in plan.trials]
    return terms.rough_noise(
        lambda noise: [PlanEvent(training=one.training(noise)) for one in declared], plan.target_epsilon or 0.0
    )


def _could_share(priced: PricedPlan) -> bool:
    """Whether the points could have the same subsamples at every step."""
    plan = priced.plan
    if plan.shared:
        return True
    every = plan.trials[0].config["checkpoint"]["every"]
    if plan.spares or plan.proposed is not None or every is not None or len(plan.trials) == 1:
        return False
    try:
        blocks_of(plan.trials, shared=True)
    except BadInput:
        return False
    return Disclosure.ALL_SCORES in priced.rule.discloses
