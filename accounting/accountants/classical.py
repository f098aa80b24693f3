"""The lecture's accountant: one claim for each step, made smaller by sampling, put together by advanced composition.

It is the baseline that the Moments Accountant replaced. Every step is bounded at one delta of its own, so what the
steps' privacy losses have in common is lost twice: once in the claim, once in the composition.

*Source*: Bellet, Privacy Preserving Machine Learning, lecture 5 (the analysis of DP-SGD). Of each of its three steps
the tight version is taken, as the lecture advises: Balle and Wang 2018, Theorem 8, for the Gaussian mechanism, whose
textbook noise sqrt(2 ln(1.25 / delta)) / epsilon is proven for epsilon < 1 only; Balle, Barthe, Gaboardi 2018, Theorem
8, for Poisson sampling; Kairouz, Oh, Viswanath 2015, Theorem 3.5, for unequal steps, which refines Dwork, Rothblum,
Vadhan 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsweep.accounting.accountants.interface import GaussianSteps, check_delta, coarser, gaussian_part
from dpsweep.accounting.accountants.privacy_profiles import GaussianProfile, Sampled
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.events.types import word
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import epsilon_up

KINDS_OF_STEP = 50
"""Distinct noise multipliers of one composition that are claimed one by one; more are rounded down to so many."""

SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
"""Shares of delta that advanced composition may take; the steps have the rest in equal parts."""


@dataclass(frozen=True, kw_only=True)
class Classical:
    """Advanced composition after amplification, for Gaussian and Poisson-sampled Gaussian steps, add or remove one.

    *Guarantee*: an upper bound at every delta. The share of delta that goes to the composition is chosen from `shares`
    without looking at the data, so the least answer is a bound as well.
    """

    shares: tuple[float, ...] = SHARES

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise ValueError(f"Expected shares={self.shares} in (0, 1).")

    @property
    def name(self) -> str:
        """How reports call it."""
        return "classical"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """The least of basic and advanced composition; 0 if nothing ran, infinity if something ran without noise."""
        check_delta(delta)
        steps, others = gaussian_part(event, adjacency)
        if others:
            raise UnsupportedEvent(f"{self.name} has no proven bound for {word(others[0][0])}.")
        if not steps:
            return 0.0
        if any(step.noise_multiplier == 0 for step in steps):
            return math.inf
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"{self.name} has no proven bound under {Adjacency(adjacency).value}.")
        steps = coarser(steps, KINDS_OF_STEP)
        return min(_basic(steps, delta), *(_advanced(steps, delta, share) for share in self.shares))

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """Composition theorems bound from above only."""
        return 0.0


def lecture_noise(*, records: int, steps: int, epsilon: float, delta: float, lipschitz: float = 1.0) -> float:
    """Standard deviation of the noise on each single-record gradient, as the lecture's theorem chooses it.

    *Guarantee*: `steps` steps on one record each, drawn uniformly, are (epsilon, delta)-private when a record is
    replaced (the sensitivity is 2 `lipschitz`). It is a teaching bound: at 1000 records, 10^6 steps and epsilon 1 the
    worst known neighbours are told apart 46 times less well.
    *Source*: Bellet, lecture 5, theorem "DP guarantees for DP-SGD". Its proof claims a single gradient at an epsilon
    that has to be below 1, which is checked here.
    """
    for name, value in (("records", records), ("steps", steps), ("lipschitz", lipschitz)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"Expected {name}={value} > 0.")
    if not 0 < epsilon <= 1:
        raise ValueError(f"Expected epsilon={epsilon} in (0, 1].")
    check_delta(delta)
    claimed = records * epsilon / (4 * math.sqrt(2 * steps * math.log(2 / delta)))
    if claimed >= 1:
        raise ValueError(f"Expected steps={steps} to be so many that a gradient's epsilon={epsilon_up(claimed)} < 1.")
    logs = math.log(2 / delta) * math.log(2.5 * steps / (delta * records))
    return 16 * lipschitz * math.sqrt(steps * logs) / (records * epsilon)


def _basic(steps: tuple[GaussianSteps, ...], delta: float) -> float:
    """Epsilons add up, and so do deltas."""
    return sum(epsilon * count for epsilon, count in _claims(steps, delta))


def _advanced(steps: tuple[GaussianSteps, ...], delta: float, share: float) -> float:
    """The losses' mean and their deviation at `share` of delta.

    A loss of at most e has a mean of at most e tanh(e / 2), and Hoeffding's inequality bounds the sum of such losses.
    """
    claims = _claims(steps, delta * (1 - share))
    mean = sum(count * epsilon * math.tanh(epsilon / 2) for epsilon, count in claims)
    squares = sum(count * epsilon**2 for epsilon, count in claims)
    return mean + math.sqrt(2 * squares * -math.log(delta * share))


def _claims(steps: tuple[GaussianSteps, ...], delta: float) -> list[tuple[float, int]]:
    """The epsilon of each kind of step, and its count, where all steps share `delta` equally."""
    each = delta / sum(step.count for step in steps)
    return [
        (Sampled(inner=GaussianProfile(mu=1 / step.noise_multiplier), rate=step.sample_rate).epsilon(each), step.count)
        for step in steps
    ]
