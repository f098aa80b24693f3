"""The envelope bound: the privacy profile of the best of a random number of tries, for any law of that number.

A search releases the best of K independent tries; K is secret, with generating function f. One try has the laws Q and
Q' on neighbouring data sets, the privacy profile delta_Q, and the trade-off curve T(u) = sup {Q(S): Q'(S) <= u} = inf
over e of (exp(e) u + delta_Q(e)). For every e >= 0, and the larger of both directions,

    delta(e) <= sum_i D_i delta_Q(e + ln x_i)  with  h(x) = sup over u of (x f'(T(u)) - f'(u))_+ = sum_i D_i (x - x_i)_+

*Proof.* Break ties by an independent uniform number, which costs nothing once it is forgotten, so that scores have
densities. Let q be the density of one try at the output y, Q(<= y) the probability of a score of at most that of y, L =
q / q' and u = Q'(<= y). Some try gives y and all others score less, so the winner has the density q f'(Q(<= y)) at y.
The outputs that score at most as much as y are a test, so Q(<= y) <= T(u). As f' has no negative coefficient, it rises:

    q f'(Q(<= y)) - exp(e) q' f'(Q'(<= y)) <= q' (L f'(T(u)) - exp(e) f'(u)) <= q' exp(e) h(exp(-e) L).

The integral of the positive part of the left side is the winners' divergence, so delta(e) <= exp(e) E_Q'[h(exp(-e) L)].
With f'(T) taken at the upper ends of finitely many cells of u and f'(u) at the lower, h is the maximum of 0 and affine
functions that rise and are at most 0 at 0: a sum of ramps with D_i > 0. Each contributes D_i E_Q'[(L - exp(e) x_i)_+] =
D_i delta_Q(e + ln x_i), and a mass with L = infinity f'(1) = E[K] times itself. The output "no try" is equally likely
under both, and costs nothing at e >= 0. A dominating pair may stand for (Q, Q'): the bound rises with delta_Q and T.
Any finite grid of e bounds T from above, and every x_i is lowered by more than its rounding error. QED.

*Every point once* (`EachPoint`). The number K of tries is public, and try i has its own point, hence laws Q_i and Q_i',
whose profiles and trade-off curves are at most delta_Q and T. The bound above holds for f(x) = x^K, with T replaced by
a curve T* above it whose logarithm is concave in ln u. *Proof.* Let the order of the grid break ties, and let u_j =
Q_j'(try j is worse than y) at the output y of try i. The winner has the density q_i(y) times the product over j other
than i of Q_j(try j is worse than y), of at most T(u_j) <= T*(u_j) each. By concavity the product is at most T*(u)^(K -
1), where u is the geometric mean of the u_j, whose product is u^(K - 1). So the difference of densities is at most q_i'
(L T*(u)^(K - 1) - exp(e) u^(K - 1)), and the rest is as above, with 1 / K of f' for each i. No such T* is below 1 if
T(0) > 0, so u_j below some u_0 (3e-33) are left out: outputs of so low a rank have a probability of at most T(u_0) for
each try, which adds K T(u_0) to delta. QED. `tests/accounting/accountants/test_oracles.py` seeks counterexamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import expit

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import EachPoint, Tries
from dpsweep.accounting.profiles import privacy_profiles as profiles
from dpsweep.accounting.profiles.privacy_profiles import FARTHEST, SMALLEST_DELTA, Curve, Profile

CELLS, LOGITS = 300_000, (-75.0, 45.0)  # the finest cells of u, equal in the logit of u
STRIDE = 32  # cells between two at which the growth of f' is looked at; between them it counts as a line
STEP = 2e-4  # growth of ln f'(T(u)) + ln f'(u) in a cell: the relative loss of an x_i, so about that of epsilon
SPREAD, SPREAD_DELTA, FINEST = 0.2, 1e-6, 8  # below that epsilon at that delta, cells are finer: their cost is absolute
NO_SLOPE = 1e-40  # smaller slopes are one cell: they add less than this to a divergence
LINES = 6000  # points of the grid of e >= 0 for T; that of negative e mirrors it
ANCHORS = 300  # at more epsilons, delta is interpolated linearly in exp(epsilon)
ARGUMENT, VALUE, LOG = 1e-14, 1e-10, 1e-11  # margins for the rounding of f's arguments, f' itself, and a curve's log
FLAT = 1.01  # a curve at most so many times its value at `FARTHEST` hardly falls any more
FEW_RUNS = 4  # tries whose trade-off curves are kept: .18 s of the .21 s of a price, and lists price one with many laws
_UNIT, _CHUNK = 2.0**-50, 1 << 20


@dataclass(frozen=True, eq=False)
class BestOf(Profile):
    """The best of `tries` runs with the profile `inner`; see `profile_of_best_try`."""

    inner: Profile
    tries: Tries

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """By chords if many: above the true profile, which is convex, though not always above the bound itself."""
        points = np.asarray(epsilons, dtype=float)
        if len(points) <= ANCHORS:
            return self._bounds(points)
        anchors = np.linspace(float(points.min()), float(points.max()), ANCHORS)
        values, step = self._bounds(anchors), float(anchors[1] - anchors[0])
        before = np.clip(((points - anchors[0]) / step).astype(np.int64), 0, ANCHORS - 2)
        share = np.clip(np.expm1(points - anchors[before]) / math.expm1(step), 0.0, 1.0)
        return np.asarray(values[before] * (1 - share) + values[before + 1] * share)

    def epsilon(self, delta: float) -> float:
        """Raises `UnsupportedEvent` where `delta` per try is below `SMALLEST_DELTA`."""
        if delta < SMALLEST_DELTA * self.tries.mean:
            raise UnsupportedEvent(
                f"PLD is not safe at delta={delta}: delta / tries is below {SMALLEST_DELTA}; use RDP."
            )
        return profiles.invert_profile(self, delta)

    def _bounds(self, points: np.ndarray) -> np.ndarray:
        sums = []
        for curve, weights, shifts, left_out in self._ramps:
            parts = np.array_split(points, 1 + len(points) * len(weights) // _CHUNK)
            moved = [curve((part[:, None] + shifts).ravel()).reshape(-1, len(shifts)) @ weights for part in parts]
            sums.append(np.concatenate(moved) + left_out)
        return np.asarray(np.minimum(1.0, np.max(sums, axis=0) * (1 + VALUE)))

    @cached_property
    def _ramps(self) -> list[tuple[Curve, np.ndarray, np.ndarray, float]]:
        """For each direction its curve, the D_i, the ln x_i, and what is left out: some run's rank below all cells."""
        ramps, count = [], self.tries.count if isinstance(self.tries, EachPoint) else 0
        inner: Any = self.inner  # a value, as every profile
        for curve, tradeoff in curves_and_tradeoffs(inner):
            bound = log_concave(tradeoff) if count else tradeoff
            finer = 1 + int((curve(SPREAD / np.arange(2, FINEST + 1)) < SPREAD_DELTA).sum())
            slopes, offsets = slopes_of_cells(self.tries, cells_of_equal_growth(self.tries, tradeoff, finer), bound)
            hull = lower_hull_indices(slopes, offsets)
            weights, gaps = np.diff(slopes[hull]), np.diff(offsets[hull])
            lowered = np.maximum(0.0, gaps - _UNIT * (offsets[hull][1:] + offsets[hull][:-1])) / weights
            with np.errstate(divide="ignore"):
                shifts = np.log(lowered) - VALUE
            ramps.append((curve, weights, shifts, count * float(tradeoff(expit(np.array(LOGITS[:1])))[0])))
        return ramps


