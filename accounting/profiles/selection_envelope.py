"""Privacy profile of the best of a random number of tries, for any law of that number: the envelope bound.

A search makes K independent tries and releases the best one; K is secret, with generating function f. One try has the
distributions Q and Q' on neighbouring data sets, the privacy profile delta_Q, and the trade-off curve
T(u) = sup {Q(S): Q'(S) <= u} = inf over e of (exp(e) u + delta_Q(e)). For every e >= 0:

    delta(e) <= sum_i D_i delta_Q(e + ln x_i),

where h(x) = sup over u of (x f'(T(u)) - f'(u))_+ = sum_i D_i (x - x_i)_+ is convex and piecewise linear, with D_i >= 0.
Each direction has its own curve; the larger of both results counts.

*Proof.* Break ties between tries by an independent uniform number, so that scores have densities; forgetting the number
afterwards costs nothing. Let q be the density of one try at the output y, and Q(<= y) the probability of a score of at
most that of y. The winner has the density q(y) f'(Q(<= y)) at y: some try gives y, and all others score less. Let u =
Q'(<= y). The outputs that score at most as much as y are a test, so Q(<= y) <= T(u). All coefficients of f' are
non-negative, so f' rises, and

    q f'(Q(<= y)) - exp(e) q' f'(Q'(<= y)) <= q' (L f'(T(u)) - exp(e) f'(u)) <= q' exp(e) h(exp(-e) L),

with h(x) = sup over u of (x f'(T(u)) - f'(u))_+ . The integral of the positive part of the left side is the
hockey-stick divergence of the winners, so delta(e) <= exp(e) E_Q'[h(exp(-e) L)]. As the supremum of affine functions of
x with non-negative slopes and with h(0) = 0, h is convex and non-decreasing; over finitely many cells of u, with f'(T)
taken at the upper end of a cell and f'(u) at the lower, it is piecewise linear, and a sum of ramps D_i (x - x_i)_+ with
D_i > 0. Each ramp contributes D_i E_Q'[(L - exp(e) x_i)_+] = D_i delta_Q(e + ln x_i). A mass with L = infinity
contributes sum D_i = f'(1) = E[K] times itself, as the formula says. If K may be 0, the output "no try" has the same
probability under both data sets, and costs nothing at e >= 0. A dominating pair may stand for (Q, Q'): its delta_Q is
not smaller at any e, its T, which is inf over e of (exp(e) u + delta_Q(e)), is not smaller at any u, and h is
non-decreasing in both. QED.

*Every point once* (`BestOfEach`). The number K of tries is public, and try i has its own point, hence laws Q_i and Q_i'
of its own, whose profiles and trade-off curves are at most delta_Q and T. The bound above holds for f(x) = x^K, with T
replaced by a curve T* above it whose logarithm is concave in ln u. *Proof.* Let the order of the grid break ties. At
the output y of try i, let u_j = Q_j'(try j is worse than y). The winner has the density q_i(y) times the product over j
other than i of Q_j(try j is worse than y), and each factor is at most T(u_j) <= T*(u_j). The mean of concave functions
of the ln u_j is at most the function of their mean, so the product is at most T*(u)^(K - 1), where u is the geometric
mean of the u_j; the product of the u_j is u^(K - 1). So the difference of densities is at most q_i' (L T*(u)^(K - 1) -
exp(e) u^(K - 1)), and the rest of the proof is as above, with 1 / K of f' for each i. No such T* is below 1 if T(0) >
0, so the u_j below some u_0 are left out: a try has an output of so low a rank with probability at most T(u_0) under
Q_i, which adds K T(u_0) to delta (u_0 is 3e-33). QED. The runs are also a composition, and the smaller price counts.

`tests/accounting/accountants/test_oracles.py` searches for counterexamples.

Rounding is upwards. f'(T) is taken at the upper end of a cell of u, and f'(u) at its lower end; any finite grid of e
bounds T from above; every x_i is lowered by more than its rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import EachPoint, Tries
from dpsweep.accounting.notation import delta_text_rounded_down
from dpsweep.accounting.profiles.privacy_profiles import SMALLEST_DELTA, Nothing, Profile, invert_profile

CELLS = 300_000
"""Candidates for the ends of cells of u, uniform in the logit of u."""

LOGITS = (-75.0, 45.0)
STRIDE = 32
"""Cells from one at which the growth of f' is looked at to the next; between them it counts as a line."""

