"""Hockey-stick curves of one Gaussian step in closed form, at any real epsilon.

`removed_record_curve` compares data with the record to data without it, `added` is the opposite, `replaced` symmetric.

*Source*: Zhu, Dong, Wang 2022 (Optimal Accounting of Differential Privacy via Characteristic Function), Theorem 11, for
the dominating pairs of Poisson sampling under add or remove one.

Under replace one no pair of records is easier to distinguish than (1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2)
+ q N(-1, s^2). *Proof.* Condition on the other records that are drawn: divergences are jointly convex, and the others'
sum is only a shift. Let u and v be the clipped gradients of the two records, |u|, |v| <= 1, and e >= 0, c =
(1-q)(exp(e)-1)/q; for e < 0 exchange the two. The hockey-stick divergence is q E (S - exp(e) V - c)_+ with S =
exp(u.x/s^2 - |u|^2/2s^2), V = exp(v.x/s^2 - |v|^2/2s^2), x ~ N(0, s^2 I). This is the price of a spread option on two
lognormal values with volatilities |u|/s and |v|/s and correlation r. By Plackett's identity its derivative in r is E of
S V times the mixed second derivative of the pay-off, times |u||v|/s^2; the mixed derivative is -exp(e) times a point
mass, so the price falls as r rises and is largest at r = -1. There its derivative in |u|/s is E[(|u|/s) S^2 f_SS -
(|v|/s) S V f_SV] >= 0, and likewise in |v|/s: it is largest at |u| = |v| = 1. So the pair dominates every step for all
earlier outputs, and dominating pairs compose (Zhu, Dong, Wang 2022, Theorem 10). QED. See also Lebeda, Regehr, Kamath,
Steinke 2025 and Schuchardt et al. 2024; `tests/accounting/profiles/test_pairs.py` searches the plane of both gradients
for a worse pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from dpsweep.accounting.events.types import TruncatedSubsampledGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import Curve, GaussianProfile, Profile

REACH = 13.0  # standard deviations of noise that the grid covers; the 1e-38 beyond counts as an infinite loss
CLOSED_FORM, ROUNDING = 1e-10, 1e-9  # the relative errors of a curve of one step, and of binomial tails, are smaller


@dataclass(frozen=True, kw_only=True)
class Direction(Profile):
    """One direction of a dominating pair; `reach` is the largest loss within `REACH` standard deviations of noise."""

    curve: Curve
    reach: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The curve, rounded up."""
        return np.asarray(self.curve(np.asarray(epsilons, dtype=float)) * (1 + CLOSED_FORM))


def poisson_step(rate: float, noise: float, adjacency: Adjacency) -> tuple[Direction, ...]:
    """A Gaussian step on a Poisson sample; one direction where both are alike."""
    mu = 1 / noise
    reach = mu**2 / 2 + REACH * mu
    if rate == 1:
        if adjacency is Adjacency.REPLACE_ONE:
            mu, reach = 2 * mu, 2 * mu**2 + 2 * REACH * mu
        return (Direction(curve=GaussianProfile(mu=mu).delta, reach=reach),)
    absent, sampled = math.log1p(-rate), math.log(rate)
    most = float(np.logaddexp(absent, sampled + reach))
    if adjacency is Adjacency.REPLACE_ONE:
        most -= float(np.logaddexp(absent, sampled - reach - mu**2))
        return (Direction(curve=lambda at: replaced_record_curve(rate, noise, at), reach=most),)
    removed = Direction(curve=lambda at: removed_record_curve(rate, noise, at), reach=most)
    least = float(np.logaddexp(absent, sampled - reach))
    return removed, Direction(curve=lambda at: added_record_curve(rate, noise, at), reach=-least)


def truncated_poisson_step(step: TruncatedSubsampledGaussianDpEvent, adjacency: Adjacency) -> tuple[Direction, ...]:
    """The same for a Poisson sample that is truncated to a number of random records if it is larger.

    The adversary is assumed to know whether it was. Then the differing record may displace another one, which moves the
    sum twice as far.

    *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling), as dp_accounting computes it.
    """
    rate, records, largest = step.sampling_probability, step.dataset_size, step.truncated_batch_size
    full = _probability_of_binomial_above(largest - 1, records - 1, rate)
    whole = poisson_step(rate, step.noise_multiplier, adjacency)
    if full == 0:
        return whole
    drawn = _probability_of_binomial_above(largest, records, rate) * largest / records / full
    (cut,) = poisson_step(min(1.0, drawn * (1 + ROUNDING)), step.noise_multiplier / 2, Adjacency.REPLACE_ONE)
    most, rest = min(1.0, full * (1 + ROUNDING)), 1 - full * (1 - ROUNDING)

    def mixed(one: Direction) -> Direction:
        return Direction(curve=lambda at: rest * one.curve(at) + most * cut.curve(at), reach=max(one.reach, cut.reach))

    return tuple(map(mixed, whole))


def _probability_of_binomial_above(count: int, draws: int, rate: float) -> float:
    if count < 0:
        return 1.0
    return float(special.betainc(count + 1, draws - count, rate)) if count < draws else 0.0


def removed_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The sampled step on data with the record, against the step on data without it."""
    least = math.log1p(-rate)
    above = np.maximum(epsilons, np.nextafter(least, 0))
    inner = above + np.log(-np.expm1(least - above)) - math.log(rate)  # ln((exp(epsilon) - 1 + q) / q)
    deltas = rate * GaussianProfile(mu=1 / noise).delta(inner)
    return np.where(epsilons > least, deltas, -np.expm1(np.minimum(epsilons, least)))


def added_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The step on data without the record, against the sampled step on data with it."""
    most = -math.log1p(-rate)
    below = np.minimum(epsilons, np.nextafter(most, 0))
    weight = -np.expm1(below - most)
    inner = below + math.log(rate) - np.log(weight)
    return np.where(epsilons < most, weight * GaussianProfile(mu=1 / noise).delta(inner), 0.0)


def replaced_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The sampled step on data with one record, against data with the opposite record instead.

    The loss is epsilon at x = -noise^2 (epsilon / 2 + arcsinh((1 - q) / q exp(1 / (2 noise^2)) sinh(epsilon / 2))).
    """
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
