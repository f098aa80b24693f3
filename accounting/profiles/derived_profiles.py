"""Profiles that are derived from those of parts: of samples and truncated ones, mixtures, the worst and the least."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import betainc

from dpsweep.accounting.events.types import TruncatedSubsampledGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import (
    EVERYTHING,
    Direction,
    Profile,
    TwoSided,
    directions_of,
    poisson_step,
    rounded_up,
)

MEAN, ROUNDING = 1e-12, 1e-9  # more than the relative errors of a mean of curves, and of binomial tails


@dataclass(frozen=True, kw_only=True)
class Sampled(Profile):
    """On a sample that contains each record with probability `rate`, Poisson or without replacement.

    *Source*: Balle, Barthe, Gaboardi 2018 (Privacy Amplification by Subsampling), Theorems 8 and 9: tight for one step.
    """

    inner: Profile
    rate: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The inner delta(e) times `rate`, at epsilon ln(1 + rate * (exp(e) - 1))."""
        small = np.minimum(epsilons, 500.0)
        inner = np.where(epsilons < 500.0, np.log1p(np.expm1(small) / self.rate), epsilons - math.log(self.rate))
        return np.asarray(self.rate * self.inner.delta(inner))

    def epsilon(self, delta: float) -> float:
        """From the inner epsilon at delta / rate."""
        if delta >= self.rate:
            return 0.0
        inner = self.inner.epsilon(delta / self.rate)
        return rounded_up(math.log1p(self.rate * math.expm1(inner)) if inner < 500 else inner + math.log(self.rate))


@dataclass(frozen=True, kw_only=True)
class Least(Profile):
    """The pointwise minimum of several profiles of one mechanism."""

    inner: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The smallest."""
        return np.asarray(np.min([profile.delta(epsilons) for profile in self.inner], axis=0))

    def epsilon(self, delta: float) -> float:
        """The smallest."""
        return min(profile.epsilon(delta) for profile in self.inner)


def worst_profile(inner: tuple[Profile, ...]) -> TwoSided:
    """The pointwise maximum of several profiles, for both directions."""
    return TwoSided(directions=(TwoSided(directions=inner),))


@dataclass(frozen=True)
class _Average(Profile):
    curves: tuple[Profile, ...]
    weights: tuple[float, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        deltas = [weight * curve.delta(epsilons) for curve, weight in zip(self.curves, self.weights, strict=True)]
        return np.asarray(np.sum(deltas, axis=0) * (1 + MEAN))


def mixture_profile(inner: tuple[Profile, ...], weights: tuple[float, ...]) -> TwoSided:
    """Of one of several mechanisms that is drawn with these probabilities and named by the output.

    Each direction is exact: the divergence of laws on pairs (draw, output) is the mean of the mechanisms' divergences.
    """
    pairs = list(map(directions_of, inner))
    curves = [tuple(pair[min(side, len(pair) - 1)] for pair in pairs) for side in range(max(map(len, pairs)))]
    return TwoSided(directions=tuple(_Average(one, weights) for one in curves))


def profile_of_truncated_step(step: TruncatedSubsampledGaussianDpEvent, adjacency: Adjacency) -> Profile:
    """A Gaussian step on a Poisson sample that is truncated to a number of random records if it is larger.

    The adversary is assumed to know whether it was. Then the differing record may displace another one, which moves the
    sum twice as far. *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling), as dp_accounting
    computes it.
    """
    rate, records, largest = step.sampling_probability, step.dataset_size, step.truncated_batch_size
    if step.noise_multiplier == 0:
        return EVERYTHING
    whole = poisson_step(rate, step.noise_multiplier, adjacency)
    full = _binomial_tail(largest - 1, records - 1, rate)
    if full == 0:
        return TwoSided(directions=whole)
    drawn = _binomial_tail(largest, records, rate) * largest / records / full
    (cut,) = poisson_step(min(1.0, drawn * (1 + ROUNDING)), step.noise_multiplier / 2, Adjacency.REPLACE_ONE)

    def mixed(one: Direction, at: np.ndarray) -> np.ndarray:
        return (1 - full * (1 - ROUNDING)) * one.curve(at) + min(1.0, full * (1 + ROUNDING)) * cut.curve(at)

    curves = ((partial(mixed, one), max(one.reach, cut.reach)) for one in whole)
    return TwoSided(directions=tuple(Direction(curve=curve, reach=reach) for curve, reach in curves))


def _binomial_tail(count: int, draws: int, rate: float) -> float:
    if count < 0:
        return 1.0
    return float(betainc(count + 1, draws - count, rate)) if count < draws else 0.0
