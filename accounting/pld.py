"""Privacy-loss distributions: the tightest accountant for compositions, by the only door to dp-accounting's PLD.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon. What sampling and selection make of a distribution is
`accounting/profiles.py`; a profile becomes a distribution again where more is composed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.privacy_accountant import NeighboringRelation

from accounting.accountant import Steps, check_delta, coarser, gaussian_part
from accounting.claims import priced_apart
from accounting.errors import UnsupportedEvent
from accounting.events import DpEvent, compose, poisson_gaussian, repeat
from accounting.guarantee import Adjacency
from accounting.profiles import (
    Everything,
    GaussianProfile,
    Nothing,
    Profile,
    Sampled,
    Selected,
    Worst,
    invert,
    symmetric,
)
from accounting.rdp import Rdp, noisy_max_epsilon
from accounting.tries import NegativeBinomial
from accounting.vocabulary import (
    BlackBoxDpEvent,
    NoisyMaxDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
)

SMALLEST_DELTA = 1e-10
"""Below this the transforms' rounding is no longer small against delta: at 1e-12 answers can already be too small."""

LARGEST_EPSILON = 500.0
SMALLEST_NOISE = 0.02
LARGEST_GRID = 4_000_000
"""Points of one distribution. A coarser grid is still pessimistic; what would not fit even so is refused."""

KINDS_OF_STEP = 50
"""Distinct noise multipliers of one composition that get a distribution of their own; more are rounded down."""

LARGEST_ERROR = 5e-3
"""Relative and absolute slack of the cross-check: ten times what halving the interval ever changed."""

ROUGH_DELTA = 1e-6
ROUGH_KINDS = 10
"""Where, and of how many kinds of step at most, the Moments Accountant is asked how far losses reach."""

TAIL = 1e-12
"""Delta at which profiles that become distributions are cut off; what lies beyond counts as a loss of infinity."""

LARGEST_EXPONENT = 700.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE

_RELATIONS = {
    Adjacency.ADD_OR_REMOVE_ONE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
}


