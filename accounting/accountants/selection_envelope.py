"""Privacy profile of the best of a random number of tries, for any law of that number: the envelope bound.

A search makes K independent tries and releases the best one; K is secret, with generating function f. One try has the
distributions Q and Q' on neighbouring data sets, the privacy profile delta_Q, and the trade-off curve
T(u) = sup {Q(S): Q'(S) <= u} = inf over e of (exp(e) u + delta_Q(e)). For every e >= 0:

    delta(e) <= sum_i D_i delta_Q(e + ln x_i),

where h(x) = sup over u of (x f'(T(u)) - f'(u))_+ = sum_i D_i (x - x_i)_+ is convex and piecewise linear, with D_i >= 0.
The proof is in docs/accounting.md; tests/accounting/accountants/test_oracles.py searches for counterexamples.

Rounding is upwards. f'(T) is taken at the upper end of a cell of u, and f'(u) at its lower end; any finite grid of e
bounds T from above; every x_i is lowered by more than its rounding error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsweep.accounting.accountants.privacy_profiles import SMALLEST_DELTA, Nothing, Profile, invert
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Tries
from dpsweep.accounting.notation import delta_down

CELLS = 300_000
"""Candidates for the ends of cells of u, uniform in the logit of u."""

LOGITS = (-75.0, 45.0)
STEP = 2e-4
"""The growth of ln f'(T(u)) + ln f'(u) within a cell: the relative loss of an x_i, so about the loss of epsilon."""

LINES = 6000
"""Points of the grid of e >= 0 for T; the grid of negative e mirrors it."""

ANCHORS = 3000
"""At more epsilons than this, delta is interpolated: linearly in exp(epsilon), where every profile is convex."""

ARGUMENT = 1e-14
"""Relative margin for the rounding of arguments of f'; its own rounding is below `VALUE`."""

