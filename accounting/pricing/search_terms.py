"""The terms that a search is priced under, and the noise or the number of steps at which it meets a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent, mechanisms_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.pricing.calibration import calibrate_noise, largest_affordable_count
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.plan import priced_events_of_runs
from dpsweep.accounting.selection.interface import SelectionRule

MOST_STEPS = 10**7

FEW_KINDS, ROUGH_ORDERS = 16, tuple(1 + 0.1 * 1.25**power for power in range(36))
"""A rough price uses all orders up to this many kinds of step, and only these orders beyond."""


@dataclass(frozen=True, kw_only=True)
class SearchTerms:
    """The terms of a plan's price: the rule, the accountants, the share of delta, the neighbours.

    `turns` are the points that each run may take if they are proposed one after another, `spares` the number of spare
    attempts. With `shared`, all runs have the same subsamples.
    """

    rule: SelectionRule
    panel: Panel
    delta: float
    adjacency: Adjacency
    spares: int = 0
    turns: Sequence[Sequence[int]] | None = None
    shared: bool = False

    def search_event(self, trials: Iterable[PlanEvent]) -> PlanEvent:
        """The event of a whole search over these trials, including its spare attempts."""
        return self.rule.event(self.events_to_price(trials))

    def events_to_price(self, trials: Iterable[PlanEvent]) -> tuple[PlanEvent, ...]:
        """The events that the rule is priced over."""
        return priced_events_of_runs(list(trials), spares=self.spares, turns=self.turns, shared=self.shared)

    def epsilon(self, trials: Iterable[PlanEvent]) -> float:
        """The claim for a whole search over these trials."""
        return self.epsilon_of_event(self.search_event(trials))

    def epsilon_of_event(self, event: PlanEvent) -> float:
        """The claim for an event."""
        return self.panel.epsilon(event, self.delta, self.adjacency)

    def least_noise_for_target(
        self,
        trials_at: Callable[[float], Iterable[PlanEvent]],
        epsilon: float,
    ) -> float:
        """The least noise at which a search over `trials_at(noise)` costs at most `epsilon`.

        The search begins at the noise that Renyi curves give, which takes a third of the time.
        """
        start = 1.0
        with suppress(BadInput):  # Renyi curves have no bound for some searches whose profiles have one
            start = self.rough_noise_for_target(trials_at, epsilon)
        return calibrate_noise(lambda noise: self.epsilon(trials_at(noise)), epsilon, start)

    def most_affordable_steps(self, trials_after: Callable[[int], Iterable[PlanEvent]], epsilon: float) -> int:
        """The most steps after which a search costs at most `epsilon`; raises `BadInput` if not one fits."""
        try:
            start = largest_affordable_count(
                lambda steps: self.rough_epsilon(trials_after(steps)), epsilon, most=MOST_STEPS
            )
        except UnsupportedEvent:
            start = 2
        steps = largest_affordable_count(
            lambda steps: self.epsilon(trials_after(steps)), epsilon, most=MOST_STEPS, start=start
        )
        if not steps:
            least = self.epsilon(trials_after(1))
            costs, written = demand_and_remainder_texts(least, epsilon)[0], text_with_all_digits(epsilon)
            raise BadInput(f"Not one step fits privacy.epsilon={written} at this noise; it costs {costs}.")
        return steps

    def rough_epsilon(self, trials: Iterable[PlanEvent]) -> float:
        """An approximation of `epsilon`, by Renyi curves alone, and at few orders if there are many kinds of step."""
        event = self.search_event(trials)
        parts = event.events_by_population.values()
        has_many_kinds = any(len(mechanisms_with_counts(part)) > FEW_KINDS for part in parts)
        accountant = Rdp(orders=ROUGH_ORDERS) if has_many_kinds else Rdp()
        return max(accountant.epsilon(part, self.delta, Adjacency.ADD_OR_REMOVE_ONE) for part in parts)

    def rough_noise_for_target(self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float) -> float:
        """An approximation of `noise`, by Renyi curves alone, which are cheap."""
        try:
            return calibrate_noise(lambda noise: self.rough_epsilon(trials_at(noise)), epsilon)
        except UnsupportedEvent:
            return 1.0
