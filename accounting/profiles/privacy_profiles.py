"""Privacy profiles: delta as a function of epsilon.

A profile bounds the hockey-stick divergence of both directions at every epsilon >= 0. Where they are known apart, it
has the profile of each as `directions`; else one stands for both.

*Rounded noise.* The law of one noisy number is within a factor exp(+-LOG_RATIO) of that under exact noise, given all
earlier ones, but for noise beyond 16 standard deviations (`NEVER` in `accounting/events/build.py`). So the joint law of
k numbers is within exp(+-x) of the exact one except with a probability of d, on both neighbours, and at every e of any
sign the divergence delta(e) under exact noise becomes at most exp(x) delta(e - 2 x) + (1 + exp(e - x)) d. This is of
*one try*, its score included: a rule that hides losers raises x as it raises epsilon. *Source*: Dwork, Rothblum, Vadhan
2010 (Boosting and Differential Privacy), Lemma III.2 and Theorem III.3, for x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from scipy import special

SMALLEST_DELTA = 1e-30  # below, the tails that grids cut off are no longer negligible
FARTHEST = 5000.0  # divergences at larger epsilons are bounded by the one here
REACH = 13.0  # standard deviations of noise that a grid of losses covers; the 1e-38 beyond is an infinite loss
LOG_RATIO = 2.0**-41  # bound on a cell's log-probability minus that under exact noise (`trainers/randomness.py`)
REACHES = (64.0, 2.0**14, math.inf)  # d is tail * exp(-reach) up to the first epsilon, to the second, and 0 beyond
TAIL, SHARE = 1e-36, 1e-9  # the tail of a profile, far below every delta in use; or, where delta is known, this part
CLOSED_FORM = 1e-10  # more than the relative error of a curve of one step
_LARGEST_EPSILON, _UNIT, _ULPS = 1e4, 2.0**-42, 2.0**-50  # the last is more than the relative error of a few operations
Curve = Callable[[np.ndarray], np.ndarray]  # bounds of a law's divergence from another at any real epsilons; [n]


def rounded_up(epsilon: float) -> float:
    """Of an epsilon >= 0 after a few operations."""
    return epsilon * (1 + _ULPS)


class Profile(Protocol):
    """*Guarantee*: the mechanism is (epsilon, delta(epsilon))-private at every epsilon >= 0 at once."""

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]; non-increasing."""

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is certified at `delta`, rounded up."""
        return invert_profile(self, delta)


@dataclass(frozen=True, kw_only=True)
class GaussianProfile(Profile):
    """Of sensitivity over noise `mu`. *Source*: Balle and Wang 2018 (Improving the Gaussian Mechanism), Theorem 8."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu > 0:
            raise ValueError(f"Expected mu={self.mu} > 0.")

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Exact."""
        near = special.log_ndtr(self.mu / 2 - epsilons / self.mu)
        far = special.log_ndtr(-self.mu / 2 - epsilons / self.mu)
        return np.asarray(np.exp(near) * -np.expm1(np.minimum(0, epsilons + far - near)))


@dataclass(frozen=True, kw_only=True)
class Claimed(Profile):
    """A claim: at worst, randomised response that reveals all with the probability `beyond`.

    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.3.
    """

    at: float
    beyond: float = 0.0

    def __post_init__(self) -> None:
        if not (self.at >= 0 and 0 <= self.beyond <= 1):
            raise ValueError(f"Expected at={self.at} >= 0 and 0 <= beyond={self.beyond} <= 1.")

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Exact for that randomised response."""
        if self.at == math.inf:
            return np.ones(len(epsilons))
        short = -np.expm1(np.minimum(0.0, np.asarray(epsilons) - self.at)) / (1 + math.exp(-self.at))
        return np.asarray(self.beyond + (1 - self.beyond) * short)

    def epsilon(self, delta: float) -> float:
        """Exact for that randomised response."""
        if not (delta >= self.beyond and self.at < math.inf):
            return math.inf
        remaining = (delta - self.beyond) / (1 - self.beyond) * (1 + math.exp(-self.at))
        return max(0.0, min(self.at, rounded_up(self.at + math.log1p(-remaining)))) if remaining < 1 else 0.0


