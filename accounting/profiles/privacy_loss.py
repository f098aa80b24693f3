"""Hockey-stick curves of one Gaussian step in closed form, and their discretisation to losses on a grid.

A step has two directions: `removed_record_curve` compares a data set with the record to one without it, `added` is the
opposite, and `replaced` is symmetric. Each is a hockey-stick divergence at any real epsilon.

*Source*: Zhu, Dong, Wang 2022 (Optimal Accounting of Differential Privacy via Characteristic Function), Theorem 11, for
the dominating pairs of Poisson sampling under add or remove one.

Under replace one the pair is (1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2), and no pair of
records is easier to distinguish.

*Proof.* Condition on the other records that are drawn: divergences are jointly convex, and the others' sum is only a
shift. Let u and v be the clipped gradients of the two records, |u|, |v| <= 1, and e >= 0, c = (1-q)(exp(e)-1)/q; for e
< 0 exchange the two. The hockey-stick divergence is q E (S - exp(e) V - c)_+ with S = exp(u.x/s^2 - |u|^2/2s^2), V =
exp(v.x/s^2 - |v|^2/2s^2), x ~ N(0, s^2 I). This is the price of a spread option on two lognormal values with
volatilities |u|/s and |v|/s and correlation r. By Plackett's identity its derivative in r is E of S V times the mixed
second derivative of the pay-off, times |u||v|/s^2; the mixed derivative is -exp(e) times a point mass, so the price
falls as r rises and is largest at r = -1. There its derivative in |u|/s is E[(|u|/s) S^2 f_SS - (|v|/s) S V f_SV] >= 0,
and likewise in |v|/s: it is largest at |u| = |v| = 1. So the pair dominates every step for all earlier outputs, and
dominating pairs compose (Zhu, Dong, Wang 2022, Theorem 10). See also Lebeda, Regehr, Kamath, Steinke 2025 and
Schuchardt et al. 2024.
`tests/accounting/profiles/test_pairs.py` searches the plane of both gradients for a worse pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from dpsweep.accounting.events.types import TruncatedSubsampledGaussianDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile, invert_profile

REACH = 13.0
"""Standard deviations of noise that the loss grid covers; the probability 1e-38 beyond counts as an infinite loss."""

SMALLEST_EXPONENT = 600.0
"""Weights below exp(-600) are replaced by exp(-600), so that no division by a probability overflows."""

CLOSED_FORM = 1e-10
"""The largest relative error of a hockey-stick curve of one step."""

ROUNDING = 1e-9
"""The largest relative error of tail probabilities of binomial distributions."""


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction of a step's dominating pair: its hockey-stick curve at any real epsilons.

    `reach` is the largest loss within `REACH` standard deviations of the noise.
    """

    curve: Callable[[np.ndarray], np.ndarray]
    reach: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The curve, rounded up."""
        return np.asarray(self.curve(np.asarray(epsilons, dtype=float)) * (1 + CLOSED_FORM))

    def epsilon(self, delta: float) -> float:
        """By bisection."""
        return invert_profile(self, delta)


def directions_of_poisson_step(rate: float, noise: float, adjacency: Adjacency) -> tuple[Direction, Direction]:
    """Both directions of the dominating pair of a Gaussian step on a Poisson sample."""
    if rate == 1:
        mu = (2 if adjacency is Adjacency.REPLACE_ONE else 1) / noise
        both = Direction(curve=GaussianProfile(mu=mu).delta, reach=largest_gaussian_loss(mu))
        return both, both
    if adjacency is Adjacency.REPLACE_ONE:
        both = Direction(
            curve=lambda at: replaced_record_curve(rate, noise, at), reach=largest_loss_of_replaced_record(rate, noise)
        )
        return both, both
    return (
        Direction(
            curve=lambda at: removed_record_curve(rate, noise, at), reach=largest_loss_of_removed_record(rate, noise)
        ),
        Direction(
            curve=lambda at: added_record_curve(rate, noise, at), reach=largest_loss_of_added_record(rate, noise)
        ),
    )


def directions_of_truncated_poisson_step(
    step: TruncatedSubsampledGaussianDpEvent, adjacency: Adjacency
) -> tuple[Direction, Direction]:
    """Both directions for a Poisson sample that is truncated to a number of random records if it is larger.

    The bound assumes that the adversary knows whether the sample was truncated. If it was, the differing record may
    displace another record, which moves the sum twice as far.

    *Source*: Ganesh 2025 (Tighter Privacy Analysis for Truncated Poisson Sampling), as dp_accounting computes it.
    """
    rate, records, largest = step.sampling_probability, step.dataset_size, step.truncated_batch_size
    full = _probability_of_binomial_above(largest - 1, records - 1, rate)
    whole = directions_of_poisson_step(rate, step.noise_multiplier, adjacency)
    if full == 0:
        return whole
    drawn = _probability_of_binomial_above(largest, records, rate) * largest / records / full
    cut, _ = directions_of_poisson_step(
        min(1.0, drawn * (1 + ROUNDING)), step.noise_multiplier / 2, Adjacency.REPLACE_ONE
    )
    most, rest = min(1.0, full * (1 + ROUNDING)), 1 - full * (1 - ROUNDING)

    def mix_with_truncated_case(direction: Direction) -> Direction:
        return Direction(
            curve=lambda at: rest * direction.curve(at) + most * cut.curve(at), reach=max(direction.reach, cut.reach)
        )

    return mix_with_truncated_case(whole[0]), mix_with_truncated_case(whole[1])


def _probability_of_binomial_above(count: int, draws: int, rate: float) -> float:
    """P(X > count) for a binomial X."""
    if count < 0:
        return 1.0
    return float(special.betainc(count + 1, draws - count, rate)) if count < draws else 0.0


def removed_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The sampled step on data with the record, against the step on data without it."""
    gaussian = GaussianProfile(mu=1 / noise)
    least = math.log1p(-rate)
    above = np.maximum(epsilons, np.nextafter(least, 0))
    inner = _log_difference_of_exps(above, least) - math.log(rate)
    return np.where(epsilons > least, rate * gaussian.delta(inner), -np.expm1(np.minimum(epsilons, least)))


