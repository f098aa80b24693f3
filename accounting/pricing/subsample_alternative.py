"""The price with the other kind of subsample: shared by all runs, or separate for each run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsweep.accounting.accountants.interface import plan_epsilon
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.notation import epsilon_up, noise_up
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.search_terms import SearchTerms


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The noise or the cost of a plan with the other kind of subsample.

    If an epsilon was asked for, `noise_multiplier` is the noise that it would need; if the noise was given, `epsilon`
    is the cost of training. Both come from Renyi curves, so they are approximate.
    """

    subsample: str
    noise_multiplier: float | None = None
    epsilon: float | None = None

    def __str__(self) -> str:
        noise = noise_up(self.noise_multiplier or 0.0, 4)
        need = f"about {noise}" if self.epsilon is None else f"about epsilon {epsilon_up(self.epsilon)}"
        return f"with subsample={self.subsample} {need}"


def alternative(priced: PricedPlan) -> Alternative | None:
    """The other kind's price, None if it cannot be computed; the points must allow either kind."""
    plan = priced.plan
    own = SearchTerms(
        rule=priced.rule, panel=priced.panel, delta=plan.delta, adjacency=plan.adjacency, shared=plan.shared
    )
    other = replace(own, shared=not plan.shared)
    subsample = "independent" if plan.shared else "shared"
    try:
        if plan.target_epsilon is None:
            event = other.event(PlanEvent(training=trial.event.training) for trial in plan.trials)
            return Alternative(subsample=subsample, epsilon=plan_epsilon(Rdp(), event, plan.delta, plan.adjacency))
        ours, theirs = (_noise(terms, priced) for terms in (own, other))
    except (UnsupportedEvent, BadInput):
        return None
    noise: float = plan.trials[0].config["privacy"]["noise_multiplier"]
    return Alternative(subsample=subsample, noise_multiplier=noise * theirs / ours)


def _noise(terms: SearchTerms, priced: PricedPlan) -> float:
    runs = [priced.run_of(trial) for trial in priced.plan.trials]
    return terms.rough_noise(
        lambda noise: [PlanEvent(training=run.rough_training(noise)) for run in runs], priced.plan.target_epsilon or 0.0
    )
