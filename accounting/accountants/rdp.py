"""The Moments Accountant: Renyi differential privacy, composed order by order.

*Source*: Balle, Barthe, Gaboardi, Hsu, Sato 2020 (Hypothesis Testing Interpretations and Renyi DP), Theorem 21, and
Mironov 2017, Proposition 3, for the conversions; `accounting/accountants/renyi_curves.py` for the curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpsweep.accounting.accountants import renyi_curves as renyi
from dpsweep.accounting.accountants.approximate_dp import approximate_dp_epsilon_or_none
from dpsweep.accounting.accountants.interface import (
    GaussianSteps,
    check_delta,
    gaussian_part,
    limit_noise_levels_of_fixed_batches,
    limit_noise_levels_of_steps,
)
from dpsweep.accounting.accountants.random_allocation import random_allocation_renyi_curve
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, black_box, compose, leaves_with_counts, repeat
from dpsweep.accounting.events.rounded_noise import number_of_rounded_numbers
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    MixtureDpEvent,
    NoisyMaxDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    WorstDpEvent,
    event_name_for_sentence,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.rounded_noise_price import LOG_RATIO, epsilon_with_rounding

RATIO = 1.015
"""The ratio of consecutive values of order - 1: the best order on the grid loses less than a relative 3e-5."""

FAR_RATIO = 2 ** (1 / 4)
"""The same ratio above 1024, where orders matter only for an epsilon below about .03; the loss is below 1 %."""

ORDERS: tuple[float, ...] = tuple(
    sorted(
        {1 + 0.01 * RATIO**power for power in range(540)}
        | {float(order) for order in [*range(2, 33), *(round(32 * RATIO**power) for power in range(233)), 1024]}
        | {float(round(1024 * FAR_RATIO**power)) for power in range(1, 41)}
    )
)

KINDS_OF_STEP = 200
"""The largest number of distinct noise multipliers in a composition; more are rounded down to this number."""

KINDS_OF_BATCH = 8
"""The same for batches of a fixed size; their curves take longer to compute."""


class Conversion(StrEnum):
    """The conversion of a Renyi curve to (epsilon, delta): the improved bound, or the older one that papers quote."""

    BBGHS = "bbghs"
    MIRONOV = "mironov"


@dataclass(frozen=True, kw_only=True)
class Rdp:
    """Renyi accountant over fixed orders. *Guarantee*: an upper bound at every delta, including 1e-20."""

    works: ClassVar[tuple[str, ...]] = ("mironov2017renyi", "mironov2019renyi", "balle2020hypothesis")

    conversion: Conversion = Conversion.BBGHS
    orders: tuple[float, ...] = ORDERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "conversion", Conversion(self.conversion))
        object.__setattr__(self, "orders", tuple(float(order) for order in self.orders))
        if not self.orders or min(self.orders) <= 1:
            raise ValueError(f"Expected orders={self.orders} > 1.")

    @property
    def name(self) -> str:
        """The name in reports."""
        return "RDP"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The smallest conversion over all orders; 0 without an access, infinity for an access without noise."""
        check_delta(delta)
        separate = approximate_dp_epsilon_or_none(
            event, delta, lambda inner, share: self.epsilon(inner, share, adjacency)
        )
        if separate is not None:
            return separate
        event, used = _event_with_pure_claims_and_delta_sum(event)
        curve = self._curve_of_exact_noise(event, adjacency) if used < delta else None
        return epsilon_with_rounding(
            number_of_rounded_numbers(event),
            delta,
            lambda share: math.inf if curve is None or used >= share else self.epsilon_from_curve(curve, share - used),
        )

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """0: Renyi curves give upper bounds only."""
        return 0.0

    def renyi_curve(self, event: DpEvent, adjacency: Adjacency) -> renyi.Curve:
        """Renyi divergence of the whole event at each of `orders`, shape [len(orders)]; batches have room.

        Laws within exp(+-x) of two others have a divergence that is larger by at most x (2 a - 1) / (a - 1) at order a,
        since the integral of p^a q^(1 - a) grows by at most exp(a x + (a - 1) x).
        """
        orders = np.array(self.orders)
        rounding = number_of_rounded_numbers(event) * LOG_RATIO * (2 * orders - 1) / (orders - 1)
        return np.asarray(self._curve_of_exact_noise(event, adjacency) + rounding)

    def _curve_of_exact_noise(self, event: DpEvent, adjacency: Adjacency) -> renyi.Curve:
        total = np.zeros(len(self.orders))
        steps, others = gaussian_part(event, adjacency)
        for step in limit_noise_levels_of_steps(steps, KINDS_OF_STEP):
            total = total + step.count * self.gaussian_curve(step, Adjacency(adjacency))
        for leaf, count in limit_noise_levels_of_fixed_batches(others, KINDS_OF_BATCH):
            if type(leaf) not in _CURVES:
                raise UnsupportedEvent(f"{self.name} has no proven bound for {event_name_for_sentence(leaf)}.")
            total = total + count * _CURVES[type(leaf)](self, leaf, Adjacency(adjacency))
        return total

    def delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        """The smallest delta over all orders at which the event is (epsilon, delta)-private."""
        return float(self.deltas_from_curve(self.renyi_curve(event, adjacency), np.array([epsilon]))[0])

    def deltas_from_curve(self, curve: renyi.Curve, epsilons: np.ndarray) -> np.ndarray:
        """The smallest delta over all orders at each epsilon, shape [n], for a curve at `orders`."""
        if not curve.any():
            return np.zeros(len(epsilons))
        orders = np.array(self.orders)
        logs = (orders - 1) * (curve - epsilons[:, None])
        if self.conversion is Conversion.BBGHS:
            logs = logs + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
        return np.asarray(np.exp(np.minimum(0.0, logs.min(axis=1))))

    def index_of_deciding_order(self, event: DpEvent, delta: float, adjacency: Adjacency) -> int:
        """The index in `orders` of the order that gives epsilon at this delta; divergences of runs add at one order."""
        check_delta(delta)
        return int(np.nanargmin(self._epsilons_by_order(self.renyi_curve(event, adjacency), delta)))

    def epsilon_from_curve(self, curve: renyi.Curve, delta: float) -> float:
        """The smallest epsilon over all orders at `delta`, for a curve at `orders`; infinity if none is known."""
        if not curve.any():
            return 0.0
        least = float(self._epsilons_by_order(curve, delta).min())
        return max(0.0, least) if not math.isnan(least) else math.inf

    def _epsilons_by_order(self, curve: renyi.Curve, delta: float) -> renyi.Curve:
        """The epsilon from each order, shape [len(orders)]."""
        orders = np.array(self.orders)
        converted = curve - math.log(delta) / (orders - 1)
        if self.conversion is Conversion.BBGHS:
            converted = converted + np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
        return np.asarray(converted)

    def gaussian_curve(self, step: GaussianSteps, adjacency: Adjacency) -> renyi.Curve:
        """The curve of one of these steps."""
        if step.noise_multiplier == 0:
            return np.full(len(self.orders), np.inf)
        replaced = adjacency is Adjacency.REPLACE_ONE
        if replaced and step.sample_rate < 1:
            raise UnsupportedEvent(f"{self.name} has no proven bound for Poisson sampling under {adjacency.value}.")
        noise = step.noise_multiplier / 2 if replaced else step.noise_multiplier
        return renyi.sampled_gaussian_curve(step.sample_rate, noise, self.orders)

    def _black_box_curve(self, leaf: BlackBoxDpEvent, adjacency: Adjacency) -> renyi.Curve:
        if leaf.delta > 0 or leaf.adjacency is not adjacency:
            raise UnsupportedEvent(
                f"{self.name} has no bound for {event_name_for_sentence(leaf)} under {adjacency.value}."
            )
        return renyi.pure_dp_curve(leaf.epsilon, np.array(self.orders))

    def _noisy_max_curve(self, leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> renyi.Curve:
        return renyi.pure_dp_curve(noisy_max_epsilon(leaf, adjacency), np.array(self.orders))

    def _worst_curve(self, leaf: WorstDpEvent, adjacency: Adjacency) -> renyi.Curve:
        return np.asarray(np.max([self.renyi_curve(event, adjacency) for event in leaf.events], axis=0))

    def _mixture_curve(self, leaf: MixtureDpEvent, adjacency: Adjacency) -> renyi.Curve:
        curves = [self.renyi_curve(event, adjacency) for event in leaf.events]
        return renyi.mixture_curve(curves, leaf.weights, np.array(self.orders))

    def _poisson_sampled_curve(self, leaf: PoissonSampledDpEvent, adjacency: Adjacency) -> renyi.Curve:
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"{self.name} has no proven bound for Poisson sampling under {adjacency.value}.")

        def inner_curve_at_orders(orders: np.ndarray) -> renyi.Curve:
            return replace(self, orders=tuple(orders)).renyi_curve(leaf.event, adjacency)

        return renyi.poisson_sampled_curve(leaf.sampling_probability, np.array(self.orders), inner_curve_at_orders)

    def _without_replacement_curve(self, leaf: SampledWithoutReplacementDpEvent, adjacency: Adjacency) -> renyi.Curve:
        inner, others = gaussian_part(leaf.event, adjacency)
        if adjacency is not Adjacency.REPLACE_ONE or others or len(inner) != 1 or inner[0].count != 1:
            raise UnsupportedEvent(
                f"{self.name} has no bound for {event_name_for_sentence(leaf)} under {adjacency.value}."
            )
        rate, noise = leaf.sample_size / leaf.source_dataset_size, inner[0].noise_multiplier / 2
        return renyi.without_replacement_gaussian_curve(rate, noise, self.orders)

    def _random_allocation_curve(self, leaf: RandomAllocationDpEvent, adjacency: Adjacency) -> renyi.Curve:
        if adjacency is Adjacency.REPLACE_ONE:  # no bound is known that is better than that for fixed assignments
            step = GaussianSteps(sample_rate=1.0, noise_multiplier=leaf.noise_multiplier, count=1)
            return self.gaussian_curve(step, adjacency)
        return random_allocation_renyi_curve(leaf.steps, leaf.noise_multiplier, self.orders)

    def _selection_curve(self, leaf: SelectionDpEvent, adjacency: Adjacency) -> renyi.Curve:
        if leaf.limit is not None:
            raise UnsupportedEvent(f"{self.name} has no bound for a hard stop inside {event_name_for_sentence(leaf)}.")
        curve, orders = self.renyi_curve(leaf.event, adjacency), np.array(self.orders)
        if isinstance(leaf.tries, EachPoint):  # all runs pay; no better curve is known
            return np.asarray(curve * leaf.tries.count)
        if not curve.any():
            return curve
        if isinstance(leaf.tries, NegativeBinomial):
            return renyi.negative_binomial_selection_curve(curve, orders, leaf.tries)
        return renyi.poisson_selection_curve(curve, orders, leaf.tries, partial(self.deltas_from_curve, curve))


