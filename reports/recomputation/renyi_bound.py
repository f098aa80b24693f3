"""Upper bounds on epsilon by Renyi divergences, for events whose claim by RDP is below the bound by losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpsweep.reports.recomputation.loss_lattice import Array, NotRecomputed

SPACING, BEYOND_NODES, FARTHEST_NODE, MOST_ORDERS_STEPS = 0.25, 10.0, 20_000.0, 200
"""Distance of nodes and how far they reach, in standard deviations, the farthest, and the most kinds of step."""
COARSE, REFINED, SMALLEST_ORDER, LARGEST_ORDER = 160, 24, 1.005, 1e6
"""Orders of the first search and of the following ones, and their range."""
ROUNDING = 1e-13
"""How much a log-moment is raised, relative to its summands."""

Divergence = Callable[[Array], Array]
"""Upper bounds on the Renyi divergence at orders above 1 [n], for both directions of a pair."""


def divergence_of_gaussian_steps(steps: Sequence[tuple[str, float, float, int]]) -> Divergence:
    """Gaussian steps together. Mironov 2017, Corollary 3; Mironov, Talwar, Zhang 2019, Theorem 4, where sampled."""
    if len(steps) > MOST_ORDERS_STEPS or not {kind for kind, *_ in steps} <= {"plain", "sampled"}:
        raise NotRecomputed("no Renyi bound for these steps")

    def divergence(orders: Array) -> Array:
        total = np.zeros(len(orders))
        for kind, rate, mu, count in steps:
            plain = orders * mu**2 / 2
            sampled = kind == "sampled" and rate < 1
            total += count * (np.minimum(plain, _sampled_step_divergence(rate, mu, orders)) if sampled else plain)
        return total * (1 + ROUNDING)

    return divergence


def _sampled_step_divergence(rate: float, mu: float, orders: Array) -> Array:
    """One sampled step: the log-moment of the likelihood ratio by the trapezoidal rule, whose error is below 1e-15.

    The integrand is analytic up to pi / mu from the real line: Trefethen and Weideman 2014, Theorem 5.1.
    """
    spacing, divergences = SPACING * min(1.0, 1 / mu), np.full(len(orders), np.inf)
    for place, order in enumerate(orders):
        if order * mu > FARTHEST_NODE:
            continue
        nodes = np.arange(-BEYOND_NODES, order * mu + BEYOND_NODES + spacing, spacing)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + mu * nodes - mu**2 / 2)
        logs = order * ratio - nodes**2 / 2 + math.log(spacing / math.sqrt(2 * math.pi))
        moment = float(np.logaddexp.reduce(logs))
        size = abs(moment) + order * max(-math.log(rate), -math.log1p(-rate))
        divergences[place] = (max(0.0, moment) + ROUNDING * (1 + size)) / (order - 1)
    return divergences


def pure_divergence(epsilon: float) -> Divergence:
    """Randomised response, the largest of all epsilon-private mechanisms."""
    yes, no = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))

    def divergence(orders: Array) -> Array:
        moments = np.logaddexp(orders * yes + (1 - orders) * no, orders * no + (1 - orders) * yes)
        return np.asarray(np.minimum(epsilon, (np.maximum(0.0, moments) + ROUNDING * (1 + orders)) / (orders - 1)))

    return divergence


def negative_binomial_search_divergence(inner: Divergence, eta: float, gamma: float, mean: float) -> Divergence:
    """The best of K runs, K truncated negative binomial. Papernot and Steinke 2022, Theorem 2."""
    second = least_over_orders(lambda orders: (1 - 1 / orders) * inner(orders) - math.log(gamma) / orders)
    penalty = (1 + eta) * min(-math.log(gamma), second)
    return lambda orders: inner(orders) + penalty + math.log(mean) / (orders - 1)


def poisson_search_divergence(inner: Divergence, mean: float, delta_at: Callable[[Array], Array]) -> Divergence:
    """The best of K runs, K Poisson; `delta_at` bounds a run's delta. Papernot and Steinke 2022, Theorem 6.

    The outcome without any run has probability exp(-mean) on both sides, which is added to the moment.
    """

    def divergence(orders: Array) -> Array:
        moments = (orders - 1) * (inner(orders) + mean * delta_at(np.log1p(1 / (orders - 1)))) + math.log(mean)
        return np.asarray(np.logaddexp(moments, -mean) / (orders - 1))

    return divergence


def renyi_epsilon(divergence: Divergence, delta: float) -> float:
    """Epsilon at delta by the best order. Balle, Barthe, Gaboardi, Hsu, Sato 2020, Theorem 21."""

    def epsilon_at_orders(orders: Array) -> Array:
        logs = (math.log(delta) + np.log(orders)) / (orders - 1)
        return np.asarray(divergence(orders) + np.log1p(-1 / orders) - logs)

    return max(0.0, least_over_orders(epsilon_at_orders))


def least_over_orders(values: Callable[[Array], Array]) -> float:
    """The least value at orders on a grid, which is refined around the best one; each order gives a bound."""
    logs = np.linspace(math.log(SMALLEST_ORDER - 1), math.log(LARGEST_ORDER - 1), COARSE)
    least = math.inf
    for _ in range(4):
        with np.errstate(invalid="ignore"):
            found = np.nan_to_num(values(1 + np.exp(logs)), nan=np.inf)
        best = int(found.argmin())
        least = min(least, float(found[best]))
        logs = np.linspace(logs[max(0, best - 1)], logs[min(len(logs) - 1, best + 1)], REFINED)
    return least
