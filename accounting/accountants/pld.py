"""Privacy-loss distributions: the tightest accountant for compositions.

*Source*: Koskela, Jaelkoe, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), whose
discretisation is pessimistic at every epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpsweep.accounting.accountants import interface
from dpsweep.accounting.accountants.interface import GaussianSteps, gaussian_part, round_noise_down
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events import types as events
from dpsweep.accounting.events.trial_counts import MOST_TRIES, EachPoint
from dpsweep.accounting.events.types import DpEvent, as_fixed_batch_step, repeat
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles import derived_profiles as derived
from dpsweep.accounting.profiles import privacy_profiles as profiles
from dpsweep.accounting.profiles.composition import ComposedLosses, Losses
from dpsweep.accounting.profiles.privacy_profiles import EVERYTHING, SMALLEST_DELTA, Direction, GaussianProfile, Profile
from dpsweep.accounting.profiles.random_allocation import profile_of_allocated_epoch
from dpsweep.accounting.profiles.selection_envelope import curves_and_tradeoffs, profile_of_best_try

TAIL = 1e-34  # profiles are cut off where delta is by this above that at `FARTHEST`, which counts as infinite losses
SMALLEST_NOISE, LARGEST_GRID = 0.02, 4_000_000  # of one distribution: less noise is refused, more points made coarser
WIDTH, LARGEST_WINDOW = 16.0, 2_000_000  # standard deviations of composed losses in a transform; their grid points
KINDS_OF_STEP = 64  # distinct noise multipliers in a composition; more are rounded down
FEW_KINDS, COARSER = 16, 4  # for more kinds the grid is coarser by this: .03 % more epsilon in a third of the time
KEPT = 8  # profiles of about 100 MB: a run is priced alone and in searches, and each at several deltas

Parts = Sequence[tuple[tuple[Direction, ...], int]]  # directions of mechanisms, one if alike, with multiplicities


@dataclass(frozen=True, kw_only=True)
class Pld:
    """Accountant by discretised privacy-loss distributions.

    *Guarantee*: an upper bound, including floating-point errors, at every delta >= 1e-30; smaller ones are refused.
    `interval` is the widest grid step of the privacy loss (nats); leaves with a small sample rate get a finer step.
    """

    name: ClassVar[str] = "PLD"
    works: ClassVar[tuple[str, ...]] = ("koskela2020computing", "doroshenko2022connect")
    interval: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.interval <= 1e-2:
            raise ValueError(f"Expected 0 < interval={self.interval} <= 0.01.")

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        """In nats; `UnsupportedEvent` also below `SMALLEST_DELTA`."""
        interface.check_delta(delta)
        if delta < SMALLEST_DELTA:
            raise UnsupportedEvent(f"{self.name} is not safe at delta={delta} < {SMALLEST_DELTA}; use RDP.")
        separate = interface.approximate_dp_epsilon_or_none(
            event, delta, lambda inner, share: self.epsilon(inner, share, adjacency), profiled_limit=MOST_TRIES
        )
        return max(0.0, self.profile(event, adjacency).epsilon(delta)) if separate is None else separate

    def profile(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        """The privacy profile of an event, with the rounding of its noise."""
        exact = self._profile_of_exact_noise(event, Adjacency(adjacency))
        numbers = events.number_of_rounded_numbers(event)
        return profiles.rounded_profile(exact, numbers) if numbers else exact

    @lru_cache(maxsize=KEPT)  # noqa: B019 - of values that are few and small
    def _profile_of_exact_noise(self, event: DpEvent, adjacency: Adjacency) -> Profile:
        steps, others = gaussian_part(event, adjacency, KINDS_OF_STEP)
        others = round_noise_down(others, KINDS_OF_STEP)
        parts = [(self._profile_of_leaf(leaf, adjacency), count) for leaf, count in others]
        if any(step.noise_multiplier == 0 for step in steps):
            return EVERYTHING
        unrounded, _ = gaussian_part(event, adjacency)
        precision = sum(step.count / step.noise_multiplier**2 for step in unrounded if step.sample_rate == 1)
        if precision:  # all unsampled steps are exactly one with less noise
            mu = math.sqrt(precision) * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
            parts.append((GaussianProfile(mu=mu), 1))
        step_of = derived.replaced_step if adjacency is Adjacency.REPLACE_ONE else profiles.poisson_step
        for step in steps:
            if step.sample_rate < 1:
                directions = step_of(step.sample_rate, step.noise_multiplier)
                parts.append((profiles.TwoSided(directions=directions), step.count))
        if not parts:
            return profiles.NOTHING
        if len(parts) == 1 and parts[0][1] == 1:
            return parts[0][0]
        infinite = [float(profile.delta(np.array([profiles.FARTHEST]))[0]) for profile, _ in parts]
        if max(infinite) >= 1:
            return EVERYTHING
        pairs = []
        for (profile, count), probability in zip(parts, infinite, strict=True):
            both = tuple(one for one in getattr(profile, "directions", ()) if isinstance(one, Direction))
            if not both:  # a curve for both, cut off
                reach = profiles.invert_profile(profile, probability * (1 + 1e-9) + TAIL / count)
                both = (Direction(curve=profile.delta, reach=reach),)
            pairs.append((both, count))
        interval = self.grid_step(pairs, steps, [_as_sampled_steps(*one) for one in others])
        return profiles.TwoSided(directions=composed_losses(pairs, interval))

    def grid_step(self, parts: Parts, steps: Sequence[GaussianSteps], others: Sequence[GaussianSteps] = ()) -> float:
        """Any is pessimistic; this fits small rates and memory. `others` are on the scale of the other leaves."""
        least = min((step.noise_multiplier for step in steps), default=1.0)
        span = max(direction.reach for both, _ in parts for direction in both)
        if least < SMALLEST_NOISE or not math.isfinite(span):
            raise UnsupportedEvent(f"{self.name} needs too much memory at noise_multiplier={least}; use RDP.")
        scales = [*steps, *(step for step in others if step.noise_multiplier > 0)]
        widest = self.interval * (COARSER if len(steps) > FEW_KINDS else 1)
        finest = min((0.1 * one.sample_rate / one.noise_multiplier for one in scales if one.sample_rate < 1), default=1)
        return max(min(widest, finest), 2 * span / LARGEST_GRID, width_of_losses(scales) / LARGEST_WINDOW)

    def _profile_of_leaf(self, leaf: DpEvent, adjacency: Adjacency) -> Profile:
        replaced = adjacency is Adjacency.REPLACE_ONE
        match leaf:
            case events.BlackBoxDpEvent() if leaf.adjacency is adjacency:
                return profiles.Claimed(at=leaf.epsilon, beyond=leaf.delta)
            case events.NoisyMaxDpEvent():
                return profiles.Claimed(at=interface.noisy_max_epsilon(leaf, adjacency))
            case events.SelectionDpEvent():
                best = profile_of_best_try(self.profile(leaf.event, adjacency), leaf.law_of_tries_with_limit)
                if not isinstance(leaf.tries, EachPoint):
                    return best
                return derived.Least(inner=(best, self.profile(repeat(leaf.event, leaf.tries.count), adjacency)))
            case events.WorstDpEvent():
                return derived.worst_profile(tuple(self.profile(one, adjacency) for one in leaf.events))
            case events.MixtureDpEvent():
                inner = tuple(self.profile(one, adjacency) for one in leaf.events)
                return derived.mixture_profile(inner, leaf.weights)
            case events.PoissonSampledDpEvent() if not replaced:
                return derived.Sampled(inner=self.profile(leaf.event, adjacency), rate=leaf.sampling_probability)
            case events.RandomAllocationDpEvent() if not replaced:
                return profile_of_allocated_epoch(leaf.steps, leaf.noise_multiplier)
            case events.TruncatedSubsampledGaussianDpEvent():
                return derived.profile_of_truncated_step(leaf, adjacency)
        if replaced and (step := as_fixed_batch_step(leaf)):
            size, of, noise = step
            return derived.Sampled(inner=GaussianProfile(mu=2 / noise), rate=size / of) if noise else EVERYTHING
        raise UnsupportedEvent(f"{self.name} has no bound for {events.event_name(leaf)} under {adjacency.value}.")


def _as_sampled_steps(leaf: DpEvent, count: int) -> GaussianSteps:
    """Poisson-sampled steps with losses of the same scale; without noise if a leaf is unlike them."""
    rate, noise = 1.0, 0.0
    if isinstance(leaf, events.TruncatedSubsampledGaussianDpEvent):
        rate, noise = leaf.sampling_probability, leaf.noise_multiplier
    elif isinstance(leaf, events.RandomAllocationDpEvent):
        rate, noise = 1 / math.sqrt(leaf.steps), leaf.noise_multiplier
    elif step := as_fixed_batch_step(leaf):
        rate, noise = step[0] / step[1], step[2]
    return GaussianSteps(sample_rate=rate, noise_multiplier=noise, count=count)


def width_of_losses(steps: Sequence[GaussianSteps]) -> float:
    """Roughly, how wide the likely losses of a composition are, by their Renyi divergence at order 2."""
    moments = ((one.sample_rate**2 * math.expm1(min(700.0, one.noise_multiplier**-2)), one.count) for one in steps)
    return WIDTH * math.sqrt(sum(count * math.log1p(moment) for moment, count in moments))


def composed_losses(parts: Parts, interval: float) -> tuple[ComposedLosses, ...]:
    """The directions of a composition on a grid with this step; one if alike."""
    curves = [
        [one.curve(interval * np.arange(max(1, math.ceil(one.reach / interval)) + 1)) for one in both]
        for both, _ in parts
    ]
    losses = [[Losses.from_curves(one[side], one[side - 1], interval) for side in range(len(one))] for one in curves]
    return tuple(
        ComposedLosses([(one[side % len(one)], count) for one, (_, count) in zip(losses, parts, strict=True)])
        for side in range(max(map(len, losses)))
    )


def clear_cached_prices() -> None:
    """Frees hundreds of megabytes after thousands of runs; prices stay the same."""
    Pld._profile_of_exact_noise.cache_clear()
    curves_and_tradeoffs.cache_clear()