STEP = 2e-4
"""The growth of ln f'(T(u)) + ln f'(u) within a cell: the relative loss of an x_i, so about the loss of epsilon."""

SPREAD, FINEST = 0.2, 8
"""Where the epsilon of one try is below `SPREAD`, cells are finer in proportion, by at most this factor.

A cell costs an absolute part of epsilon.
"""

SPREAD_DELTA = 1e-6
"""The delta of that epsilon."""

NO_SLOPE = 1e-40
"""Smaller slopes are one cell: they add less than this to a divergence."""

LINES = 6000
"""Points of the grid of e >= 0 for T; the grid of negative e mirrors it."""

ANCHORS = 300
"""At more epsilons than this, delta is interpolated linearly in exp(epsilon).

A chord between two upper bounds is above the true profile, which is convex there. It may lie below the bound itself,
which is not convex where it reaches 1.
"""

ARGUMENT = 1e-14
"""Relative margin for the rounding of arguments of f'; its own rounding is below `VALUE`."""

VALUE = 1e-10

FEW = 0.99
"""Points of a hull are left out all at once, unless more than this share of them stay."""

LOG = 1e-11
"""Margin for the rounding of the logarithm of a curve."""

FARTHEST = 5000.0
"""Divergences at larger epsilons are bounded by the one here."""

FLAT = 1.01
"""A curve that is at most so many times the probability of an infinite loss hardly falls any more."""

FEW_RUNS = 4
"""The number of profiles of one try whose curves are cached, because a run is priced with several laws of tries."""

_UNIT = 2.0**-50
_LEAST = 1e-300

Curve = Callable[[np.ndarray], np.ndarray]
"""The divergence of one distribution from the other at epsilons of any sign, shape [n]; or an upper bound."""