NOTHING, EVERYTHING = Claimed(at=0.0), Claimed(at=math.inf)  # no access; an access without any protection


@dataclass(frozen=True, kw_only=True)
class TwoSided(Profile):
    """The directions, P from Q and Q from P, apart; one if they are alike."""

    directions: tuple[Profile, ...]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The larger."""
        return np.asarray(np.max([direction.delta(epsilons) for direction in self.directions], axis=0))

    def epsilon(self, delta: float) -> float:
        """The larger."""
        return max(direction.epsilon(delta) for direction in self.directions)


def directions_of(profile: Profile) -> tuple[Profile, ...]:
    """The profile of each direction; one if they are not known apart."""
    sides: tuple[Profile, ...] = getattr(profile, "directions", (profile,))
    return sides


def divergence(ahead: Profile, behind: Profile, epsilons: np.ndarray) -> np.ndarray:
    """Of the direction `ahead` at any real epsilons: delta(-e) = 1 - exp(-e) + exp(-e) times the other's delta(e)."""
    deltas, below = np.empty(len(epsilons)), epsilons < 0
    deltas[~below] = ahead.delta(epsilons[~below])
    shrunk = np.exp(epsilons[below])  # 0 at -infinity, where the divergence is 1
    deltas[below] = shrunk * behind.delta(np.minimum(-epsilons[below], FARTHEST)) - np.expm1(epsilons[below])
    return deltas


def curves_by_direction(profile: Profile) -> tuple[Curve, ...]:
    """The curve of each direction; one, the larger everywhere, if they are not known apart."""
    sides = directions_of(profile)
    return tuple(partial(divergence, side, sides[index - 1]) for index, side in enumerate(sides))


def invert_profile(profile: Any, delta: float) -> float:
    """The least epsilon >= 0 with delta at most `delta`, rounded up to `_UNIT`, or infinity; ArithmeticError at nan."""

    def delta_at(index: int) -> float:
        value = float(profile.delta(np.array([index * _UNIT]))[0])
        if math.isnan(value):  # bounds nothing
            raise ArithmeticError(f"Expected delta={value} of {type(profile).__name__} to be a number.")
        return value

    most, unit = round(_LARGEST_EPSILON / _UNIT), round(1 / _UNIT)
    index = first_within(delta_at, delta, low=-1, high=most, start=unit, stride=0.3 * unit)
    return math.inf if index is None else index * _UNIT


def first_within(
    price: Callable[[int], float], target: float, low: int, high: int, start: int, stride: float
) -> int | None:
    """The least whole number in (low, high] with a price of at most `target`; None if the price at `high` is above.

    *Guarantee*: the price at the number before is above `target`, unless that is `low`: it is the least one if prices
    never rise. `start`, and the `stride` in which a price is expected to fall by e-fold, change its speed alone:
    steps grow until there are both ends; then come secants of the price's logarithm, farther each time that the same
    end moves, which is a tenth of the evaluations of a bisection.
    """
    price = lru_cache(maxsize=None)(price)
    bad, good, guess, step, moved, last = low, high, start, 0, 0, None
    here = there = (start, 0.0)
    while good - bad > 1:
        guess = min(max(guess, bad + 1), good - 1)
        fits = price(guess) <= target
        bad, good = (bad, guess) if fits else (guess, good)
        moved = moved + 1 if fits is last else 0
        last = fits
        here, there = (guess, math.log(price(guess) / target) if price(guess) > 0 else -math.inf), here
        if bad == low or good == high:
            step = max(4 * step, math.ceil(stride * min(1.0, abs(here[1]))), 1)
            guess += -step if fits else step
        elif math.isfinite(fall := here[1] - there[1]) and fall != 0:
            root = here[0] + (there[0] - here[0]) * here[1] / fall
            guess = math.ceil(root) + (1 - 2**moved if fits else 2**moved - 1)
        else:
            guess = (bad + good) // 2
    return good if good < high or price(high) <= target else None


