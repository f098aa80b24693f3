"""Privacy-loss distributions: the tightest accountant for compositions, by the only door to dp-accounting's PLD.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon. What sampling and selection make of a distribution is
`accounting/profiles.py`; a profile becomes a distribution again where more is composed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation

from accounting.accountant import Steps, check_delta, coarser, coarser_batches, gaussian_part
from accounting.claims import priced_apart
from accounting.errors import UnsupportedEvent
from accounting.events import DpEvent, compose, poisson_gaussian, repeat
from accounting.guarantee import Adjacency
from accounting.losses import (
    Tails,
    added,
    connected,
    reach_added,
    reach_gaussian,
    reach_removed,
    reach_replaced,
    removed,
    replaced,
)
from accounting.profiles import (
    SMALLEST_DELTA,
    Claimed,
    Everything,
    GaussianProfile,
    Nothing,
    Profile,
    Sampled,
    Selected,
    Worst,
    invert,
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
    word,
)

LARGEST_EPSILON = 500.0
SMALLEST_NOISE = 0.02
LARGEST_GRID = 4_000_000
"""Points of one distribution. A coarser grid is still pessimistic; what would not fit even so is refused."""

KINDS_OF_STEP = 64
"""Distinct noise multipliers of one composition that get a distribution of their own; more are rounded down."""

FEW_KINDS, COARSER = 16, 4
"""Where there are more kinds than a few, grid steps are so much wider: .03 % more epsilon in a third of the time."""

LARGEST_ERROR = 5e-3
"""Relative and absolute slack of the cross-check: ten times what halving the interval ever changed."""

ROUGH_DELTA = 1e-6
ROUGH_KINDS = 10
"""Where, and of how many kinds of step at most, the Moments Accountant is asked how far losses reach."""

REMEMBERED = 8
"""Distributions that are kept for the next question; each may take some 100 MB."""

TAIL = 1e-12
"""Delta at which profiles that become distributions are cut off; what lies beyond counts as a loss of infinity."""

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
        """Of Gaussian steps, the same number less the largest discretisation error seen against exact values.

        Steps that were rounded down have none. Infinity says that no finite upper bound was found, and nothing of what
        is lost at least.
        """
        steps, others = gaussian_part(event, adjacency)
        if others or len(coarser(steps, KINDS_OF_STEP)) < len(steps):
            return 0.0
        found = self.epsilon(event, delta, adjacency)
        return max(0.0, found * (1 - LARGEST_ERROR) - LARGEST_ERROR) if math.isfinite(found) else 0.0

    def profile(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        """The privacy profile of an event, one leaf's as it is, a composition's by convolution."""
        steps, others = gaussian_part(event, Adjacency(adjacency))
        unknown = [leaf for leaf, _ in others if type(leaf) not in (*_PROFILES, TruncatedSubsampledGaussianDpEvent)]
        if unknown:
            raise UnsupportedEvent(f"{self.name} has no proven bound for {word(unknown[0])}.")
        if not steps and not others:
            return Nothing()
        if any(step.noise_multiplier == 0 for step in (*steps, *_untruncated(others))):
            return Everything()
        if not others and all(step.sample_rate == 1 for step in steps):
            precision = sum(step.count / step.noise_multiplier**2 for step in steps)
            return GaussianProfile(mu=math.sqrt(precision) * (2 if adjacency is Adjacency.REPLACE_ONE else 1))
        if not steps and len(others) == 1 and others[0][1] == 1 and type(others[0][0]) in _PROFILES:
            return _PROFILES[type(others[0][0])](self, others[0][0], adjacency)
        steps, others = coarser(steps, KINDS_OF_STEP), coarser_batches(others, KINDS_OF_STEP)
        return self._convolution(steps, others, adjacency)

    def _convolution(
        self, steps: tuple[Steps, ...], others: tuple[tuple[DpEvent, int], ...], adjacency: Adjacency
    ) -> Profile:
        if not others:
            return _steps_profile(steps, self._grid_step(steps, ()), adjacency)
        profiles = [
            (_PROFILES[type(leaf)](self, leaf, adjacency), count) for leaf, count in others if type(leaf) in _PROFILES
        ]
        if any(_least(one) >= 1 for one, _ in profiles):
            return Everything()
        tops = [invert(one, _least(one) + TAIL / count) for one, count in profiles]
        interval = self._grid_step((*steps, *_untruncated(others)), tops)
        parts = [_steps_together(step, interval, adjacency) for step in steps]
        parts += [
            _distribution(interval, one.delta(_grid(top, interval))).self_compose(count)
            for (one, count), top in zip(profiles, tops, strict=True)
        ]
        parts += [
            _truncated_step(leaf, interval, adjacency).self_compose(count)
            for leaf, count in others
            if isinstance(leaf, TruncatedSubsampledGaussianDpEvent)
        ]
        return _Discrete(_convolved(parts))

    def _grid_step(self, steps: tuple[Steps, ...], tops: Sequence[float]) -> float:
        """Fine enough for little sampling, coarse enough for memory; any step is pessimistic.

        `tops` are the largest losses of what is no Gaussian step.
        """
        span = max(tops, default=0.0)
        if steps:
            least = min(step.noise_multiplier for step in steps)
            rough = Rdp().epsilon(compose(map(_event, coarser(steps, ROUGH_KINDS))), ROUGH_DELTA, _ADD_OR_REMOVE)
            if least < SMALLEST_NOISE:
                raise UnsupportedEvent(f"{self.name} needs too much memory at noise_multiplier={least:.3g}; use RDP.")
            span = max(span, rough)
        if span > LARGEST_EPSILON:
            raise UnsupportedEvent(f"{self.name} needs too much memory at epsilon near {span:.3g}; use RDP.")
        span = max([span, *(reach_gaussian(1 / step.noise_multiplier) for step in steps)])
        sampled = [step for step in steps if step.sample_rate < 1]
        widest = self.interval * (COARSER if len(steps) > FEW_KINDS else 1)
        finest = min((0.1 * step.sample_rate / step.noise_multiplier for step in sampled), default=widest)
        return max(min(widest, finest), 2 * span / LARGEST_GRID)

    def _black_box(self, leaf: BlackBoxDpEvent, adjacency: Adjacency) -> Profile:
        if leaf.adjacency is not adjacency:
            raise UnsupportedEvent(f"{self.name} has no bound for {word(leaf)} under {adjacency.value}.")
        return Claimed(at=leaf.epsilon, beyond=leaf.delta)

    def _noisy_max(self, leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> Profile:
        return Claimed(at=noisy_max_epsilon(leaf, adjacency), beyond=0.0)

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
            raise UnsupportedEvent(f"{self.name} has no bound for {word(leaf)} under {adjacency.value}.")
        if inner[0].noise_multiplier == 0:
            return Everything()
        gaussian = GaussianProfile(mu=2 / inner[0].noise_multiplier)
        return Sampled(inner=gaussian, rate=leaf.sample_size / leaf.source_dataset_size)


_PROFILES: Mapping[type[DpEvent], Callable[[Pld, Any, Adjacency], Profile]] = {
    BlackBoxDpEvent: Pld._black_box,
    NoisyMaxDpEvent: Pld._noisy_max,
    SelectionDpEvent: Pld._selected,
    WorstDpEvent: Pld._worst,
    PoissonSampledDpEvent: Pld._sampled,
    SampledWithoutReplacementDpEvent: Pld._without_replacement,
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
        return max(tails.epsilon(delta) for tails in self._tails)

    @cached_property
    def _tails(self) -> tuple[Tails, ...]:
        """One direction's tails, or both where they differ."""
        both = {id(pmf): pmf for pmf in (self.distribution._pmf_remove, self.distribution._pmf_add)}
        dense = [pmf.to_dense_pmf() for pmf in both.values()]
        return tuple(
            Tails.of(
                lowest=pmf._lower_loss,
                interval=pmf._discretization,
                probabilities=pmf._probs,
                infinite=pmf._infinity_mass,
            )
            for pmf in dense
        )