def added_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The step on data without the record, against the sampled step on data with it."""
    gaussian = GaussianProfile(mu=1 / noise)
    most = -math.log1p(-rate)
    below = np.minimum(epsilons, np.nextafter(most, 0))
    weight = -np.expm1(below - most)
    return np.where(epsilons < most, weight * gaussian.delta(below + math.log(rate) - np.log(weight)), 0.0)


def replaced_record_curve(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    """The sampled step on data with one record, against data with the opposite record instead.

    The loss equals epsilon at the output x = -noise^2 (epsilon / 2 + arcsinh((1 - q) / q exp(1 / (2 noise^2))
    sinh(epsilon / 2))).
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


def largest_gaussian_loss(mu: float) -> float:
    """The largest loss, within `REACH` standard deviations, of an unsampled step with sensitivity over noise `mu`."""
    return mu**2 / 2 + REACH * mu


def largest_loss_of_removed_record(rate: float, noise: float) -> float:
    """The largest loss of `removed_record_curve` within `REACH` standard deviations."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + largest_gaussian_loss(1 / noise)))


def largest_loss_of_added_record(rate: float, noise: float) -> float:
    """The largest loss of `added` within `REACH` standard deviations."""
    return -float(np.logaddexp(math.log1p(-rate), math.log(rate) - largest_gaussian_loss(1 / noise)))


def largest_loss_of_replaced_record(rate: float, noise: float) -> float:
    """The largest loss of `replaced` within `REACH` standard deviations."""
    opposite = float(np.logaddexp(math.log1p(-rate), math.log(rate) - largest_gaussian_loss(1 / noise) - noise**-2))
    return largest_loss_of_removed_record(rate, noise) - opposite


def _log_difference_of_exps(epsilons: np.ndarray, least: float) -> np.ndarray:
    """ln(exp(epsilon) - exp(least)), for epsilon > least."""
    return np.asarray(epsilons + np.log(-np.expm1(least - epsilons)))


def loss_probabilities(ahead: np.ndarray, behind: np.ndarray, interval: float) -> np.ndarray:
    """Probabilities of losses on a grid, from -(len(behind) - 1) to len(ahead) - 1 times `interval`.

    `ahead` is a hockey-stick curve at epsilon 0, interval, 2 interval ..., and `behind` is that of the opposite
    direction. An infinite loss has the probability `ahead[-1]`. Below 0 the first curve is 1 - exp(epsilon) +
    exp(epsilon) times the second at -epsilon; computed this way, small probabilities keep their digits.

    *Guarantee*: the grid's own curve passes through these values and is above the true curve between them, because that
    is convex in exp(epsilon). If `ahead` is an upper bound that is not convex, the grid's curve is above it.
    *Source*: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (Connect the Dots), Algorithm 1.
    """
    step = math.expm1(interval)
    middle = 1 + (ahead[1] + behind[1] - (2 + step) * ahead[0]) / step
    below = np.exp(-np.minimum(interval * np.arange(1, len(behind)), SMALLEST_EXPONENT)) * _slope_changes(
        behind, interval
    )
    return np.asarray(np.maximum(0.0, np.concatenate([below[::-1], [middle], _slope_changes(ahead, interval)])))


def _slope_changes(deltas: np.ndarray, interval: float) -> np.ndarray:
    """The change of slope of a curve at each grid point after the first, which is the probability there."""
    falls = -np.diff(np.minimum.accumulate(deltas))
    inner = (falls[:-1] * math.exp(interval) - falls[1:]) / math.expm1(interval)
    return np.append(inner, falls[-1] / -math.expm1(-interval))