@dataclass(frozen=True, kw_only=True)
class Direction(Profile):
    """One direction of a dominating pair; `reach` is the largest loss within `REACH` standard deviations of noise."""

    curve: Curve
    reach: float

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """The curve, rounded up."""
        return np.asarray(self.curve(np.asarray(epsilons, dtype=float)) * (1 + CLOSED_FORM))


def poisson_step(rate: float, noise: float) -> tuple[Direction, ...]:
    """A Gaussian step on a Poisson sample, with the record against without it, and the opposite; one if alike.

    *Source*: Zhu, Dong, Wang 2022 (Optimal Accounting of Differential Privacy via Characteristic Function), Theorem 11.
    """
    mu = 1 / noise
    reach = mu**2 / 2 + REACH * mu
    if rate == 1:
        return (Direction(curve=GaussianProfile(mu=mu).delta, reach=reach),)
    absent, sampled = math.log1p(-rate), math.log(rate)
    most, least = (float(np.logaddexp(absent, sampled + sign * reach)) for sign in (1, -1))
    removed = Direction(curve=partial(_removed_record, rate, noise), reach=most)
    return removed, Direction(curve=partial(_added_record, rate, noise), reach=-least)


def _removed_record(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    least = math.log1p(-rate)
    above = np.maximum(epsilons, np.nextafter(least, 0))
    inner = above + np.log(-np.expm1(least - above)) - math.log(rate)  # ln((exp(epsilon) - 1 + q) / q)
    deltas = rate * GaussianProfile(mu=1 / noise).delta(inner)
    return np.where(epsilons > least, deltas, -np.expm1(np.minimum(epsilons, least)))


def _added_record(rate: float, noise: float, epsilons: np.ndarray) -> np.ndarray:
    most = -math.log1p(-rate)
    below = np.minimum(epsilons, np.nextafter(most, 0))
    weight = -np.expm1(below - most)
    inner = below + math.log(rate) - np.log(weight)
    return np.where(epsilons < most, weight * GaussianProfile(mu=1 / noise).delta(inner), 0.0)


def log_ratio_of_numbers(numbers: int, reach: float, tail: float) -> float:
    """The smaller of two x for so many rounded numbers: for d = 0, or for d = `tail` * exp(-`reach`)."""
    every = numbers * LOG_RATIO
    return min(every, LOG_RATIO * math.sqrt(2 * numbers * (reach - math.log(tail))) + every * math.expm1(LOG_RATIO))


def epsilon_with_rounding(numbers: int, delta: float, epsilon_at: Callable[[float], float]) -> float:
    """2 x + epsilon_at(the delta that leaves room), `epsilon_at` being of exact noise; infinity where none is left."""
    if not numbers and delta > 0:
        return epsilon_at(delta)
    for reach in REACHES if delta > 0 else ():
        x = log_ratio_of_numbers(numbers, reach, SHARE * delta)
        left = (1 - 2 * SHARE) * delta * math.exp(-x)
        if left > 0 and (epsilon := rounded_up(2 * x + epsilon_at(left))) <= reach:
            return epsilon
    return math.inf


@dataclass(frozen=True)
class _Rounded(Profile):
    ahead: Profile
    behind: Profile
    numbers: int

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        ratios = np.array([log_ratio_of_numbers(self.numbers, reach, TAIL) for reach in REACHES])
        x = ratios[np.searchsorted(REACHES, epsilons)]
        curve = divergence(self.ahead, self.behind, epsilons - 2 * x)
        return np.asarray(np.minimum(1.0, np.exp(x) * curve + 2 * TAIL))

    def epsilon(self, delta: float) -> float:
        return epsilon_with_rounding(self.numbers, delta, self.ahead.epsilon)


def rounded_profile(exact: Profile, numbers: int) -> TwoSided:
    """Of a mechanism with so many rounded noisy numbers, whose profile under exact noise is known."""
    sides = directions_of(exact)
    return TwoSided(directions=tuple(_Rounded(one, sides[index - 1], numbers) for index, one in enumerate(sides)))
