"""Upper bounds on delta for the best of several tries, of which the winner alone is shown."""

from __future__ import annotations

import numpy as np

from dpsweep.reports.recomputation.loss_lattice import FARTHEST, MARGIN, Array, Curve

CELLS, LINES, GROWTH = 400_000, 8000, 2e-4
"""Cells of u, tangents to the trade-off curve, and the growth of ln f'(T(u)) + ln f'(u) in a cell that is kept."""


def delta_curve_of_best_try(side: Curve, slope: Curve, each: bool) -> Curve:
    """The best of K independent tries, of which the winner alone is shown; `slope` is f', E[x^K] is f.

    With T(u) the least of exp(e) u + delta(e) over e, and h(x) = sup_u (x f'(T(u)) - f'(u))_+ = sum D_i (x - x_i)_+, it
    has delta(e) <= sum D_i delta(e + ln x_i): dpsweep's docs/accounting.md, "The envelope bound". Where `each` of K
    points runs once, T is replaced by a log-concave curve above it, and ranks below the first cell are left out.
    """
    ends = np.append(1 / (1 + np.exp(-np.linspace(-75, 45, CELLS)[:-1])), 1.0)
    tops, missed = _trade_off_upper_bounds(side, ends), 0.0
    if each:
        missed = float(slope(np.ones(1))[0] * tops[0])
        x, y = np.append(np.log(ends[:-1]), 0.0), np.append(np.log(np.maximum(tops[1:], 1e-300)), 0.0)
        hull = _indices_of_lower_hull(x, -y)
        tops = np.append(np.minimum(1.0, np.exp(np.interp(np.log(ends), x[hull], y[hull]) + 1e-11))[:-1], 1.0)
    rises = np.maximum.accumulate(slope(tops)) * (1 + 1e-10)
    falls = slope(ends * (1 - MARGIN)) * (1 - 1e-10)
    growth = np.floor(np.log(np.maximum(rises, 1e-40) * np.maximum(falls, 1e-40)) / GROWTH)
    kept = np.append(np.flatnonzero(np.diff(growth) > 0), CELLS - 1)
    rises, falls = (
        np.append(0.0, rises[kept]),
        np.concatenate([[0.0], slope(np.zeros(1)) * (1 - 1e-10), falls[kept[:-1]]]),
    )
    hull = _indices_of_lower_hull(rises, falls)
    weights, gaps = np.diff(rises[hull]), np.diff(falls[hull]) - 1e-15 * falls[hull][1:]
    with np.errstate(divide="ignore"):
        shifts = np.log(np.maximum(0.0, gaps) / weights) - 1e-10
    return lambda at: np.minimum(1, np.array([side(one + shifts) @ weights for one in at]) * (1 + 1e-10) + missed)


def _trade_off_upper_bounds(side: Curve, ends: Array) -> Array:
    """Upper bounds on T at ascending ends, each by a tangent; every tangent is an upper bound."""
    reach, least = 1.0, 2 * float(side(np.array([FARTHEST / 8]))[0]) + 1e-34
    while reach < FARTHEST / 8 and float(side(np.array([reach]))[0]) > least:
        reach *= 1.25
    grid = np.linspace(-reach, reach, LINES)
    slopes, starts = np.exp(grid), side(grid)
    crossings = np.maximum.accumulate(((starts[:-1] - starts[1:]) / np.diff(slopes))[::-1])[::-1]
    nearest, tops = np.searchsorted(-crossings, -ends, side="right"), np.ones(len(ends))
    for shift in (-1, 0, 1):
        line = np.clip(nearest + shift, 0, LINES - 1)
        tops = np.minimum(tops, (slopes[line] * ends + starts[line]) * (1 + MARGIN))
    return tops


def _indices_of_lower_hull(x: Array, y: Array) -> Array:
    """Indices of the lower convex hull of points with ascending x; of points with equal x the first stays."""
    places = np.concatenate([[0], 1 + np.flatnonzero(x[1:] > np.maximum.accumulate(x)[:-1])])
    xs, ys, hull = x.tolist(), y.tolist(), [int(places[0])]
    for new in places[1:].tolist():
        while len(hull) > 1:
            last, before = hull[-1], hull[-2]
            if (ys[last] - ys[before]) * (xs[new] - xs[last]) < (ys[new] - ys[last]) * (xs[last] - xs[before]):
                break
            hull.pop()
        hull.append(new)
    return np.array(hull)


def extend_curve_to_negative_epsilon(one: Curve, other: Curve) -> Curve:
    """A direction's curve; below 0 by the other direction's: delta(-e) = 1 - exp(-e) + exp(-e) delta'(e)."""

    def extended_curve(points: Array) -> Array:
        deltas, below = np.empty(len(points)), points < 0
        deltas[~below] = one(points[~below])
        opposite = other(np.minimum(-points[below], FARTHEST))
        deltas[below] = np.exp(points[below]) * opposite - np.expm1(points[below])
        return deltas

    return extended_curve
