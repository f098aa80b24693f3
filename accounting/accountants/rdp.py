"""The Moments Accountant: Renyi differential privacy, composed order by order.

*Source*: Balle, Barthe, Gaboardi, Hsu, Sato 2020 (Hypothesis Testing Interpretations and Renyi DP), Theorem 21, and
Mironov 2017, Proposition 3, for the conversions; `accounting/accountants/renyi_curves.py` for the curves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from dpsweep.accounting.accountants import interface
from dpsweep.accounting.accountants import renyi_curves as renyi
from dpsweep.accounting.accountants.approximate_dp import approximate_dp_epsilon_or_none
from dpsweep.accounting.accountants.interface import GaussianSteps, check_delta, gaussian_part, round_noise_down
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial
from dpsweep.accounting.events.types import BlackBoxDpEvent, DpEvent, SelectionDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import LOG_RATIO, epsilon_with_rounding

RATIO = 1.015  # of consecutive values of order - 1: the best order on the grid loses less than a relative 3e-5
FAR_RATIO = 2 ** (1 / 4)  # above 1024, where orders matter only for an epsilon below about .03: the loss is below 1 %

ORDERS: tuple[float, ...] = tuple(
    sorted(
        {1 + 0.01 * RATIO**power for power in range(540)}
        | {float(order) for order in [*range(2, 33), *(round(32 * RATIO**power) for power in range(233)), 1024]}
        | {float(round(1024 * FAR_RATIO**power)) for power in range(1, 41)}
    )
)

KINDS_OF_STEP = 200  # distinct noise multipliers in a composition; more are rounded down
KINDS_OF_BATCH = 8  # the same for batches of a fixed size, whose curves take longer
_ULPS = 2.0**-49  # more than the relative error of a conversion


class Conversion(StrEnum):
    """From a Renyi curve to (epsilon, delta): the improved bound, or the older one that papers quote."""

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
        """The smallest conversion over all orders.

        Claims of (epsilon, delta) are priced as pure ones, and their deltas are added: the worst case of a claim is
        randomised response that reveals everything with probability delta.
        *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.3.
        """
        check_delta(delta)
        separate = approximate_dp_epsilon_or_none(
            event, delta, lambda inner, share: self.epsilon(inner, share, adjacency)
        )
        if separate is not None:
            return separate
        leaves = events.leaves_with_counts(event)
        used = sum(count * leaf.delta for leaf, count in leaves if isinstance(leaf, BlackBoxDpEvent))
        if used >= delta:
            return math.inf
        if used:
            pure = [(replace(one, delta=0.0) if isinstance(one, BlackBoxDpEvent) else one, n) for one, n in leaves]
            event = events.compose(events.repeat(leaf, count) for leaf, count in pure)
        curve = self._curve_of_exact_noise(event, adjacency)
        return epsilon_with_rounding(
            events.number_of_rounded_numbers(event),
            delta,
            lambda share: self.epsilon_from_curve(curve, share - used) if used < share else math.inf,
        )

    def renyi_curve(self, event: DpEvent, adjacency: Adjacency) -> renyi.Curve:
        """Renyi divergence of the whole event at each of `orders`, shape [len(orders)]; batches have room.

        Laws within exp(+-x) of two others have a divergence larger by at most x (2 a - 1) / (a - 1) at order a, since
        the integral of p^a q^(1 - a) grows by at most exp(a x + (a - 1) x).
        """
        orders = np.array(self.orders)
        rounding = events.number_of_rounded_numbers(event) * LOG_RATIO * (2 * orders - 1) / (orders - 1)
        return np.asarray(self._curve_of_exact_noise(event, adjacency) + rounding)

    def _curve_of_exact_noise(self, event: DpEvent, adjacency: Adjacency) -> renyi.Curve:
        total = np.zeros(len(self.orders))
        steps, others = gaussian_part(event, adjacency, KINDS_OF_STEP)
        for step in steps:
            total = total + step.count * self.gaussian_curve(step, Adjacency(adjacency))
        for leaf, count in round_noise_down(others, KINDS_OF_BATCH):
            total = total + count * self._curve_of_leaf(leaf, Adjacency(adjacency))
        return total

    def deltas_from_curve(self, curve: renyi.Curve, epsilons: np.ndarray) -> np.ndarray:
        """The smallest over all orders at each epsilon, shape [n], for a curve at `orders`."""
        if not curve.any():
            return np.zeros(len(epsilons))
        orders = np.array(self.orders)
        logs = (orders - 1) * (curve - epsilons[:, None] + self._converted)
        return np.asarray(np.exp(np.minimum(0.0, logs.min(axis=1))))

    def index_of_deciding_order(self, event: DpEvent, delta: float, adjacency: Adjacency) -> int:
        """The index in `orders` of the order that gives epsilon at this delta; divergences of runs add at one order."""
        check_delta(delta)
        return int(np.nanargmin(self._epsilons_by_order(self.renyi_curve(event, adjacency), delta)))

    def epsilon_from_curve(self, curve: renyi.Curve, delta: float) -> float:
        """The smallest over all orders, for a curve at `orders`; infinity if none is known."""
        if not curve.any():
            return 0.0
        least = float(self._epsilons_by_order(curve, delta).min())
        return max(0.0, least) if not math.isnan(least) else math.inf

    def _epsilons_by_order(self, curve: renyi.Curve, delta: float) -> renyi.Curve:
        delta_term = -math.log(delta) / (np.array(self.orders) - 1)
        return np.asarray(curve + delta_term + self._converted + _ULPS * (curve + delta_term + np.abs(self._converted)))

    @cached_property
    def _converted(self) -> np.ndarray:
        """What the conversion adds to the divergence and to the term of delta, by order."""
        orders = np.array(self.orders)
        terms = np.log1p(-1 / orders) - np.log(orders) / (orders - 1)
        return np.asarray(terms if self.conversion is Conversion.BBGHS else np.zeros(len(orders)))

    def gaussian_curve(self, step: GaussianSteps, adjacency: Adjacency) -> renyi.Curve:
        """The curve of one of these steps."""
        if step.noise_multiplier == 0:
            return np.full(len(self.orders), np.inf)
        replaced = adjacency is Adjacency.REPLACE_ONE
        if replaced and step.sample_rate < 1:
            raise UnsupportedEvent(f"{self.name} has no bound for Poisson sampling under {adjacency.value}.")
        noise = step.noise_multiplier / 2 if replaced else step.noise_multiplier
        return renyi.sampled_gaussian_curve(step.sample_rate, noise, self.orders)

    def _curve_of_leaf(self, leaf: DpEvent, adjacency: Adjacency) -> renyi.Curve:
        orders = np.array(self.orders)
        match leaf, adjacency:
            case BlackBoxDpEvent(), _ if leaf.delta == 0 and leaf.adjacency is adjacency:
                return renyi.pure_dp_curve(leaf.epsilon, orders)
            case events.NoisyMaxDpEvent(), _:
                return renyi.pure_dp_curve(interface.noisy_max_epsilon(leaf, adjacency), orders)
            case events.WorstDpEvent(), _:
                return np.asarray(np.max([self.renyi_curve(event, adjacency) for event in leaf.events], axis=0))
            case events.MixtureDpEvent(), _:
                curves = [self.renyi_curve(event, adjacency) for event in leaf.events]
                return renyi.mixture_curve(curves, leaf.weights, orders)
            case (
                events.RandomAllocationDpEvent(),
                _,
            ):  # for every fixed assignment, one Gaussian step
                step = GaussianSteps(sample_rate=1.0, noise_multiplier=leaf.noise_multiplier, count=1)
                return self.gaussian_curve(step, adjacency)
            case events.PoissonSampledDpEvent(), Adjacency.ADD_OR_REMOVE_ONE:
                inner, rate = leaf.event, leaf.sampling_probability
                return renyi.poisson_sampled_curve(
                    rate, orders, lambda at: replace(self, orders=tuple(at)).renyi_curve(inner, adjacency)
                )
            case events.SampledWithoutReplacementDpEvent(), Adjacency.REPLACE_ONE:
                steps, others = gaussian_part(leaf.event, adjacency)
                if not others and [step.count for step in steps] == [1]:
                    rate, noise = leaf.sample_size / leaf.source_dataset_size, steps[0].noise_multiplier / 2
                    return renyi.without_replacement_gaussian_curve(rate, noise, self.orders)
            case SelectionDpEvent(), _ if leaf.limit is None:
                return self._curve_of_search(leaf, adjacency)
        raise UnsupportedEvent(f"{self.name} has no bound for {events.event_name(leaf)} under {adjacency.value}.")

    def _curve_of_search(self, leaf: SelectionDpEvent, adjacency: Adjacency) -> renyi.Curve:
        curve, orders = self.renyi_curve(leaf.event, adjacency), np.array(self.orders)
        if isinstance(leaf.tries, EachPoint):  # all runs pay; no better curve is known
            return np.asarray(curve * leaf.tries.count)
        if not curve.any():
            return curve
        if isinstance(leaf.tries, NegativeBinomial):
            return renyi.negative_binomial_selection_curve(curve, orders, leaf.tries)
        return renyi.poisson_selection_curve(curve, orders, leaf.tries, partial(self.deltas_from_curve, curve))
