"""The privacy profile of an epoch in which every record takes part in one of its steps, drawn for each record.

With t steps and the noise multiplier s, the pair (P, Q) dominates: under Q all t numbers are N(0, s^2), and under P 1
is added to one of them, drawn uniformly. Under Q the likelihood ratio X = P / Q is the mean of t independent lognormal
Y with mean 1, ln Y ~ N(-1 / (2 s^2), 1 / s^2). The divergences are expectations of convex functions of X under Q:

    delta(e) of P from Q = E (X - exp(e))+        delta(e) of Q from P = E (1 - exp(e) X)+

*Guarantee*: upper bounds. A law that is larger in the convex order, with the same mean but more spread out, has larger
expectations of both, and sums of independent variables keep this order. So each law here is rounded by spreading: the
mass between two points exp(k h) of a grid goes to these points so that its mean stays, and what is beyond the largest
point leaves its mass there and the rest of its mean at infinity, where it is an infinite loss under P.

*Source*: Feldman and Shenfeld 2025 (Privacy amplification by random allocation) for the dominating pair; Shaked and
Shanthikumar 2007 (Stochastic Orders), Theorem 3.A.12, for the convex order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dpsweep.accounting.profiles.privacy_profiles import EVERYTHING, Direction, GaussianProfile, Profile, TwoSided

SMALLEST_NOISE = 0.1  # below, an epoch is hardly private, and its bound is that of a Gaussian mechanism
RELATIVE, SHIFT = 1e-9, 1e-10  # more than the relative errors of probabilities, and of X: losses move to the safe side
SPREAD, WIDEST = 0.001, 0.05
"""The square of the last grid step, relative to the variance of X: rounding adds at most a third of it to the variance,
and a tenth or two of a percent to epsilon. And the widest grid step, of ln Y."""
REACH, NEGLIGIBLE = 12.0, 1e-30
"""Standard deviations of ln Y that the grid covers on each side. Ends of a law of m Y with less mass than m^2 times
`NEGLIGIBLE` are spread, so that the points at which that mass then lies are spread again: laws stay narrow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GridLaw:
    """A law on the points exp(k h), for k from `first` on, with `masses`, and on 0; `lost` is its mean at infinity."""

    first: int
    masses: np.ndarray
    zero: float
    lost: float

    @property
    def end(self) -> int:
        """The k after the last."""
        return self.first + len(self.masses)

    def points(self, step: float) -> np.ndarray:
        """On a grid with this step h."""
        return np.asarray(np.exp(step * np.arange(self.first, self.end)))

    def on_finer_grid(self, factor: int) -> GridLaw:
        """Whose step is smaller by this factor."""
        masses = np.zeros(factor * (len(self.masses) - 1) + 1)
        masses[::factor] = self.masses
        return GridLaw(first=factor * self.first, masses=masses, zero=self.zero, lost=self.lost)

    def without_negligible_ends(self, step: float, summands: int) -> GridLaw:
        """A larger law in the convex order: ends of negligible mass, or of negligible mean above, are spread."""
        points, least = self.points(step), NEGLIGIBLE * summands**2
        means = self.masses * points
        low = int(np.searchsorted(np.cumsum(self.masses), least))
        high = len(points) - 1 - int(np.searchsorted(np.cumsum(means[::-1]), least * summands))
        masses, above = self.masses[low : high + 1].copy(), float(self.masses[high + 1 :].sum())
        moved = float(means[:low].sum()) / float(points[low])
        masses[0] += moved
        masses[-1] += above
        beyond = float(means[high + 1 :].sum()) - above * float(points[high])
        zero = self.zero + max(0.0, float(self.masses[:low].sum()) - moved)
        return GridLaw(first=self.first + low, masses=masses, zero=zero, lost=self.lost + max(0.0, beyond))


def _lognormal_law(noise_multiplier: float, step: float) -> GridLaw:
    mean, std = -1 / (2 * noise_multiplier**2), 1 / noise_multiplier
    first, last = math.floor((mean - REACH * std) / step), math.ceil((-mean + REACH * std) / step)
    logs = step * np.arange(first, last + 1)
    points = np.exp(logs)
    normal = (logs - mean) / std
    between, means = _normal_masses(normal), _normal_masses(normal - std)
    upper = np.clip((means - between * points[:-1]) / np.diff(points), 0.0, between)
    masses = np.zeros(len(points))
    masses[:-1] += between - upper
    masses[1:] += upper
    below, above = float(ndtr(normal[0])), float(ndtr(-normal[-1]))
    moved = min(below, float(ndtr(normal[0] - std)) / float(points[0]))
    masses[0] += moved
    masses[-1] += above
    lost = max(0.0, float(ndtr(std - normal[-1])) - above * float(points[-1]))
    return GridLaw(first=first, masses=masses, zero=below - moved, lost=lost)


def _normal_masses(ends: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(ends[:-1] > 0, -np.diff(ndtr(-ends)), np.diff(ndtr(ends))))


def _sum_of_independent(one: GridLaw, other: GridLaw, step: float, summands: int) -> GridLaw:
    """Spread over the grid; `summands` is the number of Y in the sum."""
    first = math.floor(np.logaddexp(one.first * step, other.first * step) / step)
    last = math.ceil(np.logaddexp(one.end * step, other.end * step) / step)
    sums = np.zeros(last + 2 - first)
    _add_sums_with_smaller_values(sums, first, one, other, step, least=0)
    _add_sums_with_smaller_values(sums, first, other, one, step, least=1)
    zero = one.zero * other.zero
    for law, weight in ((one, other.zero), (other, one.zero)):  # points below the least sum of two points are spread
        below = max(0, first - law.first)
        sums[max(0, law.first - first) : max(0, law.end - first)] += weight * law.masses[below:]
        alone = weight * law.masses[:below]
        moved = float(alone @ np.exp(step * np.arange(law.first - first, min(law.end, first) - first)))
        sums[0] += moved
        zero += float(alone.sum()) - moved
    law = GridLaw(first=first, masses=sums, zero=zero, lost=one.lost + other.lost)
    return law.without_negligible_ends(step, summands)