@dataclass(frozen=True, kw_only=True)
class Pld:
    """Accountant by discretised privacy-loss distributions.

    *Guarantee*: an upper bound; refused below delta 1e-10, where the Fourier transform's rounding decides.
    `interval` is the widest grid step of the privacy loss (nats); leaves with little sampling get a finer one.
    """

    interval: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.interval <= 1e-2:
            raise ValueError(f"Expected 0 < interval={self.interval} <= 0.01.")

    @property
    def name(self) -> str:
        """How reports call it."""
        return "PLD"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """Epsilon of the convolved distributions; 0 if nothing ran, infinity if something ran without noise."""
        check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"{self.name} is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        apart = priced_apart(event, delta, lambda inner, share: self.epsilon(inner, share, adjacency))
        return apart if apart is not None else max(0.0, self.profile(event, adjacency).epsilon(delta))

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """Of Gaussian steps, the same number less the largest discretisation error seen against exact values."""
        if gaussian_part(event, adjacency)[1]:
            return 0.0
        return max(0.0, self.epsilon(event, delta, adjacency) * (1 - LARGEST_ERROR) - LARGEST_ERROR)

    def profile(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        """The privacy profile of an event, one leaf's as it is, a composition's by convolution."""
        steps, others = gaussian_part(event, Adjacency(adjacency))
        for leaf, _ in others:
            if type(leaf) not in _PROFILES and type(leaf) not in _DISTRIBUTIONS:
                raise UnsupportedEvent(f"{self.name} has no proven bound for {leaf}.")
        if not steps and not others:
            return Nothing()
        if any(step.noise_multiplier == 0 for step in steps):
            return Everything()
        if not others and all(step.sample_rate == 1 for step in steps):
            precision = sum(step.count / step.noise_multiplier**2 for step in steps)
            return GaussianProfile(mu=math.sqrt(precision) * (2 if adjacency is Adjacency.REPLACE_ONE else 1))
        if not steps and len(others) == 1 and others[0][1] == 1 and type(others[0][0]) in _PROFILES:
            return _PROFILES[type(others[0][0])](self, others[0][0], adjacency)
        profiles = [
            (_PROFILES[type(leaf)](self, leaf, adjacency), count) for leaf, count in others if type(leaf) in _PROFILES
        ]
        steps = coarser(steps, KINDS_OF_STEP)
        interval = self._grid_step(steps, [invert(one, TAIL / count) for one, count in profiles])
        parts = [_composed(step, interval, adjacency) for step in steps]
        parts += [_discretised(one, interval, TAIL / count).self_compose(count) for one, count in profiles]
        parts += [
            _DISTRIBUTIONS[type(leaf)](leaf, interval, adjacency).self_compose(count)
            for leaf, count in others
            if type(leaf) in _DISTRIBUTIONS
        ]
        return _Discrete(reduce(lambda left, right: left.compose(right), parts))

    def _grid_step(self, steps: tuple[Steps, ...], tops: Sequence[float]) -> float:
        """Fine enough for little sampling, coarse enough for memory; any step is pessimistic.

        `tops` are the largest losses of what is no Gaussian step.
        """
        reach = max(tops, default=0.0)
        if not steps:
            return max(self.interval, 2 * reach / LARGEST_GRID)
        least = min(step.noise_multiplier for step in steps)
        rough = Rdp().epsilon(compose(map(_event, coarser(steps, ROUGH_KINDS))), ROUGH_DELTA, _ADD_OR_REMOVE)
        if least < SMALLEST_NOISE or max(reach, rough) > LARGEST_EPSILON:
            raise UnsupportedEvent(
                f"{self.name} needs too much memory at epsilon near {max(reach, rough):.3g}; use RDP."
            )
        span = max(reach, rough, 1 / (2 * least**2) + 10 / least)
        sampled = [step for step in steps if step.sample_rate < 1]
        finest = min((0.1 * step.sample_rate / step.noise_multiplier for step in sampled), default=self.interval)
        return max(min(self.interval, finest), 2 * span / LARGEST_GRID)

    def _selected(self, leaf: SelectionDpEvent, adjacency: Adjacency) -> Profile:
        if not isinstance(leaf.tries, NegativeBinomial) or leaf.limit is not None:
            raise UnsupportedEvent(f"{self.name} has no profile for {leaf.tries} with limit={leaf.limit}; use RDP.")
        return Selected(inner=self.profile(leaf.event, adjacency), tries=leaf.tries)

    def _worst(self, leaf: WorstDpEvent, adjacency: Adjacency) -> Profile:
        return Worst(inner=tuple(self.profile(one, adjacency) for one in leaf.events))

    def _sampled(self, leaf: PoissonSampledDpEvent, adjacency: Adjacency) -> Profile:
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"{self.name} has no bound for a sampled search under {adjacency.value}.")
        return Sampled(inner=self.profile(leaf.event, adjacency), rate=leaf.sampling_probability)

    def _without_replacement(self, leaf: SampledWithoutReplacementDpEvent, adjacency: Adjacency) -> Profile:
        inner = gaussian_part(leaf.event, adjacency)[0]
        if adjacency is not Adjacency.REPLACE_ONE or len(inner) != 1 or inner[0].count != 1:
            raise UnsupportedEvent(f"{self.name} has no bound for {leaf} under {adjacency.value}.")
        if inner[0].noise_multiplier == 0:
            return Everything()
        gaussian = GaussianProfile(mu=2 / inner[0].noise_multiplier)
        return Sampled(inner=gaussian, rate=leaf.sample_size / leaf.source_dataset_size)


_PROFILES: Mapping[type[DpEvent], Callable[[Pld, Any, Adjacency], Profile]] = {
    SelectionDpEvent: Pld._selected,
    WorstDpEvent: Pld._worst,
    PoissonSampledDpEvent: Pld._sampled,
    SampledWithoutReplacementDpEvent: Pld._without_replacement,
}


def _black_box(leaf: BlackBoxDpEvent, interval: float, adjacency: Adjacency) -> Any:
    if leaf.adjacency is not adjacency:
        raise UnsupportedEvent(f"PLD has no bound for {leaf} under {adjacency.value}.")
    return _claimed(leaf.epsilon, leaf.delta, interval)


def _noisy_max(leaf: NoisyMaxDpEvent, interval: float, adjacency: Adjacency) -> Any:
    return _claimed(noisy_max_epsilon(leaf, adjacency), 0.0, interval)


