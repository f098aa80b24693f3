"""The classical accountant: one (epsilon, delta) claim per step, amplification by sampling, advanced composition.

It is the baseline that the Moments Accountant replaced. It bounds every step at a single delta, so it is loose twice:
in the claim of a step, and in the composition of the claims.

*Source*: Bellet, Privacy Preserving Machine Learning, lecture 5 (the analysis of DP-SGD). For each of its three parts
this module uses the tight version, as the lecture advises. Gaussian mechanism: Balle and Wang 2018, Theorem 8 (the
textbook noise sqrt(2 ln(1.25 / delta)) / epsilon is proven for epsilon < 1 only). Poisson sampling, and the lecture's
own uniform draw without replacement: Balle, Barthe, Gaboardi 2018, Theorems 8 and 9. Composition of unequal steps:
Kairouz, Oh, Viswanath 2015, Theorem 3.5, which refines Dwork, Rothblum, Vadhan 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpsweep.accounting.accountants.interface import GaussianSteps, check_delta, gaussian_part, round_noise_down
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.types import DpEvent, as_fixed_batch_step, event_name, number_of_rounded_numbers
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.profiles.derived_profiles import Sampled
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile, epsilon_with_rounding

KINDS_OF_STEP = 50
"""The largest number of distinct noise multipliers in a composition; more are rounded down to this number."""

SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
"""Shares of delta that advanced composition may use; the steps get equal parts of the rest."""


@dataclass(frozen=True, kw_only=True)
class Classical:
    """Advanced composition after amplification, for Gaussian steps on all records or on a sample of them.

    A sample is of Poisson where a record is added or removed, and of a fixed size where one is replaced, which moves a
    sum by twice the norm bound. *Guarantee*: an upper bound at every delta. The composition's share of delta is chosen
    from `shares` independently of the data, so the smallest result is also a bound.
    """

    works: ClassVar[tuple[str, ...]] = ("balle2018privacy", "kairouz2015composition")

    shares: tuple[float, ...] = SHARES

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise ValueError(f"Expected shares={self.shares} in (0, 1).")

    @property
    def name(self) -> str:
        """The name in reports."""
        return "classical"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The smaller of basic and advanced composition; 0 without an access, infinity for an access without noise."""
        check_delta(delta)
        steps = self._steps_at_noise_of_adjacency(event, Adjacency(adjacency))
        return epsilon_with_rounding(
            number_of_rounded_numbers(event), delta, lambda left: self._epsilon_of_exact_noise(steps, left)
        )

    def _epsilon_of_exact_noise(self, steps: tuple[GaussianSteps, ...], delta: float) -> float:
        if not steps:
            return 0.0
        if any(step.noise_multiplier == 0 for step in steps):
            return math.inf
        return min(
            _basic_composition_epsilon(steps, delta),
            *(_advanced_composition_epsilon(steps, delta, share) for share in self.shares),
        )

    def _steps_at_noise_of_adjacency(self, event: DpEvent, adjacency: Adjacency) -> tuple[GaussianSteps, ...]:
        """The steps, their noise relative to what one record moves; raises `UnsupportedEvent` for other leaves."""
        steps, others = gaussian_part(event, adjacency, KINDS_OF_STEP)
        replaced = adjacency is Adjacency.REPLACE_ONE
        if replaced and any(step.sample_rate < 1 for step in steps):
            raise UnsupportedEvent(f"{self.name} has no proven bound for Poisson sampling under {adjacency.value}.")
        for leaf, count in round_noise_down(others, KINDS_OF_STEP):
            fixed = as_fixed_batch_step(leaf)
            if fixed is None or not replaced:
                under = "" if fixed is None else f" under {adjacency.value}"
                raise UnsupportedEvent(f"{self.name} has no proven bound for {event_name(leaf)}{under}.")
            steps += (GaussianSteps(sample_rate=fixed[0] / fixed[1], noise_multiplier=fixed[2], count=count),)
        moved = 2 if replaced else 1
        return tuple(replace(step, noise_multiplier=step.noise_multiplier / moved) for step in steps)


def dp_sgd_noise_std_by_lecture_theorem(
    *, records: int, steps: int, epsilon: float, delta: float, lipschitz: float = 1.0
) -> float:
    """Standard deviation of the noise on each per-example gradient, by the lecture's theorem.

    *Guarantee*: `steps` steps on one record each, drawn uniformly, are (epsilon, delta)-private under replacement (the
    sensitivity is 2 `lipschitz`). It is a bound for teaching: at 1000 records, 10^6 steps and epsilon 1, the best known
    attack forces an epsilon that is 46 times smaller.
    *Source*: Bellet, lecture 5, theorem "DP guarantees for DP-SGD". Its proof needs an epsilon below 1 for a single
    gradient, which is checked here.
    """
    for name, value in (("records", records), ("steps", steps), ("lipschitz", lipschitz)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"Expected {name}={value} > 0.")
    if not 0 < epsilon <= 1:
        raise ValueError(f"Expected epsilon={epsilon} in (0, 1].")
    check_delta(delta)
    per_step = records * epsilon / (4 * math.sqrt(2 * steps * math.log(2 / delta)))
    if per_step >= 1:
        raise ValueError(
            f"Expected steps={steps} to be so many that a gradient's epsilon={epsilon_text_rounded_up(per_step)} < 1."
        )
    logs = math.log(2 / delta) * math.log(2.5 * steps / (delta * records))
    return 16 * lipschitz * math.sqrt(steps * logs) / (records * epsilon)


def _basic_composition_epsilon(steps: tuple[GaussianSteps, ...], delta: float) -> float:
    """Basic composition: the sum of the epsilons."""
    return sum(epsilon * count for epsilon, count in _epsilon_and_count_per_step_kind(steps, delta))


def _advanced_composition_epsilon(steps: tuple[GaussianSteps, ...], delta: float, share: float) -> float:
    """Advanced composition: the mean of the privacy loss plus its deviation at `share` of delta.

    A loss of at most e has a mean of at most e tanh(e / 2); Hoeffding's inequality bounds the sum of these losses.
    """
    claims = _epsilon_and_count_per_step_kind(steps, delta * (1 - share))
    mean = sum(count * epsilon * math.tanh(epsilon / 2) for epsilon, count in claims)
    squares = sum(count * epsilon**2 for epsilon, count in claims)
    return mean + math.sqrt(2 * squares * -math.log(delta * share))


def _epsilon_and_count_per_step_kind(steps: tuple[GaussianSteps, ...], delta: float) -> list[tuple[float, int]]:
    """The epsilon of each kind of step and its count, if all steps get equal parts of `delta`."""
    part = delta / sum(step.count for step in steps)
    return [
        (Sampled(inner=GaussianProfile(mu=1 / step.noise_multiplier), rate=step.sample_rate).epsilon(part), step.count)
        for step in steps
    ]
