"""The price of a search, for those who want nothing else: its epsilon, its privacy curve, and its Gaussian mu.

>>> from dpsweep.accounting import PrivateSelection, poisson_gaussian, price, repeat
>>> run = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000)
>>> search = price(PrivateSelection().search(run, points=35), delta=1e-5)
>>> round(search.epsilon, 2), round(search.lower, 2)
(5.56, 5.52)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsweep.accounting.accountants.interface import gaussian_part
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.codec import non_negative
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    as_epoch,
    as_fixed_batch_step,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel, Quote
from dpsweep.accounting.profiles.derived_profiles import worst_profile
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile, Profile

DEFAULT_PANEL = Panel(claimants=(Pld(), Rdp()))
"""The tighter of two upper bounds, as under `accountant=auto`."""

DELTAS = tuple(10.0**power for power in range(-3, -11, -1))
"""The deltas of a curve unless others are named."""

LARGEST_MU = 60.0
CLOSE = 1e-9
"""The largest rounding of a mu, upwards."""

NOT_PROVEN = "not proven"
"""What stands in the place of a mu that nothing proves."""


@dataclass(frozen=True, kw_only=True)
class EventPrice:
    """The quote on an event at one delta, and upper bounds at other deltas and epsilons.

    *Guarantee*: all numbers but `lower` bound from above, for neighbours as in `quote.guarantee`.
    """

    event: PlanEvent
    panel: Panel
    quote: Quote

    @property
    def epsilon(self) -> float:
        """The price: the least upper bound of the panel."""
        return self.quote.epsilon

    @property
    def lower(self) -> float:
        """The largest proven lower bound on the true epsilon; `quote.lower_by` names its proof; 0 if none is known."""
        return self.quote.lower

    @property
    def bounds(self) -> Mapping[str, float]:
        """The upper bound of each accountant that has one."""
        return self.quote.bounds

    def epsilon_at(self, delta: float) -> float:
        """The least upper bound at another delta in (0, 1)."""
        return self.panel.epsilon(self.event, delta, self.quote.guarantee.adjacency)

    @cached_property
    def profile(self) -> Profile:
        """The privacy profile by PLD, whatever the panel: an upper bound on delta at every epsilon >= 0 at once.

        Raises `UnsupportedEvent` where PLD has no proven bound.
        """
        parts = self.event.events_by_population.values()
        return worst_profile(tuple(Pld().profile(part, self.quote.guarantee.adjacency) for part in parts))

    def delta_at(self, epsilon: float) -> float:
        """An upper bound on delta at this epsilon >= 0: that of the profile, or of the quote where it is smaller."""
        non_negative("epsilon", epsilon)
        quoted = self.quote.guarantee.delta if epsilon >= self.epsilon else 1.0
        return min(quoted, float(self.profile.delta(np.array([float(epsilon)]))[0]))

    def curve(self, deltas: Iterable[float] = DELTAS) -> dict[float, float]:
        """The epsilon at each of these deltas."""
        return {delta: self.epsilon_at(delta) for delta in deltas}

    def mu(self, deltas: Iterable[float] = DELTAS) -> float:
        """The mu of the Gaussian mechanism that is no more private at any of these deltas (Gaussian privacy).

        It says nothing about other deltas: at ever smaller ones, that of sampled steps grows to that without sampling.
        """
        return max(gaussian_mu(epsilon, delta) for delta, epsilon in self.curve(deltas).items())


def price(
    search: DpEvent | PlanEvent,
    delta: float,
    *,
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE,
    panel: Panel = DEFAULT_PANEL,
) -> EventPrice:
    """The price of an event: of `SelectionRule.search` over points, of one run, or of any composition.

    *Guarantee*: that of `Panel.quote`, which raises `UnsupportedEvent` where no accountant of the panel has a proven
    bound, and `AccountantsDisagree` where bounds contradict each other. `delta` is in (0, 1).
    """
    event = search if isinstance(search, PlanEvent) else PlanEvent(training=search)
    return EventPrice(event=event, panel=panel, quote=panel.quote(event, delta, Adjacency(adjacency)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism with this delta at this epsilon, rounded up; infinity beyond `LARGEST_MU`.

    *Source*: Dong, Roth, Su 2022 (Gaussian Differential Privacy), Corollary 2.13; Balle and Wang 2018, Theorem 8.
    """

    def delta_of_mu(mu: float) -> float:
        return float(GaussianProfile(mu=mu).delta(np.array([epsilon]))[0])

    if not math.isfinite(epsilon) or delta_of_mu(LARGEST_MU) < delta:
        return math.inf
    low, high = 0.0, LARGEST_MU
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_mu(middle) <= delta else (low, middle)
    return high + CLOSE


def proven_gaussian_mu(charged: Iterable[PlanEvent | None], adjacency: Adjacency) -> float | None:
    """The mu of the Gaussian mechanism that is no more private at any delta than all of these together.

    None where nothing proves one: a search whose number of tries is secret, Gumbel noise, truncated batches, a claim
    without its event, and steps without noise.

    *Guarantee*: mu-Gaussian differential privacy of the composition, also where each event is chosen with knowledge of
    earlier outputs. Who knows which steps a record is in sees Gaussian mechanisms, so sampling is not counted: this is
    far above the mu that holds at common deltas (`EventPrice.mu`), and at ever smaller deltas nothing less holds.
    *Source*: Dong, Roth, Su 2022 (Gaussian Differential Privacy), Corollary 3.3; post-processing, Proposition 1.
    """
    total = 0.0
    for event in charged:
        if event is None:
            return None
        total += max((_precision(part, adjacency) for part in event.events_by_population.values()), default=0.0)
    return math.sqrt(total) * (1 + CLOSE) if math.isfinite(total) else None


_SAMPLED_STEPS: Mapping[Adjacency, Callable[[DpEvent], tuple[float, ...] | None]] = {
    Adjacency.ADD_OR_REMOVE_ONE: as_epoch,
    Adjacency.REPLACE_ONE: as_fixed_batch_step,
}
"""What reads the noise multiplier of a step, or an epoch, whose sampling is no Poisson sampling, as its last value."""


def _precision(event: DpEvent, adjacency: Adjacency) -> float:
    """The sum of mu squared over the Gaussian steps of a composition; infinity where it has anything else."""
    steps, others = gaussian_part(event, adjacency)
    leaves = [(step.noise_multiplier, step.count) for step in steps]
    for leaf, count in others:
        leaves.append(((_SAMPLED_STEPS[adjacency](leaf) or (0.0,))[-1], count))
    sensitivity = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    return sum(count * (sensitivity / noise) ** 2 if noise > 0 else math.inf for noise, count in leaves)