_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class BestOf:
    """The profile of the best of `tries` runs with the profile `inner`; see `profile_of_best_try`."""

    inner: Profile
    tries: Tries

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]."""
        points = np.asarray(epsilons, dtype=float)
        if len(points) <= ANCHORS:
            return self._delta_without_interpolation(points)
        anchors = np.linspace(float(points.min()), float(points.max()), ANCHORS)
        values, step = self._delta_without_interpolation(anchors), float(anchors[1] - anchors[0])
        before = np.clip(((points - anchors[0]) / step).astype(np.int64), 0, ANCHORS - 2)
        share = np.clip(np.expm1(points - anchors[before]) / math.expm1(step), 0.0, 1.0)
        return np.asarray(values[before] * (1 - share) + values[before + 1] * share)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that the bound certifies at `delta`, rounded up."""
        if delta < SMALLEST_DELTA * self.tries.mean:
            raise UnsupportedEvent(
                f"PLD is not safe at delta={delta_text_rounded_down(delta)} for a search of {self.tries.mean:.4g} "
                "tries on average: "
                f"delta / tries is below {delta_text_rounded_down(SMALLEST_DELTA)}; use RDP."
            )
        return invert_profile(self, delta)

    def _delta_without_interpolation(self, points: np.ndarray) -> np.ndarray:
        bounds = np.max(
            [self._divergence_in_one_direction(*terms, points) for terms in self._curve_weights_shifts_by_direction],
            axis=0,
        )
        return np.asarray(np.minimum(1.0, bounds * (1 + VALUE)))

    def _divergence_in_one_direction(
        self, curve: Curve, weights: np.ndarray, shifts: np.ndarray, left_out: float, points: np.ndarray
    ) -> np.ndarray:
        rows = max(1, _CHUNK // len(weights))
        bounds = np.full(len(points), left_out)
        for first in range(0, len(points), rows):
            part = points[first : first + rows]
            bounds[first : first + rows] += curve((part[:, None] + shifts).ravel()).reshape(len(part), -1) @ weights
        return bounds

    @cached_property
    def _curve_weights_shifts_by_direction(self) -> list[tuple[Curve, np.ndarray, np.ndarray, float]]:
        """For each direction its curve, the weights D_i and the shifts ln x_i, rounded such that the sum only grows.

        The last is the divergence that the sum leaves out.
        """
        inner: Any = self.inner  # a value, as every profile
        return [
            (curve, *self._hockey_stick_weights_and_shifts(curve), self._omitted_divergence(curve))
            for curve in curves_by_direction(inner)
        ]

    def _hockey_stick_weights_and_shifts(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        slopes, offsets = self._generating_slopes_at_cell_ends(curve)
        hull = lower_hull_indices(slopes, offsets)
        weights, gaps = np.diff(slopes[hull]), np.diff(offsets[hull])
        lowered = np.maximum(0.0, gaps - _UNIT * (offsets[hull][1:] + offsets[hull][:-1])) / weights
        with np.errstate(divide="ignore"):
            shifts = np.log(lowered) - VALUE
        return weights, shifts

    def _generating_slopes_at_cell_ends(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        """(f'(T(u)), f'(u)) at the upper and lower ends of cells of u, after the line 0; both ascend."""
        finer = _refinement_factor(curve)
        ends, tangents = candidate_cell_ends(finer * CELLS), tradeoff_tangents_of_curve(curve, LINES)

        def log_growth(cells: np.ndarray) -> np.ndarray:
            both = (
                self._upper_bounds_on_generating_slope(tangents.upper_bounds_at(ends[cells])),
                generating_slopes_at(cells),
            )
            return np.asarray(sum(np.log(np.maximum(values, NO_SLOPE)) for values in both))

        def generating_slopes_at(cells: np.ndarray) -> np.ndarray:
            return self.tries.generating_function_slope(ends[cells] * (1 - ARGUMENT)) * (1 - VALUE)

        kept = cells_of_equal_growth(log_growth, finer)
        lowest = self.tries.generating_function_slope(np.zeros(1)) * (1 - VALUE)
        slopes = np.append(
            0.0, self._upper_bounds_on_generating_slope(self._upper_bounds_on_tradeoff(curve, ends[kept]))
        )
        return slopes, np.concatenate([[0.0], lowest, generating_slopes_at(kept[:-1])])

    def _upper_bounds_on_generating_slope(self, tops: np.ndarray) -> np.ndarray:
        """Upper bounds on f' at these values of T, which ascend but for rounding."""
        return np.asarray(np.maximum.accumulate(self.tries.generating_function_slope(tops)) * (1 + VALUE))

    def _upper_bounds_on_tradeoff(self, curve: Curve, ends: np.ndarray) -> np.ndarray:
        """Upper bounds on T at ascending ends of cells, the last of which is 1."""
        return tradeoff_tangents_of_curve(curve, LINES).upper_bounds_at(ends)

    def _omitted_divergence(self, curve: Curve) -> float:
        """The divergence that the sum leaves out: none."""
        return 0.0


@dataclass(frozen=True, eq=False)
class BestOfEach(BestOf):
    """The profile of the best of runs of unlike points, one run of each, of which `inner` bounds every one.

    A run outranks all others, whose ranks u differ. In ln u, the product of their T(u) is at most that of one
    log-concave curve above T at the mean rank. Ranks below the first cell are left out of the curve, which would
    otherwise be 1 everywhere; a run has such a rank with probability T there.
    """

    def _upper_bounds_on_tradeoff(self, curve: Curve, ends: np.ndarray) -> np.ndarray:
        """The smallest log-concave curve above a step function above T, which has all candidates as ends."""
        cells = candidate_cell_ends(CELLS)
        places, heights = (
            np.log(cells),
            np.log(np.maximum(tradeoff_tangents_of_curve(curve, LINES).upper_bounds_at(cells), _LEAST)),
        )
        x, y = np.append(places[:-1], 0.0), np.append(heights[1:], 0.0)  # a cell's height, at its lower end
        hull = lower_hull_indices(x, -y)
        return np.append(np.minimum(1.0, np.exp(np.interp(np.log(ends), x[hull], y[hull]) + LOG)[:-1]), 1.0)

    def _omitted_divergence(self, curve: Curve) -> float:
        """The probability that some run has a rank below the first cell."""
        first = np.array([1 / (1 + math.exp(-LOGITS[0]))])
        return float(self.tries.mean * tradeoff_tangents_of_curve(curve, LINES).upper_bounds_at(first)[0])


def profile_of_best_try(profile: Profile, tries: Tries) -> Profile:
    """The privacy profile of a search that releases the best of several tries.

    *Guarantee*: an upper bound at every epsilon >= 0, for both directions, if `profile` bounds one try, its score
    included, the tries are independent, and their number is secret. With `EachPoint` the number is public, and the
    tries may be unlike. benchmarks/RESULTS.md compares it with the strongest known attack.
    *Source*: the envelope bound, proved above.

    >>> from dpsweep.accounting import Adjacency, NegativeBinomial, Pld, poisson_gaussian, repeat
    >>> run = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000)
    >>> profile = Pld().profile(run, Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(profile_of_best_try(profile, NegativeBinomial.with_mean(eta=1, mean=35)).epsilon(1e-5), 2)
    5.56
    """
    if (tries.mean == 1 and tries.probability_beyond(1) == 0) or isinstance(profile, Nothing):
        return profile
    return (BestOfEach if isinstance(tries, EachPoint) else BestOf)(inner=profile, tries=tries)


FARTHEST_PAIR = 6.0
"""The largest epsilon at which the delta of a search is asked for its total variation."""


def total_variation_of_profile(profile: Profile) -> float:
    """An upper bound on the total variation between neighbours: delta at epsilon 0, where a bound is tight there.

    Each direction bounds the total variation of both. The bound on a search is not tight at 0, but its delta at larger
    epsilons bounds the total variation too.
    *Source*: Kairouz, Oh, Viswanath 2015 (The Composition Theorem for DP), Theorem 3.4: it is at most (exp(epsilon) - 1
    + 2 delta) / (exp(epsilon) + 1).
    """
    one_direction: Any = getattr(profile, "directions", (profile,))[0]

    def bounds_at(epsilons: np.ndarray) -> np.ndarray:
        return np.asarray((np.expm1(epsilons) + 2 * one_direction.delta(epsilons)) / (np.exp(epsilons) + 1))

    first, second = bounds_at(np.array([0.0, 1.0]))
    least = first if first < second else bounds_at(np.linspace(0.0, FARTHEST_PAIR, 13)).min()
    return float(min(1.0, least * (1 + VALUE)))


@lru_cache(maxsize=FEW_RUNS)
def curves_by_direction(profile: Profile) -> tuple[Curve, ...]:
    """The curve of each direction; one, the larger at every epsilon, if the profile has no directions.

    Below 0, the divergence of Q from Q' follows from that of Q' from Q: delta(-e) = 1 - exp(-e) + exp(-e) delta'(e).
    """
    directions = getattr(profile, "directions", (profile,))
    ahead, behind = directions[0].delta, directions[-1].delta
    return (_curve_for_epsilons_of_any_sign(ahead, behind), _curve_for_epsilons_of_any_sign(behind, ahead))[
        : len(directions)
    ]


def _curve_for_epsilons_of_any_sign(ahead: Curve, behind: Curve) -> Curve:
    def divergence_at(epsilons: np.ndarray) -> np.ndarray:
        deltas, below = np.empty(len(epsilons)), epsilons < 0
        deltas[~below] = ahead(epsilons[~below])
        shrunk = np.exp(epsilons[below])  # 0 at -infinity, where the divergence is 1
        deltas[below] = shrunk * behind(np.minimum(-epsilons[below], FARTHEST)) - np.expm1(epsilons[below])
        return deltas

    return divergence_at


@lru_cache(maxsize=2)
def candidate_cell_ends(cells: int) -> np.ndarray:
    """Candidates for the ends of cells of u, ascending to 1, shape [cells]; not to be written to."""
    logits = np.linspace(*LOGITS, cells)
    ends = np.append(1 / (1 + np.exp(-logits[:-1])), 1.0)
    ends.setflags(write=False)
    return ends


def _refinement_factor(curve: Curve) -> int:
    """How many times finer than usual the cells are for this curve of one try."""
    fine = [finer for finer in range(2, FINEST + 1) if curve(np.array([SPREAD / finer]))[0] < SPREAD_DELTA]
    return max(fine, default=1)


def cells_of_equal_growth(growth: Callable[[np.ndarray], np.ndarray], finer: int) -> np.ndarray:
    """Cells between which `growth` rises by about `STEP` / `finer`, and the last cell, ascending; shape [m].

    `growth` ascends with the numbers of cells; between every `STRIDE`-th one it counts as a line. Any choice of cells
    bounds the same divergence from above, so the line matters for tightness only.
    """
    cells = finer * CELLS
    coarse = np.append(np.arange(0, cells - 1, finer * STRIDE), cells - 1)
    steps = np.append(0.0, np.cumsum(np.minimum(np.diff(growth(coarse)) * finer / STEP, np.diff(coarse))))
    places = np.append(np.interp(np.arange(1, math.ceil(steps[-1])), steps, coarse).astype(np.int64), cells - 1)
    return places[np.diff(places, prepend=-1) > 0]


@dataclass(frozen=True, eq=False)
class Tangents:
    """Tangents of T of slopes exp(e), over a grid of e of any sign: their slopes, their heights at u = 0, both [n].

    `crossings` are the u at which two neighbours cross, shape [n - 1], descending.
    """

    slopes: np.ndarray
    heights: np.ndarray
    crossings: np.ndarray

    def upper_bounds_at(self, ends: np.ndarray) -> np.ndarray:
        """Upper bounds on T at `ends`, rounding included, shape [m].

        Each tangent alone is an upper bound, so the choice of the tangent near each end matters for tightness only.
        """
        nearest = np.searchsorted(-self.crossings, -ends, side="right")
        tops = np.ones(len(ends))
        for shift in (-1, 0, 1):
            line = np.clip(nearest + shift, 0, len(self.slopes) - 1)
            tops = np.minimum(tops, self.slopes[line] * ends + self.heights[line])
        return np.minimum(1.0, tops * (1 + ARGUMENT))


@lru_cache(maxsize=2 * FEW_RUNS)
def tradeoff_tangents_of_curve(curve: Curve, lines: int) -> Tangents:
    """The tangents over a grid of `lines` e >= 0, and as many below, out to where the curve is negligible."""
    reach, infinite = 1.0, float(curve(np.array([FARTHEST]))[0])
    while reach < FARTHEST / 8 and float(curve(np.array([reach]))[0]) > SMALLEST_DELTA + FLAT * infinite:
        reach *= 1.25
    grid = np.linspace(-reach, reach, 2 * lines + 1)
    slopes, heights = np.exp(grid), curve(grid)
    crossings = (heights[:-1] - heights[1:]) / np.diff(slopes)
    # from the steepest on: heights near 1, of the flattest, are equal but for rounding, and so is where they cross
    crossings = np.maximum.accumulate(crossings[::-1])[::-1]
    return Tangents(slopes=slopes, heights=heights, crossings=crossings)


def lower_hull_indices(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the lower convex hull of points with ascending x, from the first to the last point; shape [m].

    A point on or above the line between two others is no vertex, so all such points may go at once. Of points with
    equal x the first one stays.
    """
    hull = np.concatenate([[0], 1 + np.flatnonzero(x[1:] > np.maximum.accumulate(x)[:-1])])
    while True:
        width, height = np.diff(x[hull]), np.diff(y[hull])
        convex = np.concatenate([[True], height[:-1] * width[1:] < height[1:] * width[:-1], [True]])
        if convex.mean() > FEW:
            return hull if convex.all() else _lower_hull_by_monotone_chain(x, y, hull[convex])
        hull = hull[convex]


def _lower_hull_by_monotone_chain(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The same by Andrew's monotone chain, which needs one pass where those above would need thousands."""
    xs, ys, hull = x[points].tolist(), y[points].tolist(), [0]
    for new in range(1, len(points)):
        while len(hull) > 1:
            last, before = hull[-1], hull[-2]
            if (ys[last] - ys[before]) * (xs[new] - xs[last]) < (ys[new] - ys[last]) * (xs[last] - xs[before]):
                break
            hull.pop()
        hull.append(new)
    return points[hull]


def clear_cached_curves() -> None:
    """Frees the curves that are kept for further laws of tries."""
    for kept in (curves_by_direction, tradeoff_tangents_of_curve, candidate_cell_ends):
        kept.cache_clear()
