"""Privacy-loss distributions: the tightest accountant for compositions.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon. `accounting/profiles/composition.py` composes distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dpsweep.accounting.accountants.approximate_dp import approximate_dp_epsilon_or_none
from dpsweep.accounting.accountants.interface import (
    GaussianSteps,
    check_delta,
    gaussian_part,
    limit_noise_levels_of_fixed_batches,
    limit_noise_levels_of_steps,
)
from dpsweep.accounting.accountants.rdp import Rdp, noisy_max_epsilon
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    repeat,
    size_records_and_noise_of_fixed_step,
)
from dpsweep.accounting.events.rounded_noise import number_of_rounded_numbers
from dpsweep.accounting.events.trial_counts import MOST_TRIES, EachPoint
from dpsweep.accounting.events.types import (
    BlackBoxDpEvent,
    MixtureDpEvent,
    NoisyMaxDpEvent,
    PoissonSampledDpEvent,
    RandomAllocationDpEvent,
    SampledWithoutReplacementDpEvent,
    SelectionDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    WorstDpEvent,
    event_name_for_sentence,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.composition import ComposedLosses, Losses
from dpsweep.accounting.profiles.privacy_loss import (
    CLOSED_FORM,
    Direction,
    directions_of_poisson_step,
    directions_of_truncated_poisson_step,
    largest_gaussian_loss,
    largest_loss_of_replaced_record,
    loss_probabilities,
)
from dpsweep.accounting.profiles.privacy_profiles import (
    SMALLEST_DELTA,
    Claimed,
    Everything,
    GaussianProfile,
    Least,
    Nothing,
    Profile,
    Sampled,
    TwoSided,
    Worst,
    invert_profile,
    mixture_profile,
    total_variation_of_profile,
)
from dpsweep.accounting.profiles.random_allocation import profile_of_allocated_epoch
from dpsweep.accounting.profiles.rounded import rounded_profile
from dpsweep.accounting.profiles.selection_envelope import clear_cached_curves, profile_of_best_try

CACHE_SIZE = 8
"""The number of cached distributions; each may take about 100 MB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EqualMechanisms:
    """Equal mechanisms: the losses of one of them in each direction, and their number."""

    ahead: Losses
    behind: Losses
    count: int

    @classmethod
    def from_hockey_stick_curves(
        cls, interval: float, ahead: Direction, behind: Direction, count: int
    ) -> EqualMechanisms:
        """The losses from both hockey-stick curves on a grid."""
        forth = _hockey_stick_curve_on_grid(ahead, interval)
        back = forth if behind is ahead else _hockey_stick_curve_on_grid(behind, interval)
        first = _loss_distribution_from_curves(interval, forth, back)
        second = first if behind is ahead else _loss_distribution_from_curves(interval, back, forth)
        return cls(ahead=first, behind=second, count=count)


@dataclass(frozen=True, eq=False)
class ComposedProfile:
    """The profile of a composition: the larger delta of both directions; a symmetric pair has only one."""

    directions: tuple[ComposedLosses, ...]

    @classmethod
    def from_equal_mechanisms(cls, parts: Sequence[EqualMechanisms]) -> ComposedProfile:
        """The profile of all these mechanisms together."""
        ahead = ComposedLosses([(part.ahead, part.count) for part in parts])
        if all(part.ahead is part.behind for part in parts):
            return cls((ahead,))
        return cls((ahead, ComposedLosses([(part.behind, part.count) for part in parts])))

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Delta [n] at each of these epsilons [n]."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """Epsilon at this delta; raises `UnsupportedEvent` for a delta that rounding could exceed."""
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"PLD is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        return max(direction.epsilon(delta) for direction in self.directions)

    def epsilon_lower_bound(self, delta: float) -> float:
        """The larger epsilon that the losses of a direction force, before their discretisation, at this delta."""
        return max(direction.epsilon_lower_bound(delta) for direction in self.directions)


@lru_cache(maxsize=CACHE_SIZE)
def profile_of_gaussian_steps(
    steps: tuple[GaussianSteps, ...], interval: float, adjacency: Adjacency
) -> ComposedProfile:
    """The profile of a composition of Gaussian steps; cached, because rules price the same run many times."""
    return ComposedProfile.from_equal_mechanisms(
        [equal_mechanisms_of_gaussian_steps(step, interval, adjacency) for step in steps]
    )


@lru_cache(maxsize=CACHE_SIZE)
def equal_mechanisms_of_gaussian_steps(step: GaussianSteps, interval: float, adjacency: Adjacency) -> EqualMechanisms:
    """All these steps; unsampled Gaussian steps are exactly one step with less noise."""
    rate, noise, count = step.sample_rate, step.noise_multiplier, step.count
    if rate == 1:
        noise, count = noise / math.sqrt(count), 1
    both = directions_of_poisson_step(rate, noise, adjacency)
    return EqualMechanisms.from_hockey_stick_curves(interval, *both, count)


def _hockey_stick_curve_on_grid(direction: Direction, interval: float) -> np.ndarray:
    return direction.curve(interval * np.arange(max(1, math.ceil(direction.reach / interval)) + 1))


def _loss_distribution_from_curves(interval: float, curve: np.ndarray, other: np.ndarray) -> Losses:
    return Losses(
        lowest=1 - len(other),
        interval=interval,
        probabilities=loss_probabilities(curve, other, interval),
        infinite=float(curve[-1]),
    )


FAR = 5000.0
"""The delta of a profile at this epsilon counts as its probability of an infinite loss."""

SMALLEST_NOISE, WIDTH = 0.02, 16.0
LARGEST_WINDOW = 2_000_000
"""The number of standard deviations of a composition's losses that a transform covers, and of its grid points."""

