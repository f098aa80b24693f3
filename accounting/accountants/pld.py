"""Privacy-loss distributions: the tightest accountant for compositions.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon; `accounting/accountants/tilted_transform.py` composes. What sampling and
selection make of a distribution is `accounting/accountants/privacy_profiles.py`; a profile becomes a distribution again
where more is composed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dpsweep.accounting.accountants.approximate_dp import priced_apart
from dpsweep.accounting.accountants.interface import GaussianSteps, check_delta, coarser, coarser_batches, gaussian_part
from dpsweep.accounting.accountants.loss_grid import Losses
from dpsweep.accounting.accountants.privacy_loss import (
    Direction,
    connected,
    directions,
    reach_gaussian,
    truncated_directions,
)
from dpsweep.accounting.accountants.privacy_profiles import (
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
from dpsweep.accounting.accountants.rdp import Rdp, noisy_max_epsilon
from dpsweep.accounting.accountants.renyi_curves import selected_poisson
from dpsweep.accounting.accountants.tilted_transform import ComposedLosses
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent, as_fixed_size_step, compose, poisson_gaussian, repeat
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    NoisyMaxDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
    word,
)
from dpsweep.accounting.guarantee import Adjacency

FAR = 5000.0
"""An epsilon beyond which a profile is taken to have only what is lost at any."""

SMALLEST_NOISE = 0.02
WIDTH = 16.0
LARGEST_WINDOW = 2_000_000
"""Standard deviations of a composition's losses that a transform covers, and its grid points."""

LARGEST_GRID = 4_000_000
"""Points of one distribution. A coarser grid is still pessimistic; what would not fit even so is refused."""

KINDS_OF_STEP = 64
"""Distinct noise multipliers of one composition that get a distribution of their own; more are rounded down."""

FEW_KINDS, COARSER = 16, 4
"""Where there are more kinds than a few, grid steps are so much wider: .03 % more epsilon in a third of the time."""

ROUGH_DELTA = 1e-6
ROUGH_KINDS = 10
"""Where, and of how many kinds of step at most, the Moments Accountant is asked how far losses reach."""

ROUGH_REACH = 4.8
"""Standard deviations between the mean of normal losses and their epsilon at that delta."""

REMEMBERED = 8
"""Distributions that are kept for the next question; each may take some 100 MB."""

TAIL = 1e-34
"""Delta at which profiles that become distributions are cut off; what lies beyond counts as a loss of infinity."""

_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