def _add_sums_with_smaller_values(
    sums: np.ndarray, first: int, one: GridLaw, other: GridLaw, step: float, *, least: int
) -> None:
    """Adds the mass of each sum of a point of `one` and a point of `other` that is `least` or more places below it.

    From `far` places on, what goes to the point after the larger one is linear in the smaller: these are added at once.
    """
    far = max(least, math.ceil(-math.log(math.expm1(step)) / step) + 1)
    for places in range(max(least, one.first - other.end + 1), min(far, one.end - other.first)):
        low, high = max(one.first, other.first + places), min(one.end, other.end + places)
        pairs = (
            one.masses[low - one.first : high - one.first]
            * (other.masses[low - places - other.first : high - places - other.first])
        )
        ratio = 1 + math.exp(-places * step)
        whole = math.floor(math.log(ratio) / step)
        upper = (ratio * math.exp(-whole * step) - 1) / math.expm1(step)
        start = low - first + whole
        sums[start : start + len(pairs)] += pairs * (1 - upper)
        sums[start + 1 : start + 1 + len(pairs)] += pairs * upper
    low = max(one.first, first, other.first + far)  # there is a smaller point so far below from here on
    if low < one.end:
        masses, points = one.masses[low - one.first :], one.points(step)[low - one.first :]
        many, value = (np.append(0.0, np.cumsum(part)) for part in (other.masses, other.masses * other.points(step)))
        smaller = np.minimum(np.arange(low, one.end) - far - other.first + 1, len(other.masses))
        upper_mass = masses * value[smaller] / (points * math.expm1(step))
        sums[low - first : one.end - first] += masses * many[smaller] - upper_mass
        sums[low - first + 1 : one.end - first + 1] += upper_mass


def _law_of_sum(steps: int, noise_multiplier: float) -> tuple[GridLaw, float]:
    """The law of the sum of `steps` independent Y, by doubling, and its grid's step.

    Rounding a sum of m of them adds to the variance of the mean as much as it adds to one of steps / m equal parts:
    a grid may be coarser by the square root of their number.
    """
    variance = math.expm1(1 / noise_multiplier**2) / steps
    finest = min(WIDEST, math.sqrt(SPREAD * variance))
    levels = steps.bit_length()
    coarser = [min(levels - 1 - level, 2 * int(math.log2(WIDEST / finest))) // 2 for level in range(levels)]
    grids = [finest * 2**power for power in coarser]
    law = _lognormal_law(noise_multiplier, grids[0]).without_negligible_ends(grids[0], 1)
    total = GridLaw(first=0, masses=np.zeros(1), zero=1.0, lost=0.0)  # of no Y
    for level, step in enumerate(grids):
        if level:
            law = _sum_of_independent(law, law, grids[level - 1], 2**level)
            factor = 2 ** (coarser[level - 1] - coarser[level])
            law, total = law.on_finer_grid(factor), total.on_finer_grid(factor)
        if steps >> level & 1:
            many = steps % 2 ** (level + 1)
            total = law if many == 2**level else _sum_of_independent(total, law, step, many)
    return total, grids[-1]


def profile_of_allocated_epoch(steps: int, noise_multiplier: float) -> Profile:
    """Without noise everything may be known."""
    if noise_multiplier == 0:
        return EVERYTHING
    if steps == 1 or noise_multiplier < SMALLEST_NOISE:
        return GaussianProfile(mu=1 / noise_multiplier)
    return TwoSided(directions=directions_of_allocated_epoch(steps, noise_multiplier))


@lru_cache(maxsize=64)
def directions_of_allocated_epoch(steps: int, noise_multiplier: float) -> tuple[Direction, Direction]:
    """Of P from Q, and of Q from P."""
    law, step = _law_of_sum(steps, noise_multiplier)
    logs = step * np.arange(law.first, law.end) - math.log(steps)
    masses, means = law.masses, law.masses * np.exp(logs)
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0), np.append(np.cumsum(means[::-1])[::-1], 0.0)
    below = np.append(0.0, np.cumsum(masses)) + law.zero, np.append(0.0, np.cumsum(means))
    farthest, deepest = max(0.0, float(logs[-1])) + step, max(0.0, -float(logs[0])) + step

    def ahead(epsilons: np.ndarray) -> np.ndarray:
        least = np.minimum(epsilons, farthest) - SHIFT
        place = np.searchsorted(logs, least, side="right")
        finite = np.maximum(0.0, above[1][place] - np.exp(least) * above[0][place])
        return np.asarray(law.lost / steps + finite * (1 + RELATIVE))

    def behind(epsilons: np.ndarray) -> np.ndarray:
        most = SHIFT - np.minimum(epsilons, deepest)
        place = np.searchsorted(logs, most, side="left")
        return np.asarray(np.maximum(0.0, below[0][place] - np.exp(-most) * below[1][place]) * (1 + RELATIVE))

    return Direction(curve=ahead, reach=farthest), Direction(curve=behind, reach=deepest)