_CURVES: Mapping[type[DpEvent], Callable[[Rdp, Any, Adjacency], renyi.Curve]] = {
    BlackBoxDpEvent: Rdp._black_box_curve,
    NoisyMaxDpEvent: Rdp._noisy_max_curve,
    WorstDpEvent: Rdp._worst_curve,
    MixtureDpEvent: Rdp._mixture_curve,
    PoissonSampledDpEvent: Rdp._poisson_sampled_curve,
    RandomAllocationDpEvent: Rdp._random_allocation_curve,
    SampledWithoutReplacementDpEvent: Rdp._without_replacement_curve,
    SelectionDpEvent: Rdp._selection_curve,
}


def noisy_max_epsilon(leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> float:
    """Epsilon of report-noisy-max with Gumbel noise, for any number of counts.

    Adding or removing a record moves all counts in one direction, by at most 1; replacing one may move counts in both.
    *Source*: McSherry and Talwar 2007 (the exponential mechanism); Durfee and Rogers 2019, Lemma 4.2.
    """
    if leaf.noise_scale == 0:
        return math.inf
    return (2 if adjacency is Adjacency.REPLACE_ONE else 1) / leaf.noise_scale


def _event_with_pure_claims_and_delta_sum(event: DpEvent) -> tuple[DpEvent, float]:
    """The event with its (epsilon, delta) claims replaced by pure epsilon claims, and the sum of their deltas.

    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.3: the worst case of a claim is
    randomised response that reveals everything with probability delta.
    """
    used, parts, leaves = 0.0, [], leaves_with_counts(event)
    if not any(isinstance(leaf, BlackBoxDpEvent) for leaf, _ in leaves):
        return event, 0.0
    for leaf, count in leaves:
        if isinstance(leaf, BlackBoxDpEvent):
            used += count * leaf.delta
            leaf = black_box(epsilon=leaf.epsilon, delta=0.0, adjacency=leaf.adjacency)
        parts.append(repeat(leaf, count))
    return compose(parts), used
