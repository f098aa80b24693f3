"""Profiles that some accounts alone use: of replaced records, samples, truncated ones, mixtures, the worst, the least.

*Replaced records.* No pair of records is easier to distinguish by a Gaussian step on a Poisson sample than (1-q) N(0,
s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2). *Proof.* Condition on the other records that are drawn:
divergences are jointly convex, and the others' sum is only a shift. Let u and v be the clipped gradients of the two
records, |u|, |v| <= 1, and e >= 0, c = (1-q)(exp(e)-1)/q; for e < 0 exchange the two. The divergence is q E (S - exp(e)
V - c)_+ with S = exp(u.x/s^2 - |u|^2/2s^2), V = exp(v.x/s^2 - |v|^2/2s^2), x ~ N(0, s^2 I): the price of a spread
option on two lognormal values with volatilities |u|/s and |v|/s and correlation r. By Plackett's identity its
derivative in r is |u||v|/s^2 times E of S V times the pay-off's mixed second derivative, which is -exp(e) times a point
mass: the price is largest at r = -1. There its derivative in |u|/s is E[(|u|/s) S^2 f_SS - (|v|/s) S V f_SV] >= 0, and
likewise in |v|/s: it is largest at |u| = |v| = 1. So the pair dominates every step for all earlier outputs, and
dominating pairs compose (Zhu, Dong, Wang 2022, Theorem 10). QED. See also Lebeda, Regehr, Kamath, Steinke 2025 and
Schuchardt et al. 2024; `tests/accounting/profiles/test_pairs.py` searches for a worse pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from dpsweep.accounting.events.types import TruncatedSubsampledGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles import privacy_profiles as profiles
from dpsweep.accounting.profiles.privacy_profiles import Direction, GaussianProfile, Profile, TwoSided, rounded_up

MEAN, ROUNDING = 1e-12, 1e-9  # more than the relative errors of a mean of curves, and of binomial tails


def replaced_step(rate: float, noise: float) -> tuple[Direction]:
    """A Gaussian step on a Poisson sample, one record replaced by another; both directions are alike."""
    mu = 1 / noise
    if rate == 1:
        return (Direction(curve=GaussianProfile(mu=2 * mu).delta, reach=2 * mu**2 + 2 * profiles.REACH * mu),)
    reach, absent, sampled = mu**2 / 2 + profiles.REACH * mu, math.log1p(-rate), math.log(rate)
    most = float(np.logaddexp(absent, sampled + reach)) - float(np.logaddexp(absent, sampled - reach - mu**2))
    return (Direction(curve=partial(_replaced_record, rate, noise), reach=most),)


def _replaced_record(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    # the loss is epsilon at x = -noise^2 (epsilon / 2 + arcsinh((1 - q) / q exp(1 / (2 noise^2)) sinh(epsilon / 2)))
    size = np.abs(epsilons) / 2
    with np.errstate(divide="ignore"):
        logs = 1 / (2 * noise**2) + math.log1p(-rate) - math.log(rate) + size + np.log(-np.expm1(-2 * size) / 2)
    far = np.where(logs > 300, logs + math.log(2), np.arcsinh(np.exp(np.minimum(logs, 300))))
    x = -(noise**2) * np.copysign(size + far, epsilons)
    # without the record's part the two mixtures are equal, so their difference keeps its digits at tiny rates
    own = special.ndtr((x + 1) / noise) - np.exp(epsilons + special.log_ndtr((x - 1) / noise))
    above, below = np.maximum(epsilons, 0.0), np.minimum(epsilons, 0.0)
    common = special.log_ndtr(x / noise)
    others = np.where(epsilons > 0, np.exp(common + above) * np.expm1(-above), -np.exp(common) * np.expm1(below))
    return np.asarray(np.maximum(0.0, rate * own + (1 - rate) * others))


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
    pairs = list(map(profiles.directions_of, inner))
    curves = [tuple(pair[min(side, len(pair) - 1)] for pair in pairs) for side in range(max(map(len, pairs)))]
    return TwoSided(directions=tuple(_Average(one, weights) for one in curves))


def profile_of_truncated_step(step: TruncatedSubsampledGaussianDpEvent, adjacency: Adjacency) -> Profile:
    """A Gaussian step on a Poisson sample that is truncated to a number of random records if it is larger.

    The adversary is assumed to know whether it was. Then the differing record may displace another one, which moves the
    sum twice as far. *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling).
    """
    rate, records, largest = step.sampling_probability, step.dataset_size, step.truncated_batch_size
    if step.noise_multiplier == 0:
        return profiles.EVERYTHING
    step_of = replaced_step if adjacency is Adjacency.REPLACE_ONE else profiles.poisson_step
    whole = step_of(rate, step.noise_multiplier)
    full = _binomial_tail(largest - 1, records - 1, rate)
    if full == 0:
        return TwoSided(directions=whole)
    drawn = _binomial_tail(largest, records, rate) * largest / records / full
    (cut,) = replaced_step(min(1.0, drawn * (1 + ROUNDING)), step.noise_multiplier / 2)

    def mixed(one: Direction, at: np.ndarray) -> np.ndarray:
        return (1 - full * (1 - ROUNDING)) * one.curve(at) + min(1.0, full * (1 + ROUNDING)) * cut.curve(at)

    curves = ((partial(mixed, one), max(one.reach, cut.reach)) for one in whole)
    return TwoSided(directions=tuple(Direction(curve=curve, reach=reach) for curve, reach in curves))


def _binomial_tail(count: int, draws: int, rate: float) -> float:
    if count < 0:
        return 1.0
    return float(special.betainc(count + 1, draws - count, rate)) if count < draws else 0.0
