"""A plan with its price, and the values needed to price it, or a part of it, again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsweep.accounting.cautions import is_accepted_delta, is_large_delta
from dpsweep.accounting.events.build import PlanEvent, no_access
from dpsweep.accounting.meaning import Meaning
from dpsweep.accounting.pricing.declared_run import DeclaredRun
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.pricing.search_terms import SearchTerms
from dpsweep.accounting.records.plan import Plan, Trial, priced_events_of_runs
from dpsweep.accounting.selection.interface import SelectionRule


@dataclass(frozen=True, kw_only=True)
class PricedPlan:
    """A plan with its price, and the quote of its most expensive run alone, which is not the price of the search.

    `offers` makes the other available rules, by the names that `tuning=` takes. `budget_given` says that the user typed
    a budget, which then must be the account's. `units` is the declared number of records, or of units if they have
    several, `accept_delta` the typed value of `privacy.accept_delta`. `run_of` declares a trial anew; the noise of its
    score is left open if it can be.
    """

    plan: Plan
    rule: SelectionRule
    panel: Panel
    quote: Quote
    single_run: Quote
    offers: Callable[[], Mapping[str, SelectionRule]]
    units: int
    run_of: Callable[[Trial], DeclaredRun]
    budget_given: bool = False
    accept_delta: object = None

    @property
    def is_delta_large(self) -> bool:
        """Whether delta is 1 / units or more on data that a promise protects."""
        return not self.plan.has_public_data and is_large_delta(self.plan.delta, self.units)

    @property
    def large_accepted_delta_or_none(self) -> float | None:
        """The accepted delta of 1 / units or more; None if delta is smaller, or was not accepted."""
        accepted = self.is_delta_large and is_accepted_delta(self.accept_delta, self.plan.delta)
        return self.plan.delta if accepted else None

    @property
    def meaning(self) -> Meaning:
        """The meaning of the price."""
        total = self.panel.total_variation(self.plan.event, self.plan.adjacency)
        return Meaning(guarantee=self.quote.guarantee, total_variation=total)

    def terms_under_rule(self, rule: SelectionRule) -> SearchTerms:
        """The plan's terms under this rule."""
        plan = self.plan
        return SearchTerms(
            rule=rule,
            panel=self.panel,
            delta=plan.delta,
            adjacency=plan.adjacency,
            spares=plan.spares,
            turns=plan.allowed_point_indices_per_turn or None,
            shared=plan.has_shared_subsamples,
        )

    def points_of_retry(self, trials: Sequence[Trial]) -> tuple[PlanEvent, ...]:
        """The points of one more attempt at each of these trials, which may include the final run."""
        plan, finals = self.plan, {trial.id for trial in self.plan.final_runs}
        search = [trial.event for trial in trials if trial.id not in finals]
        first, *others = priced_events_of_runs(search, shared=plan.has_shared_subsamples) or [
            PlanEvent(training=no_access())
        ]
        for trial in trials:
            if trial.id in finals:
                first = replace(
                    first, final=trial.event if first.final is None else first.final.composed_with(trial.event)
                )
        return first, *others

    def quote_retry(self, trials: Sequence[Trial]) -> tuple[PlanEvent, Quote]:
        """The event and the price of one more attempt at each of these trials."""
        event = self.rule.event(self.points_of_retry(trials))
        return event, self.panel.quote(event, self.plan.delta, self.plan.adjacency, self.plan.unit)
