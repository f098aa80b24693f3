"""What theorems make of small mechanisms whose divergences are known exactly, and how many searches exceed it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dpsweep.accounting.accountants import rdp as renyi
from dpsweep.accounting.accountants.interface import Theorem
from dpsweep.accounting.events.build import DpEvent, gaussian
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles.derived_profiles import Sampled
from dpsweep.accounting.profiles.privacy_profiles import Profile, TwoSided
from dpsweep.accounting.profiles.selection_envelope import BestOf
from tests.accounting.finite import OUTCOMES, SLACK, Cube, Pairs, best, best_of_each, broken, probabilities

Bound = Callable[[Any, Any], Profile]
"""A profile of the best of so many tries, given that of one."""

ORDERS = np.array([1.05, 1.3, 2.0, 3.0, 4.5, 8.0, 16.0, 40.0, 100.0])
EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 1.7, 2.5, 4.0, 6.0])
DELTAS = (0.3, 0.1, 0.02, 1e-3, 1e-5)
ANY = gaussian(noise_multiplier=1.0)

LAWS = [
    NegativeBinomial(eta=eta, gamma=gamma)
    for eta, gamma in [
        (-0.9, 0.05),
        (-0.5, 0.2),
        (0.0, 0.04),
        (0.0, 0.5),
        (0.5, 0.1),
        (1.0, 0.05),
        (1.0, 0.6),
        (3.0, 0.2),
    ]
]
POISSONS = [Poisson(mean=mean) for mean in (0.4, 2.0, 10.0, 40.0)]


@dataclass(frozen=True, eq=False)
class OneWay:
    """One direction of a case's profile."""

    pair: Pairs

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        weights = np.exp(np.minimum(epsilons, 700.0))[:, None]
        return np.asarray(np.maximum(self.pair.p - weights * self.pair.q, 0).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Exact:
    """One case's profile, as theorems ask for it."""

    pair: Pairs

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return self.pair.delta(epsilons)[0]

    @property
    def directions(self) -> tuple[OneWay, OneWay]:
        return OneWay(self.pair), OneWay(self.pair.swapped)

    def epsilon(self, delta: float) -> float:
        return float(self.pair.epsilon(delta)[0])

    def epsilon_of(self, event: DpEvent, delta: float) -> float:
        return self.epsilon(delta)


@dataclass(frozen=True, eq=False)
class Dearest:
    """The larger of several cases' profiles, in each direction."""

    cases: tuple[Exact, ...]

    @property
    def directions(self) -> tuple[TwoSided, TwoSided]:
        ahead, behind = zip(*(case.directions for case in self.cases), strict=True)
        return TwoSided(directions=ahead), TwoSided(directions=behind)


def in_all_orders(pairs: Pairs) -> Iterator[Pairs]:
    """The same mechanisms, their outcomes scored in each of the possible orders."""
    for order in itertools.permutations(range(OUTCOMES)):
        yield Pairs(pairs.p[:, order], pairs.q[:, order])


def above_the_envelope(pairs: Pairs, law: Tries, bound: Bound = BestOf) -> int:
    """How many deltas of the searches over these mechanisms, scored in all orders, are above their bounds."""
    bounds = np.array([bound(Exact(one), law).delta(EPSILONS) for one in pairs])
    chances = probabilities(law)
    return sum(broken(best(ordered, chances).delta(EPSILONS), bounds) for ordered in in_all_orders(pairs))


def above_best_of_each(points: Sequence[Pairs], bound: Bound = BestOf, orderings: int = 100) -> int:
    """How many deltas of searches among these points, one run of each, are above their bounds."""
    profiles = [Dearest(tuple(map(Exact, one))) for one in zip(*points, strict=True)]
    bounds = np.array([bound(each, EachPoint(count=len(points))).delta(EPSILONS) for each in profiles])
    return sum(broken(best_of_each(points, order).delta(EPSILONS), bounds) for order in range(orderings))


def claimed(theorem: Theorem, leaf: DpEvent, pairs: Pairs) -> np.ndarray:
    """What a theorem about one (epsilon, delta) at a time makes of each case at `DELTAS`, shape [n, deltas]."""
    return np.array([[theorem(leaf, delta, Exact(one).epsilon_of) for delta in DELTAS] for one in pairs])


def broken_claims(search: Pairs, epsilons: np.ndarray) -> int:
    """How many claims at `DELTAS` the search does not keep."""
    finite = np.minimum(epsilons, 50.0)
    return int(np.sum((search.delta(finite) > np.array(DELTAS) + SLACK) & (epsilons < 50)))


def noisy_maxima(scale: float, adjacency: Adjacency, n: int) -> Pairs:
    rng = np.random.Generator(np.random.Philox(8))
    counts = rng.integers(0, 12, (n, OUTCOMES)).astype(float)
    moved = rng.integers(0 if adjacency is Adjacency.ADD_OR_REMOVE_ONE else -1, 2, counts.shape)
    return Pairs(*(special.softmax(one / scale, axis=1) for one in (counts, counts + moved)))


def sampled_profile(cube: Cube, rate: float) -> np.ndarray:
    return np.asarray(Sampled(inner=cube, rate=rate).delta(EPSILONS))  # type: ignore[arg-type]


def sampled_curve(cube: Cube, rate: float) -> np.ndarray:
    """Zhu and Wang's bound of each case."""
    orders = np.unique(np.concatenate([ORDERS, np.arange(2.0, ORDERS.max() + 1)]))
    curves = cube.renyi(orders)
    return np.array(
        [
            renyi.poisson_sampled_curve(rate, ORDERS, lambda at, curve=curve: curve[np.searchsorted(orders, at)])  # type: ignore[misc]
            for curve in curves
        ]
    )
