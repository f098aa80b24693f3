"""The PRV accountant: numerical composition of privacy random variables. The only module that imports prv-accountant.

*Source*: Gopi, Lee, Wutschitz 2021 (Numerical Composition of Differential Privacy), Theorem 5.5. The library returns
lower bound, estimate and upper bound. This module uses the upper bound as a claim and the lower bound as a cross-check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dpsweep.accounting.accountants.interface import GaussianSteps, check_delta, gaussian_part
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, number_of_rounded_numbers
from dpsweep.accounting.events.types import event_name
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import delta_text_rounded_down
from dpsweep.accounting.profiles.privacy_profiles import epsilon_with_rounding

SMALLEST_DELTA = 1e-10
"""Below this delta, the library is limited by its own floating-point precision."""

LARGEST_GRID = 24_000_000
"""The largest total number of mesh points of all privacy random variables, about 2 GB of memory."""

KINDS_OF_STEP = 10
"""The largest number of distinct noise multipliers; more are rounded down, and there is no lower bound then."""


@dataclass(frozen=True, kw_only=True)
class Prv:
    """Accountant by privacy random variables for Gaussian and Poisson-sampled Gaussian steps, add or remove one.

    *Guarantee*: an upper bound, above the true epsilon by at most twice the `relative_error` (and `delta / 1000`).
    """

    works: ClassVar[tuple[str, ...]] = ("gopi2021numerical",)

    relative_error: float = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.relative_error <= 0.5:
            raise ValueError(f"Expected 0 < relative_error={self.relative_error} <= 0.5.")

    @property
    def name(self) -> str:
        """The name in reports."""
        return "PRV"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The library's upper bound; 0 without an access, infinity for an access without noise."""
        check_delta(delta)
        return epsilon_with_rounding(
            number_of_rounded_numbers(event),
            delta,
            lambda share: self._lower_and_upper_epsilon(event, share, adjacency)[1],
        )

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The library's lower bound."""
        return self._lower_and_upper_epsilon(event, delta, adjacency)[0]

    def _lower_and_upper_epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> tuple[float, float]:
        check_delta(delta)
        steps, others = gaussian_part(event, adjacency)
        if others:
            raise UnsupportedEvent(f"{self.name} has no proven bound for {event_name(others[0][0])}.")
        if not steps:
            return 0.0, 0.0
        if any(step.noise_multiplier == 0 for step in steps):
            return math.inf, math.inf
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"PRV has no proven bound under {adjacency.value}.")
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(
                f"PRV is not safe at delta={delta_text_rounded_down(delta)} < {SMALLEST_DELTA:g}; use RDP."
            )
        rough = Rdp().epsilon(event, delta, adjacency)
        error = max(1e-3, self.relative_error * rough)
        total, (kinds, _) = sum(step.count for step in steps), gaussian_part(event, adjacency, KINDS_OF_STEP)
        mesh = error / math.sqrt(total / 2 * math.log(12_000 / delta))
        if 2 * (rough + 10) / mesh * len(kinds) > LARGEST_GRID:
            raise UnsupportedEvent(
                f"PRV needs more than 2 GB for {total} steps at relative_error={self.relative_error}."
            )
        lower, upper = _lower_and_upper_epsilon_of_library(kinds, delta, error)
        return lower if len(kinds) == len(steps) else 0.0, upper


@lru_cache(maxsize=64)
def _lower_and_upper_epsilon_of_library(
    steps: tuple[GaussianSteps, ...], delta: float, error: float
) -> tuple[float, float]:
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import GaussianMechanism, PoissonSubsampledGaussianMechanism

    variables = [
        GaussianMechanism(noise_multiplier=step.noise_multiplier)
        if step.sample_rate == 1
        else PoissonSubsampledGaussianMechanism(
            noise_multiplier=step.noise_multiplier, sampling_probability=step.sample_rate
        )
        for step in steps
    ]
    counts = [step.count for step in steps]
    try:
        accountant = PRVAccountant(variables, eps_error=error, delta_error=delta / 1000, max_self_compositions=counts)
        lower, _, upper = accountant.compute_epsilon(delta, counts)
    except (RuntimeError, ValueError) as refusal:
        raise UnsupportedEvent(f"PRV cannot bound this event: {str(refusal).rstrip('.')}.") from refusal
    return max(0.0, float(lower)), max(0.0, float(upper))