def profile_of_best_try(profile: Profile, tries: Tries) -> Profile:
    """The privacy profile of a search that releases the best of several tries.

    *Guarantee*: an upper bound at every epsilon >= 0, for both directions, if `profile` bounds one try, its score
    included, the tries are independent, and their number is secret. With `EachPoint` the number is public, and the
    tries may be unlike. *Source*: proved above; benchmarks/RESULTS.md compares it with the strongest known attack.
    """
    is_one_try = tries.mean == 1 and tries.probability_beyond(1) == 0
    return profile if is_one_try or profile == profiles.NOTHING else BestOf(profile, tries)


@lru_cache(maxsize=FEW_RUNS)
def curves_and_tradeoffs(profile: Profile) -> tuple[tuple[Curve, Curve], ...]:
    """By direction, with upper bounds on T."""
    return tuple((curve, tradeoff_curve(curve)) for curve in profiles.curves_by_direction(profile))


def tradeoff_curve(curve: Curve) -> Curve:
    """Upper bounds on T(u), as each tangent is: of those with slopes exp(e) on a grid, the least of three near u."""
    reach, infinite = 1.0, float(curve(np.array([FARTHEST]))[0])
    while reach < FARTHEST / 8 and float(curve(np.array([reach]))[0]) > SMALLEST_DELTA + FLAT * infinite:
        reach *= 1.25
    grid = np.linspace(reach, -reach, 2 * LINES + 1)
    slopes, heights = np.exp(grid), curve(grid)
    # from the steepest on: heights near 1, of the flattest, are equal but for rounding, and so is where they cross
    crossings = np.maximum.accumulate(np.diff(heights) / -np.diff(slopes))

    def upper_bounds(ends: np.ndarray) -> np.ndarray:
        near = np.searchsorted(crossings, ends)
        tops = np.ones(len(ends))
        for shift in (-1, 0, 1):
            line = np.clip(near + shift, 0, len(slopes) - 1)
            tops = np.minimum(tops, slopes[line] * ends + heights[line])
        return np.minimum(1.0, tops * (1 + ARGUMENT))

    return upper_bounds