def _convolved(parts: list[Any]) -> Any:
    """All distributions together, neighbours in size first, so that few transforms are long."""
    parts = sorted(parts, key=lambda part: part._pmf_remove.size)
    while len(parts) > 1:
        pairs = [left.compose(right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


@lru_cache(maxsize=REMEMBERED)
def _steps_profile(steps: tuple[Steps, ...], interval: float, adjacency: Adjacency) -> _Discrete:
    """The profile of a composition of Gaussian steps, kept, since rules ask for the same run again and again."""
    return _Discrete(_convolved([_steps_together(step, interval, adjacency) for step in steps]))


@lru_cache(maxsize=REMEMBERED)
def _steps_together(step: Steps, interval: float, adjacency: Adjacency) -> Any:
    """The distribution of all these steps; unsampled Gaussians collapse exactly into one with less noise."""
    rate, noise = step.sample_rate, step.noise_multiplier
    replacing = adjacency is Adjacency.REPLACE_ONE
    if rate == 1:
        mu = math.sqrt(step.count) / noise * (2 if replacing else 1)
        both = GaussianProfile(mu=mu).delta(_grid(reach_gaussian(mu), interval))
        return _distribution(interval, both)
    if replacing:
        both = replaced(rate, noise, _grid(reach_replaced(rate, noise), interval))
        return _distribution(interval, both).self_compose(step.count)
    on_removal = removed(rate, noise, _grid(reach_removed(rate, noise), interval))
    on_addition = added(rate, noise, _grid(reach_added(rate, noise), interval))
    return _distribution(interval, on_removal, on_addition).self_compose(step.count)


def _grid(highest: float, interval: float) -> np.ndarray:
    return np.asarray(interval * np.arange(max(1, math.ceil(highest / interval)) + 1))


def _distribution(interval: float, ahead: np.ndarray, behind: np.ndarray | None = None) -> Any:
    """The distribution through hockey-stick curves on `_grid`, one for each direction, or one for both."""
    opposite = ahead if behind is None else behind

    def along(curve: np.ndarray, other: np.ndarray) -> pld_pmf.PLDPmf:
        return pld_pmf.DensePLDPmf(
            discretization=interval,
            lower_loss=1 - len(other),
            probs=connected(curve, other, interval),
            infinity_mass=float(curve[-1]),
            pessimistic_estimate=True,
        )

    forth = along(ahead, opposite)
    return privacy_loss_distribution.PrivacyLossDistribution(forth, None if behind is None else along(opposite, ahead))


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


def _untruncated(leaves: Iterable[tuple[DpEvent, int]]) -> list[Steps]:
    """What truncated steps would be without truncation."""
    return [
        Steps(sample_rate=leaf.sampling_probability, noise_multiplier=leaf.noise_multiplier, count=count)
        for leaf, count in leaves
        if isinstance(leaf, TruncatedSubsampledGaussianDpEvent)
    ]


def _least(profile: Profile) -> float:
    """What a profile leaves beyond any loss."""
    return float(profile.delta(np.array([LARGEST_EPSILON]))[0])


def _event(step: Steps) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=step.sample_rate, noise_multiplier=step.noise_multiplier), step.count)