@dataclass(frozen=True, kw_only=True)
class Pld:
    """Accountant by discretised privacy-loss distributions.

    *Guarantee*: an upper bound, floating point included, at every delta from 1e-30 on; refused below that.
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
        """Of Gaussian steps, what their discretisation proves of the true losses; 0 of any other event.

        A grid moves a loss X of one step to a neighbour Y = X + D on the grid, with E[exp(-D) | X] = 1 and D within an
        interval of length h, so E[D] <= h^2 / 8 (Hoeffding's lemma), and n steps move by more than t = n h^2 / 8 +
        h sqrt(n ln(1 / b) / 2) with probability at most b (Hoeffding's inequality), whatever the losses are. Hence
        delta_Y(e) <= delta_X(e - t) + b, and the epsilon of X at delta is at least that of Y at delta + b, less t; b is
        a hundredth of delta, and twice as much is left for the rounding in Y. Steps that were rounded down have no
        lower bound; infinity says that no finite upper bound exists, and nothing of what is lost at least.
        """
        steps, others = gaussian_part(event, adjacency)
        if others or len(coarser(steps, KINDS_OF_STEP)) < len(steps) or any(not one.noise_multiplier for one in steps):
            return 0.0
        epsilon = self.epsilon(event, min(1.05 * delta, 0.999), adjacency)
        if not math.isfinite(epsilon) or not steps:
            return 0.0
        moves = sum(step.count if step.sample_rate < 1 else 1 for step in steps)
        exact = all(step.sample_rate == 1 for step in steps)
        interval = 0.0 if exact else self._grid_step(coarser(steps, KINDS_OF_STEP), (), ())
        moved = moves * interval**2 / 8 + interval * math.sqrt(moves / 2 * math.log(100 / delta))
        return max(0.0, epsilon - moved - 1e-9)

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
        self, steps: tuple[GaussianSteps, ...], others: tuple[tuple[DpEvent, int], ...], adjacency: Adjacency
    ) -> Profile:
        if not others:
            return _steps_profile(steps, self._grid_step(steps, (), ()), adjacency)
        profiles = [
            (_PROFILES[type(leaf)](self, leaf, adjacency), count) for leaf, count in others if type(leaf) in _PROFILES
        ]
        if any(_least(one) >= 1 for one, _ in profiles):
            return Everything()
        tops = [invert(one, _least(one) * (1 + 1e-9) + TAIL / count) for one, count in profiles]
        interval = self._grid_step((*steps, *_untruncated(others)), tops, _batches(others))
        parts = [_steps_together(step, interval, adjacency) for step in steps]
        parts += [
            _Part.of(interval, both, both, count)
            for (one, count), top in zip(profiles, tops, strict=True)
            for both in (Direction(curve=one.delta, reach=top),)
        ]
        parts += [
            _truncated_step(leaf, count, interval, adjacency)
            for leaf, count in others
            if isinstance(leaf, TruncatedSubsampledGaussianDpEvent)
        ]
        return _Discrete.of(parts)

    def _grid_step(
        self, steps: tuple[GaussianSteps, ...], tops: Sequence[float], batches: Sequence[GaussianSteps]
    ) -> float:
        """Fine enough for little sampling, coarse enough for memory; any step is pessimistic.

        `tops` are the largest losses of what is no Gaussian step, `batches` of fixed size among them.
        """
        span, wide = max(tops, default=0.0), 0.0
        if steps:
            least = min(step.noise_multiplier for step in steps)
            if least < SMALLEST_NOISE:
                raise UnsupportedEvent(f"{self.name} needs too much memory at noise_multiplier={least:.3g}; use RDP.")
            rough = Rdp().epsilon(compose(map(_event, coarser(steps, ROUGH_KINDS))), ROUGH_DELTA, _ADD_OR_REMOVE)
            if not math.isfinite(rough):
                raise UnsupportedEvent(f"{self.name} needs too much memory at epsilon near {rough:.3g}; use RDP.")
            wide = WIDTH * (math.sqrt(ROUGH_REACH**2 + 2 * rough) - ROUGH_REACH)
        span = max([span, *(reach_gaussian(1 / step.noise_multiplier) for step in steps)])
        sampled = [step for step in (*steps, *batches) if step.sample_rate < 1]
        widest = self.interval * (COARSER if len(steps) > FEW_KINDS else 1)
        finest = min((0.1 * step.sample_rate / step.noise_multiplier for step in sampled), default=widest)
        return max(min(widest, finest), 2 * span / LARGEST_GRID, wide / LARGEST_WINDOW)

    def _black_box(self, leaf: BlackBoxDpEvent, adjacency: Adjacency) -> Profile:
        if leaf.adjacency is not adjacency:
            raise UnsupportedEvent(f"{self.name} has no bound for {word(leaf)} under {adjacency.value}.")
        return Claimed(at=leaf.epsilon, beyond=leaf.delta)

    def _noisy_max(self, leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> Profile:
        return Claimed(at=noisy_max_epsilon(leaf, adjacency), beyond=0.0)

    def _selected(self, leaf: SelectionDpEvent, adjacency: Adjacency) -> Profile:
        if leaf.limit is not None:
            raise UnsupportedEvent(f"{self.name} has no profile for {leaf.tries} with limit={leaf.limit}; use RDP.")
        inner: Any = self.profile(leaf.event, adjacency)
        if isinstance(leaf.tries, NegativeBinomial):
            return _search(inner, leaf.tries)
        moments = Rdp()
        curve = moments.curve(leaf.event, adjacency)
        if not curve.any():
            return Nothing()
        return _ByMoments(moments, selected_poisson(curve, np.array(moments.orders), leaf.tries, inner.delta))

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Equal mechanisms: the losses of one in each direction, and how many there are."""

    ahead: Losses
    behind: Losses
    count: int

    @classmethod
    def of(cls, interval: float, ahead: Direction, behind: Direction, count: int) -> _Part:
        """The losses through both hockey-stick curves on a grid."""
        forth = _on_grid(ahead, interval)
        if behind is ahead:
            both = _losses(interval, forth, forth)
            return cls(ahead=both, behind=both, count=count)
        back = _on_grid(behind, interval)
        return cls(ahead=_losses(interval, forth, back), behind=_losses(interval, back, forth), count=count)


@dataclass(frozen=True, eq=False)
class _Discrete:
    """The profile of a composition: the larger of both directions, of which a symmetric one has one."""

    directions: tuple[ComposedLosses, ...]

    @classmethod
    def of(cls, parts: Sequence[_Part]) -> _Discrete:
        ahead = ComposedLosses([(part.ahead, part.count) for part in parts])
        if all(part.ahead is part.behind for part in parts):
            return cls((ahead,))
        return cls((ahead, ComposedLosses([(part.behind, part.count) for part in parts])))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return np.asarray(np.max([one.delta(epsilons) for one in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"PLD is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        return max(one.epsilon(delta) for one in self.directions)


@dataclass(frozen=True, eq=False)
class _ByMoments:
    """The profile that a Renyi curve implies, of a search whose own theorem needs one."""

    accountant: Rdp
    curve: np.ndarray

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return self.accountant.deltas(self.curve, np.asarray(epsilons))

    def epsilon(self, delta: float) -> float:
        return self.accountant.convert(self.curve, delta)


@lru_cache(maxsize=REMEMBERED)
def _steps_profile(steps: tuple[GaussianSteps, ...], interval: float, adjacency: Adjacency) -> _Discrete:
    """The profile of a composition of Gaussian steps, kept, since rules ask for the same run again and again."""
    return _Discrete.of([_steps_together(step, interval, adjacency) for step in steps])


@lru_cache(maxsize=REMEMBERED)
def _steps_together(step: GaussianSteps, interval: float, adjacency: Adjacency) -> _Part:
    """All these steps; unsampled Gaussians collapse exactly into one with less noise."""
    rate, noise = step.sample_rate, step.noise_multiplier
    if rate == 1:
        return _Part.of(interval, *directions(1.0, noise / math.sqrt(step.count), adjacency), 1)
    return _Part.of(interval, *directions(rate, noise, adjacency), step.count)


@lru_cache(maxsize=REMEMBERED)
def _search(inner: Profile, tries: NegativeBinomial) -> Selected:
    """Kept, since hard stops ask for the same search at many deltas."""
    return Selected(inner=inner, tries=tries)


def _on_grid(direction: Direction, interval: float) -> np.ndarray:
    return direction.curve(interval * np.arange(max(1, math.ceil(direction.reach / interval)) + 1))


def _losses(interval: float, curve: np.ndarray, other: np.ndarray) -> Losses:
    return Losses(
        lowest=1 - len(other),
        interval=interval,
        probabilities=connected(curve, other, interval),
        infinite=float(curve[-1]),
    )


@lru_cache(maxsize=16)
def _truncated_step(
    leaf: TruncatedSubsampledGaussianDpEvent, count: int, interval: float, adjacency: Adjacency
) -> _Part:
    both = truncated_directions(
        leaf.sampling_probability,
        leaf.noise_multiplier,
        adjacency,
        records=leaf.dataset_size,
        largest_batch=leaf.truncated_batch_size,
    )
    return _Part.of(interval, *both, count)


def _untruncated(leaves: Iterable[tuple[DpEvent, int]]) -> list[GaussianSteps]:
    """What truncated steps would be without truncation."""
    return [
        GaussianSteps(sample_rate=leaf.sampling_probability, noise_multiplier=leaf.noise_multiplier, count=count)
        for leaf, count in leaves
        if isinstance(leaf, TruncatedSubsampledGaussianDpEvent)
    ]


def _batches(leaves: Iterable[tuple[DpEvent, int]]) -> list[GaussianSteps]:
    """Steps on batches of a fixed size, as steps of that sample rate."""
    batches = [(as_fixed_size_step(leaf), count) for leaf, count in leaves]
    return [
        GaussianSteps(sample_rate=size / records, noise_multiplier=noise, count=count)
        for (size, records, noise), count in ((found, count) for found, count in batches if found is not None)
    ]


def _least(profile: Profile) -> float:
    """What a profile leaves beyond any loss."""
    return float(profile.delta(np.array([FAR]))[0])


def _event(step: GaussianSteps) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=step.sample_rate, noise_multiplier=step.noise_multiplier), step.count)
