"""The terms that a search is priced under, and the noise or the number of steps at which it meets a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dpsweep.accounting.accountants.interface import gaussian_part, plan_epsilon
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import PlanEvent
from dpsweep.accounting.events.rounded_noise import mechanisms_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import demand_and_remainder_texts, text_with_all_digits
from dpsweep.accounting.pricing.calibration import calibrate_noise, largest_affordable_count
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.records.plan import priced_events_of_runs
from dpsweep.accounting.selection.interface import SelectionRule

MOST_STEPS = 10**7

FEW_KINDS, ROUGH_ORDERS = 16, tuple(1 + 0.1 * 1.25**power for power in range(36))
"""A rough price uses all orders up to this many kinds of step, and only these orders beyond."""

ROUGH_INTERVAL = 1e-3
"""The grid step of a rough price by privacy-loss distributions, in nats."""


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
        return self.panel.epsilon(self.search_event(trials), self.delta, self.adjacency)

    def least_noise_for_target(
        self,
        trials_at: Callable[[float], Iterable[PlanEvent]],
        epsilon: float,
        rough_at: Callable[[float], Iterable[PlanEvent]] | None = None,
    ) -> float:
        """The least noise at which a search over `trials_at(noise)` costs at most `epsilon`.

        `rough_at` are trials that cost little more and have fewer kinds of step: the search for the noise begins with
        them, and ends with the price of `trials_at`.
        """

        def price(noise: float) -> float:
            return self.epsilon(trials_at(noise))

        rough_at = rough_at or trials_at
        start = 1.0
        with suppress(BadInput):  # Renyi curves have no bound for some searches whose profiles have one
            start = self.rough_noise_for_target(rough_at, epsilon)
        if self._has_many_kinds_of_step(self.search_event(rough_at(start))):
            with suppress(BadInput, UnsupportedEvent):
                start, quicker = self._terms_with_few_orders.least_noise_and_cost(rough_at, epsilon, start)
                if price(start) == quicker:
                    return start  # the same accountant claims, and the noise is already the least by its bound
        elif self._is_composition(self.search_event(rough_at(start))):
            with suppress(BadInput, UnsupportedEvent):
                start, _ = self._terms_with_coarse_grid.least_noise_and_cost(rough_at, epsilon, start)
        return calibrate_noise(price, epsilon, start)

    def least_noise_and_cost(
        self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float, start: float
    ) -> tuple[float, float]:
        """The least noise by these terms alone, and what the search costs there."""
        noise = calibrate_noise(lambda noise: self.epsilon(trials_at(noise)), epsilon, start)
        return noise, self.epsilon(trials_at(noise))

    @property
    def _terms_with_few_orders(self) -> SearchTerms:
        """The same terms, with Renyi curves at few orders: upper bounds too, by which a search gets near its end."""
        claimants = (Rdp(orders=ROUGH_ORDERS) if isinstance(one, Rdp) else one for one in self.panel.claimants)
        return replace(self, panel=Panel(claimants=tuple(claimants)))

    @property
    def _terms_with_coarse_grid(self) -> SearchTerms:
        """The same terms, with privacy losses on a coarser grid: upper bounds too, larger by .1 % or so."""
        claimants = (Pld(interval=ROUGH_INTERVAL) if isinstance(one, Pld) else one for one in self.panel.claimants)
        return replace(self, panel=Panel(claimants=tuple(claimants)))

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
        accountant = Rdp(orders=ROUGH_ORDERS) if self._has_many_kinds_of_step(event) else Rdp()
        return plan_epsilon(accountant, event, self.delta, Adjacency.ADD_OR_REMOVE_ONE)

    def _is_composition(self, event: PlanEvent) -> bool:
        """Whether steps are all that it consists of: the price of a selection takes as long on any grid."""
        return not any(gaussian_part(part, self.adjacency)[1] for part in event.events_by_population.values())

    @staticmethod
    def _has_many_kinds_of_step(event: PlanEvent) -> bool:
        return any(len(mechanisms_with_counts(part)) > FEW_KINDS for part in event.events_by_population.values())

    def rough_noise_for_target(self, trials_at: Callable[[float], Iterable[PlanEvent]], epsilon: float) -> float:
        """An approximation of `noise`, by Renyi curves alone, which are cheap."""

        def rough_epsilon_at(noise: float) -> float:
            return self.rough_epsilon(trials_at(noise))

        try:
            return calibrate_noise(rough_epsilon_at, epsilon)
        except UnsupportedEvent:
            return 1.0