LARGEST_GRID = 4_000_000
"""Points of one distribution. A coarser grid is still pessimistic; an event that needs even more memory is refused."""

KINDS_OF_STEP = 64
"""The largest number of distinct noise multipliers in a composition; more are rounded down to this number."""

FEW_KINDS, COARSER = 16, 4
"""For more than `FEW_KINDS` kinds, the grid is coarser by this factor: .03 % more epsilon in a third of the time."""

ROUGH_DELTA, ROUGH_KINDS = 1e-6, 10
"""The delta, and the largest number of kinds of step, at which RDP estimates the range of the losses."""

ROUGH_REACH = 4.8
"""Standard deviations between the mean of normal losses and their epsilon at that delta."""

KEPT = 4
"""The number of compositions with other parts than Gaussian steps whose distributions are kept."""

TAIL = 1e-34
"""Delta at which profiles that become distributions are cut off; the rest counts as an infinite loss."""

FINER, FEW_POINTS = 4, 400_000
"""How much finer the grid of a lower bound is, unless it has more points: its step costs a part of the bound."""

RELATIVE = 1e-9
"""More than the relative error of an epsilon that is the root of a closed form, or of quotients of noise."""


@dataclass(frozen=True, kw_only=True)
class Pld:
    """Accountant by discretised privacy-loss distributions.

    *Guarantee*: an upper bound, including floating-point errors, at every delta >= 1e-30; smaller ones are refused.
    `interval` is the widest grid step of the privacy loss (nats); leaves with a small sample rate get a finer step.
    """

    works: ClassVar[tuple[str, ...]] = ("koskela2020computing", "doroshenko2022connect")

    interval: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.interval <= 1e-2:
            raise ValueError(f"Expected 0 < interval={self.interval} <= 0.01.")

    @property
    def name(self) -> str:
        """The name in reports."""
        return "PLD"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """Epsilon of the convolved distributions; 0 without an access, infinity for an access without noise."""
        check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"{self.name} is not safe at delta={delta:.3g} < {SMALLEST_DELTA:g}; use RDP.")
        separate = approximate_dp_epsilon_or_none(
            event, delta, lambda inner, share: self.epsilon(inner, share, adjacency), profiled_limit=MOST_TRIES
        )
        if separate is not None:
            return separate
        profile = rounded_profile(self._profile_on_finest_grid(event, adjacency), number_of_rounded_numbers(event))
        return max(0.0, profile.epsilon(delta))

    def lower(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """For Gaussian steps, the lower bound that follows from their discretisation; 0 for any other event.

        *Guarantee*: no more than the true epsilon of exact noise, floating-point errors included. A record that adds
        its norm bound in one direction to each of its sums, among records that add nothing, has these very losses, in
        both directions; `ComposedLosses.epsilon_lower_bound` proves what their grid leaves. There is none if noise
        multipliers were rounded down, if a step has no noise, or if no tilt decides on which side delta is.
        """
        steps, others = gaussian_part(event, adjacency)
        kinds = {(step.sample_rate, step.noise_multiplier) for step in steps}
        if others or len(limit_noise_levels_of_steps(steps, KINDS_OF_STEP)) < len(kinds):
            return 0.0
        profile = self._profile_on_finest_grid(event, adjacency, FINER)
        forced = 0.0
        if isinstance(profile, (GaussianProfile, TwoSided)):
            forced = profile.epsilon(delta * (1 + 3 * CLOSED_FORM))
        elif isinstance(profile, ComposedProfile):
            forced = profile.epsilon_lower_bound(delta)
        return max(0.0, forced * (1 - RELATIVE) - 1e-9) if math.isfinite(forced) else 0.0

    def total_variation(self, event: DpEvent, adjacency: Adjacency) -> float:
        """An upper bound on the total variation between the outputs on neighbours: the profile at epsilon 0.

        Raises `UnsupportedEvent` where there is no profile.
        """
        exact = self._profile_on_finest_grid(event, Adjacency(adjacency))
        return total_variation_of_profile(rounded_profile(exact, number_of_rounded_numbers(event)))

    def _profile_on_finest_grid(self, event: DpEvent, adjacency: Adjacency, finer: int = 1) -> Profile:
        """The profile under exact noise; sampled Gaussian steps alone are on a grid for their own reach, a finer one.

        A search asks for a whole profile, which takes too many tilts on that grid.
        """
        steps, others = gaussian_part(event, adjacency)
        sampled = [step for step in steps if step.sample_rate < 1 and step.noise_multiplier > 0]
        if others or len(sampled) < max(1, len(steps)) or sum(step.count for step in steps) == 1:
            return self._profile_of_exact_noise(event, adjacency)
        steps = limit_noise_levels_of_steps(steps, KINDS_OF_STEP)

        def reach(step: GaussianSteps) -> float:
            return largest_loss_of_replaced_record(step.sample_rate, step.noise_multiplier)

        return profile_of_gaussian_steps(steps, self._grid_step(steps, (), (), reach, finer), adjacency)

    def profile(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        """The privacy profile of an event, with the rounding of its noise."""
        exact = self._profile_of_exact_noise(event, adjacency)
        return rounded_profile(exact, number_of_rounded_numbers(event))

    def _profile_of_exact_noise(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        """The profile of mechanisms: in closed form for a single one, by convolution for a composition."""
        steps, others = gaussian_part(event, Adjacency(adjacency))
        unknown = [leaf for leaf, _ in others if type(leaf) not in (*_PROFILES, TruncatedSubsampledGaussianDpEvent)]
        if unknown:
            raise UnsupportedEvent(f"{self.name} has no proven bound for {event_name_for_sentence(unknown[0])}.")
        if not steps and not others:
            return Nothing()
        if any(step.noise_multiplier == 0 for step in (*steps, *_truncated_steps_as_plain_steps(others))):
            return Everything()
        if not others and all(step.sample_rate == 1 for step in steps):
            precision = sum(step.count / step.noise_multiplier**2 for step in steps)
            return GaussianProfile(mu=math.sqrt(precision) * (2 if adjacency is Adjacency.REPLACE_ONE else 1))
        if not others and len(steps) == 1 and steps[0].count == 1:
            return TwoSided(
                directions=directions_of_poisson_step(steps[0].sample_rate, steps[0].noise_multiplier, adjacency)
            )
        if not steps and len(others) == 1 and others[0][1] == 1 and type(others[0][0]) in _PROFILES:
            return _PROFILES[type(others[0][0])](self, others[0][0], adjacency)
        steps, others = (
            limit_noise_levels_of_steps(steps, KINDS_OF_STEP),
            limit_noise_levels_of_fixed_batches(others, KINDS_OF_STEP),
        )
        return self._profile_by_convolution(steps, others, adjacency)

    @lru_cache(maxsize=KEPT)  # noqa: B019 - of values that are few and small
    def _profile_by_convolution(
        self, steps: tuple[GaussianSteps, ...], others: tuple[tuple[DpEvent, int], ...], adjacency: Adjacency
    ) -> Profile:
        if not others:
            return profile_of_gaussian_steps(steps, self._grid_step(steps, (), ()), adjacency)
        profiles = [
            (_PROFILES[type(leaf)](self, leaf, adjacency), count) for leaf, count in others if type(leaf) in _PROFILES
        ]
        infinite = [float(profile.delta(np.array([FAR]))[0]) for profile, _ in profiles]
        if any(probability >= 1 for probability in infinite):
            return Everything()
        tops = [
            invert_profile(profile, probability * (1 + 1e-9) + TAIL / count)
            for (profile, count), probability in zip(profiles, infinite, strict=True)
        ]
        interval = self._grid_step(
            (*steps, *_truncated_steps_as_plain_steps(others)), tops, _batches_and_epochs_as_sampled_steps(others)
        )
        parts = [equal_mechanisms_of_gaussian_steps(step, interval, adjacency) for step in steps]
        parts += [
            EqualMechanisms.from_hockey_stick_curves(interval, *_directions_of_profile(profile, top), count)
            for (profile, count), top in zip(profiles, tops, strict=True)
        ]
        for leaf, count in others:
            if isinstance(leaf, TruncatedSubsampledGaussianDpEvent):
                both = directions_of_truncated_poisson_step(leaf, adjacency)
                parts.append(EqualMechanisms.from_hockey_stick_curves(interval, *both, count))
        return ComposedProfile.from_equal_mechanisms(parts)

    def _grid_step(
        self,
        steps: tuple[GaussianSteps, ...],
        tops: Sequence[float],
        batches: Iterable[GaussianSteps],
        reach: Callable[[GaussianSteps], float] = lambda step: largest_gaussian_loss(1 / step.noise_multiplier),
        finer: int = 1,
    ) -> float:
        """A grid step that is fine enough for small sample rates and coarse enough for memory; any one is pessimistic.

        `tops` are the largest losses of other leaves, `batches` the fixed-size steps in them, `reach` the largest loss
        that the grid has of a Gaussian step. The step is divided by `finer`, as far as that takes few points.
        """
        span, wide = max(tops, default=0.0), 0.0
        if steps:
            least = min(step.noise_multiplier for step in steps)
            if least < SMALLEST_NOISE:
                raise UnsupportedEvent(f"{self.name} needs too much memory at noise_multiplier={least:.3g}; use RDP.")
            rdp, few = Rdp(), limit_noise_levels_of_steps(steps, ROUGH_KINDS)
            curves = [one.count * rdp.gaussian_curve(one, Adjacency.ADD_OR_REMOVE_ONE) for one in few]
            rough = rdp.epsilon_from_curve(np.sum(curves, axis=0), ROUGH_DELTA)
            if not math.isfinite(rough):
                raise UnsupportedEvent(f"{self.name} needs too much memory at epsilon near {rough:.3g}; use RDP.")
            wide = WIDTH * (math.sqrt(ROUGH_REACH**2 + 2 * rough) - ROUGH_REACH)
        span = max([span, *map(reach, steps)])
        sampled = [step for step in (*steps, *batches) if step.sample_rate < 1]
        widest = self.interval * (COARSER if len(steps) > FEW_KINDS else 1)
        finest = min((0.1 * step.sample_rate / step.noise_multiplier for step in sampled), default=widest)
        step = max(min(widest, finest), 2 * span / LARGEST_GRID, wide / LARGEST_WINDOW)
        return max(step / finer, min(step, max(span, wide) / FEW_POINTS))

    def _refusal(self, leaf: DpEvent, adjacency: Adjacency) -> UnsupportedEvent:
        return UnsupportedEvent(
            f"{self.name} has no bound for {event_name_for_sentence(leaf)} under {adjacency.value}."
        )

    def _black_box_profile(self, leaf: BlackBoxDpEvent, adjacency: Adjacency) -> Profile:
        if leaf.adjacency is not adjacency:
            raise self._refusal(leaf, adjacency)
        return Claimed(at=leaf.epsilon, beyond=leaf.delta)

    def _noisy_max_profile(self, leaf: NoisyMaxDpEvent, adjacency: Adjacency) -> Profile:
        return Claimed(at=noisy_max_epsilon(leaf, adjacency), beyond=0.0)

    def _selection_profile(self, leaf: SelectionDpEvent, adjacency: Adjacency) -> Profile:
        inner: Any = self.profile(leaf.event, adjacency)
        if isinstance(leaf.tries, EachPoint):
            all_runs = self.profile(repeat(leaf.event, leaf.tries.count), adjacency)
            return Least(inner=(_best_of_tries_profile(inner, leaf.tries), all_runs))
        return _best_of_tries_profile(inner, leaf.law_of_tries_with_limit)

    def _random_allocation_profile(self, leaf: RandomAllocationDpEvent, adjacency: Adjacency) -> Profile:
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise self._refusal(leaf, adjacency)
        return profile_of_allocated_epoch(leaf.steps, leaf.noise_multiplier)

    def _worst_profile(self, leaf: WorstDpEvent, adjacency: Adjacency) -> Profile:
        return Worst(inner=tuple(self.profile(event, adjacency) for event in leaf.events))

    def _mixture_profile(self, leaf: MixtureDpEvent, adjacency: Adjacency) -> Profile:
        return mixture_profile(tuple(self.profile(event, adjacency) for event in leaf.events), leaf.weights)

    def _poisson_sampled_profile(self, leaf: PoissonSampledDpEvent, adjacency: Adjacency) -> Profile:
        if adjacency is not Adjacency.ADD_OR_REMOVE_ONE:
            raise UnsupportedEvent(f"{self.name} has no bound for a sampled search under {adjacency.value}.")
        return Sampled(inner=self.profile(leaf.event, adjacency), rate=leaf.sampling_probability)

    def _without_replacement_profile(self, leaf: SampledWithoutReplacementDpEvent, adjacency: Adjacency) -> Profile:
        inner, others = gaussian_part(leaf.event, adjacency)
        if adjacency is not Adjacency.REPLACE_ONE or others or len(inner) != 1 or inner[0].count != 1:
            raise self._refusal(leaf, adjacency)
        if inner[0].noise_multiplier == 0:
            return Everything()
        gaussian = GaussianProfile(mu=2 / inner[0].noise_multiplier)
        return Sampled(inner=gaussian, rate=leaf.sample_size / leaf.source_dataset_size)


_PROFILES: Mapping[type[DpEvent], Callable[[Pld, Any, Adjacency], Profile]] = {
    BlackBoxDpEvent: Pld._black_box_profile,
    NoisyMaxDpEvent: Pld._noisy_max_profile,
    SelectionDpEvent: Pld._selection_profile,
    WorstDpEvent: Pld._worst_profile,
    MixtureDpEvent: Pld._mixture_profile,
    PoissonSampledDpEvent: Pld._poisson_sampled_profile,
    SampledWithoutReplacementDpEvent: Pld._without_replacement_profile,
    RandomAllocationDpEvent: Pld._random_allocation_profile,
}


def _directions_of_profile(profile: Profile, top: float) -> tuple[Direction, Direction]:
    """Both directions of a leaf: its own, cut at the largest loss that counts, or its profile for each."""
    both = profile.directions if isinstance(profile, TwoSided) else ()
    cut = [replace(one, reach=min(one.reach, top)) for one in both if isinstance(one, Direction)]
    whole = Direction(curve=profile.delta, reach=top)
    return (cut[0], cut[1]) if cut else (whole, whole)


_best_of_tries_profile = lru_cache(maxsize=CACHE_SIZE)(profile_of_best_try)  # a search is priced at several deltas


def _truncated_steps_as_plain_steps(leaves: Iterable[tuple[DpEvent, int]]) -> list[GaussianSteps]:
    """The truncated steps as plain Poisson-sampled steps."""
    return [
        GaussianSteps(sample_rate=leaf.sampling_probability, noise_multiplier=leaf.noise_multiplier, count=count)
        for leaf, count in leaves
        if isinstance(leaf, TruncatedSubsampledGaussianDpEvent)
    ]


def _batches_and_epochs_as_sampled_steps(leaves: Iterable[tuple[DpEvent, int]]) -> Iterator[GaussianSteps]:
    """Steps on batches of a fixed size, at their rate, and allocated epochs, as steps with losses of the same scale."""
    for leaf, count in leaves:
        if isinstance(leaf, RandomAllocationDpEvent):
            rate, noise = 1 / math.sqrt(leaf.steps), leaf.noise_multiplier
            yield GaussianSteps(sample_rate=rate, noise_multiplier=noise, count=count)
        elif step := size_records_and_noise_of_fixed_step(leaf):
            yield GaussianSteps(sample_rate=step[0] / step[1], noise_multiplier=step[2], count=count)


def clear_cached_prices() -> None:
    """Frees what is kept for further prices, hundreds of megabytes for thousands of runs; prices stay the same."""
    kept_values = Pld._profile_by_convolution, profile_of_gaussian_steps, equal_mechanisms_of_gaussian_steps
    for kept in kept_values:
        kept.cache_clear()
    clear_cached_curves()