def _truncated(leaf: TruncatedSubsampledGaussianDpEvent, interval: float, adjacency: Adjacency) -> Any:
    return _truncated_step(leaf, interval, adjacency)


_DISTRIBUTIONS: Mapping[type[DpEvent], Callable[[Any, float, Adjacency], Any]] = {
    BlackBoxDpEvent: _black_box,
    NoisyMaxDpEvent: _noisy_max,
    TruncatedSubsampledGaussianDpEvent: _truncated,
}


@dataclass(frozen=True, eq=False)
class _Discrete:
    """The profile of a distribution: the larger of both directions."""

    distribution: Any

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return np.asarray(np.max([tails.delta(np.asarray(epsilons)) for tails in self._tails], axis=0))

    def epsilon(self, delta: float) -> float:
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"PLD is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        return max(0.0, float(self.distribution.get_epsilon_for_delta(delta)))

    @cached_property
    def _tails(self) -> tuple[_Tails, ...]:
        """One direction's tails, or both where they differ."""
        both = {id(pmf): pmf for pmf in (self.distribution._pmf_remove, self.distribution._pmf_add)}
        return tuple(_Tails.of(pmf) for pmf in both.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tails:
    """Of the losses above each grid point: their mass, and their mass weighted by exp(-loss).

    The library answers one epsilon at a time by a loop over its grid; these sums answer thousands at once.
    """

    lowest: int
    interval: float
    mass: np.ndarray
    weighted: np.ndarray

    @classmethod
    def of(cls, pmf: Any) -> _Tails:
        dense = pmf.to_dense_pmf()
        lowest, interval, probs = dense._lower_loss, dense._discretization, dense._probs
        losses = interval * (lowest + np.arange(len(probs)))
        weights = probs * np.exp(-np.clip(losses, -LARGEST_EXPONENT, None))
        return cls(
            lowest=lowest,
            interval=interval,
            mass=np.append(np.cumsum(probs[::-1])[::-1], 0.0) + dense._infinity_mass,
            weighted=np.append(np.cumsum(weights[::-1])[::-1], 0.0),
        )

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The mass above epsilon less exp(epsilon) times the weighted mass; exact for this distribution."""
        first = np.floor(epsilons / self.interval).astype(np.int64) + 1 - self.lowest
        above = np.clip(first, 0, len(self.mass) - 1)
        beyond = np.exp(np.minimum(epsilons, LARGEST_EXPONENT)) * self.weighted[above]
        return np.asarray(np.clip(self.mass[above] - beyond, 0.0, 1.0))


@lru_cache(maxsize=64)
def _composed(step: Steps, interval: float, adjacency: Adjacency) -> Any:
    """The distribution of all these steps; unsampled Gaussians collapse exactly into one with less noise."""
    noise, count = step.noise_multiplier, step.count
    if step.sample_rate == 1:
        noise, count = noise / math.sqrt(count), 1
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=step.sample_rate,
        value_discretization_interval=interval,
        neighboring_relation=_RELATIONS[adjacency],
    )
    return one.self_compose(count)


@lru_cache(maxsize=16)
def _truncated_step(leaf: TruncatedSubsampledGaussianDpEvent, interval: float, adjacency: Adjacency) -> Any:
    return privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(
        dataset_size=leaf.dataset_size,
        sampling_probability=leaf.sampling_probability,
        truncated_batch_size=leaf.truncated_batch_size,
        noise_multiplier=leaf.noise_multiplier,
        value_discretization_interval=interval,
        neighboring_relation=_RELATIONS[adjacency],
    )


def _claimed(epsilon: float, delta: float, interval: float) -> Any:
    parameters = DifferentialPrivacyParameters(epsilon, delta)
    return privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=interval)


def _discretised(profile: Profile, interval: float, tail: float) -> Any:
    """The distribution through a profile's values on a grid: above it between them, as it is convex in exp(epsilon)."""
    points = math.ceil(invert(profile, tail) / interval) + 1
    deltas = symmetric(profile, interval * np.arange(-points, points + 1))
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            interval, -points, points, np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
        )
    )


def _event(step: Steps) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=step.sample_rate, noise_multiplier=step.noise_multiplier), step.count)