VALUE = 1e-10
_UNIT = 2.0**-50
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class BestOf:
    """The profile of the best of `tries` runs with the profile `inner`; see `best_of`."""

    inner: Profile
    tries: Tries

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at each epsilon >= 0, shape [n]."""
        points = np.asarray(epsilons, dtype=float)
        if len(points) <= ANCHORS:
            return self._delta(points)
        anchors = np.linspace(float(points.min()), float(points.max()), ANCHORS)
        values, step = self._delta(anchors), float(anchors[1] - anchors[0])
        before = np.clip(((points - anchors[0]) / step).astype(np.int64), 0, ANCHORS - 2)
        share = np.clip(np.expm1(points - anchors[before]) / math.expm1(step), 0.0, 1.0)
        return np.asarray(values[before] * (1 - share) + values[before + 1] * share)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that the bound certifies at `delta`, rounded up."""
        if delta < SMALLEST_DELTA * self.tries.mean:
            raise UnsupportedEvent(
                f"PLD is not safe at delta={delta_down(delta)} for a search of {self.tries.mean:.4g} tries on average: "
                f"delta / tries is below {delta_down(SMALLEST_DELTA)}; use RDP."
            )
        return invert(self, delta)

    def _delta(self, points: np.ndarray) -> np.ndarray:
        weights, shifts = self._terms
        rows = max(1, _CHUNK // len(weights))
        parts = [
            at_any_epsilon(self.inner, (part[:, None] + shifts).ravel()).reshape(len(part), -1) @ weights
            for part in (points[first : first + rows] for first in range(0, len(points), rows))
        ]
        return np.minimum(1.0, np.concatenate(parts) * (1 + VALUE) if parts else np.zeros(0))

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights D_i and the shifts ln x_i, rounded such that the sum only grows."""
        slopes, offsets = self._lines()
        kept = lower_hull(slopes, offsets)
        weights, gaps = np.diff(slopes[kept]), np.diff(offsets[kept])
        lowered = np.maximum(0.0, gaps - _UNIT * (offsets[kept][1:] + offsets[kept][:-1])) / weights
        with np.errstate(divide="ignore"):
            shifts = np.log(lowered) - VALUE
        return weights, np.maximum(shifts, -2 * _FAR)

    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        """(f'(T(u)), f'(u)) at the upper and lower ends of cells of u, after the line 0; both ascend."""
        logits = np.linspace(*LOGITS, CELLS)
        ends = np.append(1 / (1 + np.exp(-logits[:-1])), 1.0)
        tops = np.minimum(1.0, trade_off(self.inner, ends) * (1 + ARGUMENT))
        slopes = np.maximum.accumulate(self.tries.slope(tops)) * (1 + VALUE)
        offsets = self.tries.slope(ends * (1 - ARGUMENT)) * (1 - VALUE)
        growth = np.log(np.maximum(slopes, _LEAST)) + np.log(np.maximum(offsets, _LEAST))
        steps = np.floor((growth - growth[0]) / STEP)
        kept = np.append(np.flatnonzero(np.diff(steps) > 0), CELLS - 1)
        lowest = self.tries.slope(np.zeros(1)) * (1 - VALUE)
        return np.append(0.0, slopes[kept]), np.concatenate([[0.0], lowest, offsets[kept[:-1]]])


def best_of(profile: Profile, tries: Tries) -> Profile:
    """The privacy profile of a search that releases the best of a secret number of tries.

    *Guarantee*: an upper bound at every epsilon >= 0, for both directions, if `profile` bounds one try, its score
    included, and the tries are independent. It is at most 2 % above the best attack for negative binomial laws.
    *Source*: docs/accounting.md, "The envelope bound".

    >>> from dpsweep.accounting import Adjacency, NegativeBinomial, Pld, poisson_gaussian, repeat
    >>> run = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000)
    >>> profile = Pld().profile(run, Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(best_of(profile, NegativeBinomial.with_mean(eta=1, mean=35)).epsilon(1e-5), 2)
    5.58
    """
    once = isinstance(tries, NegativeBinomial) and tries.gamma == 1
    return profile if once or isinstance(profile, Nothing) else BestOf(inner=profile, tries=tries)


_FAR = 5000.0
_LEAST = 1e-300


def at_any_epsilon(profile: Profile, epsilons: np.ndarray) -> np.ndarray:
    """Delta at epsilons of any sign: delta(-e) = 1 - exp(-e) + exp(-e) delta(e), with the larger of both directions."""
    deltas = profile.delta(np.abs(epsilons))
    below = np.minimum(epsilons, 0.0)
    return np.asarray(np.where(epsilons >= 0, deltas, np.exp(below) * deltas - np.expm1(below)))


def trade_off(profile: Profile, ends: np.ndarray) -> np.ndarray:
    """Upper bounds on T at ascending `ends`, by the tangents of slope exp(e) over a grid of e.

    Each tangent alone is an upper bound, so the choice of the tangent near each end matters for tightness only.
    """
    reach = 1.0
    while reach < _FAR / 8 and float(profile.delta(np.array([reach]))[0]) > SMALLEST_DELTA:
        reach *= 1.25
    grid = np.linspace(-reach, reach, 2 * LINES + 1)
    rises, starts = np.exp(grid), at_any_epsilon(profile, grid)
    crossings = np.minimum.accumulate((starts[:-1] - starts[1:]) / np.diff(rises))
    nearest = np.searchsorted(-crossings, -ends, side="right")
    tops = np.ones(len(ends))
    for shift in (-1, 0, 1):
        line = np.clip(nearest + shift, 0, len(grid) - 1)
        tops = np.minimum(tops, rises[line] * ends + starts[line])
    return tops


def lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Indices of the lower convex hull of points with ascending x, from the first to the last point."""
    hull: list[int] = []
    at, of = x.tolist(), y.tolist()
    for place in range(len(at)):
        if hull and at[place] <= at[hull[-1]]:
            continue
        while len(hull) > 1:
            first, last = hull[-2], hull[-1]
            rise = (of[last] - of[first]) * (at[place] - at[last])
            if rise < (of[place] - of[last]) * (at[last] - at[first]):
                break
            hull.pop()
        hull.append(place)
    return hull
