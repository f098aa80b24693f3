"""The envelope bound on the best of K private tries, and the attack by two cuts: a reference to copy, with numpy alone.

A search makes K independent tries and releases the best one with its score; K is secret. The laws of one try on two
neighbouring data sets are P and Q: arrays of the masses of the same n outcomes. The law of K enters by the slope of its
generating function, f'(u) = E[K u^(K - 1)]. With the trade-off curve T(u) = sup {P(S): Q(S) <= u} of one try, the laws
of the winner have, whatever the score is, for every epsilon >= 0

    delta(epsilon) <= sum over outcomes of sup over u of (P f'(T(u)) - exp(epsilon) Q f'(u))_+ ,

and the same with P and Q exchanged; the larger counts. *Proof.* A coin breaks ties. The winner's density at an outcome
is P f'(P(worse)). Let u = Q(worse); then P(worse) <= T(u), and f' rises. An outcome adds at most its positive part.

The attack chooses the score: worst are the outcomes between two cuts of P / Q, then come those above both cuts, and
best are those below both. It bets that the winner lies above both cuts, so every try lies above the lower cut and one
above the upper one: P(bet) = f(P(above the lower cut)) - f(P(between the cuts)).

The bound is an upper bound and the attack a lower bound on epsilon, but for the rounding of float64.
"""

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def fixed(count):
    """f' of exactly `count` tries."""
    return lambda u: count * u ** (count - 1)


def poisson(mean):
    """f' of a Poisson number of tries."""
    return lambda u: mean * np.exp(mean * (u - 1))


def negative_binomial(eta, gamma):
    """f' of the truncated negative binomial law, eta > -1: geometric with mean 1 / gamma at 1, logarithmic at 0."""
    one_try = (1 - gamma) / (np.expm1(-eta * np.log(gamma)) / eta if eta else -np.log(gamma))
    return lambda u: one_try * (1 - u + gamma * u) ** (-1 - eta)


def trade_off_corners(p, q):
    """The corners (u, T(u)): sums of Q and P over the outcomes in descending order of P / Q; shapes [n + 1]."""
    order = np.argsort(np.arctan2(q, p), kind="stable")
    return np.append(0.0, np.cumsum(q[order])), np.append(0.0, np.cumsum(p[order]))


def epsilon_bound(p, q, slope, delta, cells=200_000):
    """The least epsilon in [0, 700], rounded up by 1e-9, at which the bound is at most `delta`; else infinity."""
    return max(_bound_in_one_direction(*pair, slope, delta, cells) for pair in ((p, q), (q, p)))


def _bound_in_one_direction(p, q, slope, delta, cells):
    tops, floors = _envelope(p, q, slope, cells)
    changes = np.diff(floors) / np.diff(tops)  # the ratios P / (exp(epsilon) Q) at which the best pair changes
    low, high = 0.0, 700.0
    while high - low > 1e-9:
        epsilon = (low + high) / 2
        with np.errstate(all="ignore"):
            best = np.searchsorted(changes, p / q * np.exp(-epsilon))
        total = np.maximum(0.0, p * tops[best] - np.exp(epsilon) * q * floors[best]).sum()
        low, high = (epsilon, high) if total > delta else (low, epsilon)
    return high if high < 700 else np.inf


def _envelope(p, q, slope, cells):
    """The pairs (f'(T(u)), f'(u)) that are best at some ratio, rounded up and down in cells of u; their lower hull."""
    ends = np.append(1 / (1 + np.exp(-np.linspace(-75, 40, cells - 1))), 1.0)
    tops = slope(np.minimum(1.0, np.interp(ends, *trade_off_corners(p, q))))
    floors = slope(np.append(0.0, ends[:-1]))
    hull = [(0.0, 0.0)]
    for top, floor in np.column_stack([tops, floors]).tolist():
        while len(hull) > 1 and not _is_convex(hull[-2], hull[-1], (top, floor)):
            hull.pop()
        if top > hull[-1][0]:
            hull.append((top, floor))
    return np.array(hull).T


def _is_convex(one, two, three):
    return (two[1] - one[1]) * (three[0] - two[0]) < (three[1] - two[1]) * (two[0] - one[0])


def epsilon_attack(p, q, slope, delta):
    """The largest ln((P(bet) - delta) / Q(bet)) over all pairs of cuts, in both directions; 0 if none forces more."""
    forced = [0.0]
    for one, other in ((p, q), (q, p)):
        sums = trade_off_corners(one, other)
        upper, lower = np.triu_indices(len(p) + 1)  # so many outcomes lie above each cut
        misses, hits = (_rise(slope, total[lower] - total[upper], total[upper]) for total in sums)
        with np.errstate(all="ignore"):
            forced.append(np.nanmax(np.log(np.maximum(0.0, hits - delta)) - np.log(misses)))
    return float(max(forced))


def _rise(slope, start, width):
    """f(start + width) - f(start), as an integral of f': a sum of positive terms, which keeps the digits of tails."""
    return width / 2 * (slope(start[:, None] + width[:, None] * (1 + NODES) / 2) @ WEIGHTS)