def log_concave(tradeoff: Curve) -> Curve:
    """The smallest log-concave curve above a step function above T, which has the finest cells."""
    ends = expit(np.linspace(*LOGITS, CELLS))
    x = np.append(np.log(ends[:-1]), 0.0)  # a cell's height, at its lower end
    y = np.append(np.log(np.maximum(tradeoff(ends), np.finfo(float).tiny))[1:], 0.0)
    hull = lower_hull_indices(x, -y)
    return lambda u: np.minimum(1.0, np.exp(np.interp(np.log(u), x[hull], y[hull]) + LOG))


def cells_of_equal_growth(tries: Tries, tradeoff: Curve, finer: int) -> np.ndarray:
    """The upper ends of cells of u, ascending to 1, with a growth of about `STEP` / `finer`; any cells give a bound."""
    slope, cells = tries.generating_function_slope, finer * CELLS
    coarse = np.append(np.arange(0, cells - 1, finer * STRIDE), cells - 1)
    ends = expit(np.interp(coarse, [0, cells - 1], LOGITS))
    growth = sum(np.log(np.maximum(slope(u), NO_SLOPE)) for u in (tradeoff(ends), ends))
    steps = np.append(0.0, np.cumsum(np.clip(np.diff(growth) * finer / STEP, 0, np.diff(coarse))))
    places = np.unique(np.interp(np.arange(1, math.ceil(steps[-1])), steps, coarse).astype(np.int64))
    return np.append(expit(np.interp(places, [0, cells - 1], LOGITS)), 1.0)


def slopes_of_cells(tries: Tries, ends: np.ndarray, bound: Curve) -> tuple[np.ndarray, np.ndarray]:
    """(f'(T(u)), f'(u)) at the upper and lower ends of cells of u, after the line 0; both ascend."""
    tops = np.maximum.accumulate(tries.generating_function_slope(bound(ends))) * (1 + VALUE)
    lows = tries.generating_function_slope(np.append(0.0, ends[:-1] * (1 - ARGUMENT))) * (1 - VALUE)
    return np.append(0.0, tops), np.append(0.0, lows)


def lower_hull_indices(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of points with ascending x, from the first to the last, by isotonic regression of the slopes; shape [m].

    A vertex too many only raises the sum of ramps; one too few is off its chord by far less than `VALUE` and `LOG`.
    """
    from scipy.optimize import isotonic_regression  # a tenth of `import torch`, for searches that hide alone

    points = np.concatenate([[0], 1 + np.flatnonzero(x[1:] > np.maximum.accumulate(x)[:-1])])
    width = np.diff(x[points])
    return np.asarray(points[isotonic_regression(np.diff(y[points]) / width, weights=width).blocks])
