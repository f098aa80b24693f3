"""Mechanisms on a few outcomes, whose divergences are finite sums: what theorems are tried on.

A case is a mechanism as its laws P and Q under two neighbours; an outcome's place is its score. What the best of K
tries does is then a finite sum too. Laws of K are summed term by term, by formulas of their own. Half of the cases are
random, half nearly extremal: randomised response, leaks, small masses that are moved to an end of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpsweep.accounting.events.trial_counts import Capped, NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.selection.rules import TrainOn

OUTCOMES = 5
TAIL = 1e-13
SLACK = 1e-9

Law = NegativeBinomial | Poisson | Stopping | Capped


@dataclass(frozen=True)
class Pairs:
    """Laws of mechanisms under two neighbours, shape [n, outcomes] each, outcomes in ascending order of their score."""

    p: np.ndarray
    q: np.ndarray

    def __iter__(self) -> Iterator[Pairs]:
        return (Pairs(p[None], q[None]) for p, q in zip(self.p, self.q, strict=True))

    @property
    def swapped(self) -> Pairs:
        return Pairs(self.q, self.p)

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        """Hockey-stick divergence, the larger direction; `epsilons` of shape [e] or [n, e], the result [n, e]."""
        weights = np.exp(np.atleast_2d(epsilons))[:, :, None]
        one, other = (
            np.maximum(a[:, None] - weights * b[:, None], 0).sum(axis=2)
            for a, b in ((self.p, self.q), (self.q, self.p))
        )
        return np.asarray(np.maximum(one, other))

    def renyi(self, orders: np.ndarray) -> np.ndarray:
        """Renyi divergence, the larger direction, shape [n, orders]."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            p, q = np.log(self.p)[:, None], np.log(self.q)[:, None]
            a = orders[:, None]
            logs = [np.where(np.isneginf(x), -np.inf, a * x + (1 - a) * y) for x, y in ((p, q), (q, p))]
            return np.asarray(np.max([_logsumexp(one) for one in logs], axis=0) / (orders - 1))

    def epsilon(self, delta: float) -> np.ndarray:
        """The least epsilon >= 0 at this delta, rounded up, shape [n]."""
        return np.maximum(self._one_way(delta), self.swapped._one_way(delta))

    def _one_way(self, delta: float) -> np.ndarray:
        """max ln((P(E) - delta) / Q(E)) over the events E that hold the outcomes of the largest ratios."""
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(np.where(self.p > 0, self.q / self.p, np.inf), axis=1)
            p, q = (np.cumsum(np.take_along_axis(one, order, axis=1), axis=1) for one in (self.p, self.q))
            ratio = np.where(p > delta, np.log(p - delta) - np.log(q), 0.0)
        return np.asarray(np.maximum(0.0, ratio.max(axis=1)))


def _logsumexp(logs: np.ndarray) -> np.ndarray:
    top = logs.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, np.where(np.isposinf(top), np.inf, 0.0))
    return np.asarray(np.where(np.isposinf(top[..., 0]), np.inf, np.log(np.exp(logs - top).sum(axis=-1)) + top[..., 0]))


def cases(n: int, seed: int) -> Pairs:
    """Mechanisms of all kinds, their outcomes in random order."""
    rng = np.random.Generator(np.random.Philox(seed))
    kinds = [_anything, _close, _leaking, _moved]
    found = [kind(math.ceil(n / len(kinds)), rng) for kind in kinds]
    p, q = (np.concatenate(side) for side in zip(*found, strict=True))
    places = rng.random(p.shape).argsort(axis=1)
    return Pairs(np.take_along_axis(p, places, axis=1), np.take_along_axis(q, places, axis=1))


def _anything(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    shape = rng.choice([0.3, 1.0, 5.0], (2, n, 1)) * np.ones(OUTCOMES)
    masses = rng.gamma(shape) + 1e-12
    return tuple(masses / masses.sum(axis=2, keepdims=True))  # type: ignore[return-value]


def _close(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    p, _ = _anything(n, rng)
    q = p * np.exp(rng.choice([0.01, 0.1, 0.5, 1.5], (n, 1)) * rng.choice([-1.0, 1.0, 0.3], p.shape))
    return p, q / q.sum(axis=1, keepdims=True)


def _leaking(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response that gives everything away now and then: what an (epsilon, delta) claim is at worst."""
    epsilon, leak = rng.choice([0.02, 0.1, 0.4, 1.0, 2.0], n), rng.choice([0.0, 1e-6, 1e-3, 0.01, 0.1], n)
    rare = rng.choice([1.0, 0.1, 0.01], n)
    yes = rare * np.exp(epsilon) / (1 + np.exp(epsilon))
    no = rare / (1 + np.exp(epsilon))
    zero = np.zeros(n)
    p = np.stack([leak, zero, (1 - leak) * yes, (1 - leak) * no, (1 - leak) * (1 - rare)], axis=1)
    q = np.stack([zero, leak, (1 - leak) * no, (1 - leak) * yes, (1 - leak) * (1 - rare)], axis=1)
    return p, q


def _moved(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A small mass that lies elsewhere under the neighbour."""
    p, _ = _anything(n, rng)
    q = p.copy()
    share = rng.choice([1e-4, 1e-2, 0.1, 0.5, 0.99], n) * p[:, 0]
    q[:, 0] -= share
    q[:, 1] += share
    return p, q


def probabilities(law: Law) -> np.ndarray:
    """P(K = k) for k = 0, 1, ...: all of them, or, of an endless law, so many that less than `TAIL` is missing."""
    if isinstance(law, Capped):
        return limited(law.tries, law.limit)
    if isinstance(law, Stopping):
        coins = [law.gamma * (1 - law.gamma) ** (k - 1) for k in range(1, law.limit)]
        return np.array([0.0, *coins, (1 - law.gamma) ** (law.limit - 1)])
    if isinstance(law, Poisson):
        return np.array([math.exp(k * math.log(law.mean) - law.mean - math.lgamma(k + 1)) for k in range(200)])
    k = np.arange(1, math.ceil(60 / -math.log1p(-law.gamma)) + 60)
    logs = k * math.log1p(-law.gamma) + np.append(0.0, np.cumsum(np.log((k[:-1] + law.eta) / (k[:-1] + 1))))
    weights = np.exp(logs - logs.max())
    return np.append(0.0, weights / weights.sum())


def limited(law: Law, limit: int) -> np.ndarray:
    """P(min(K, limit) = k)."""
    chances = probabilities(law)
    return np.append(chances[:limit], chances[limit:].sum()) if limit < len(chances) else chances


def best(pairs: Pairs, chances: np.ndarray) -> Pairs:
    """The best of K tries, and, last, no try at all."""
    return Pairs(*(_best(one, chances) for one in (pairs.p, pairs.q)))


def _best(masses: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """sum_k P(K = k) (F(o)^k - F(o-)^k), each power's difference as a sum of products: no digits are lost."""
    above = np.cumsum(masses, axis=1)
    below = above - masses
    won, power = np.zeros_like(masses), np.zeros_like(masses)
    last = np.ones_like(masses)
    for chance in chances[1:]:
        power, last = power * above + last * masses, last * below
        won += chance * power
    return np.concatenate([won, np.full((len(masses), 1), chances[0])], axis=1)


def best_of_each(points: Sequence[Pairs], seed: int) -> Pairs:
    """The best of one run of each point: which point, and its outcome. One random order ranks all of these."""
    ranks = np.random.Generator(np.random.Philox(seed)).permutation(len(points) * OUTCOMES).reshape(len(points), -1)
    return Pairs(*(_best_of_each(masses, ranks) for masses in ([one.p for one in points], [one.q for one in points])))


def _best_of_each(points: Sequence[np.ndarray], ranks: np.ndarray) -> np.ndarray:
    won = []
    for point, masses in enumerate(points):
        others = [(each, ranks[other]) for other, each in enumerate(points) if other != point]
        for outcome in range(OUTCOMES):
            below = [each @ (rank < ranks[point, outcome]) for each, rank in others]
            won.append(masses[:, outcome] * np.prod(below, axis=0))
    return np.stack(won, axis=1)


def first_good(pairs: Pairs, law: Stopping, good: int) -> Pairs:
    """The first of K tries that is one of the `good` best outcomes, and, last, that there is none."""
    found = []
    for masses in (pairs.p, pairs.q):
        bad = masses[:, : OUTCOMES - good].sum(axis=1, keepdims=True)
        tried = sum(chance * sum(bad**j for j in range(k)) for k, chance in enumerate(probabilities(law)))
        none = sum(chance * bad**k for k, chance in enumerate(probabilities(law)))
        found.append(np.concatenate([masses[:, OUTCOMES - good :] * tried, none], axis=1))
    return Pairs(*found)


def broken(exact: np.ndarray, bound: np.ndarray) -> int:
    """How many exact values lie above their bounds."""
    return int(np.sum(~(exact <= bound * (1 + SLACK) + SLACK)))


@dataclass(frozen=True)
class Cube:
    """A mechanism on every set of three records, `laws[mask]` of shape [n, outcomes]; the last record is at hand."""

    laws: dict[int, np.ndarray]

    def sampled(self, rate: float) -> Pairs:
        """On a Poisson sample of all three records, and of the first two."""
        here, there = (
            sum(
                rate ** mask.bit_count() * (1 - rate) ** (most.bit_count() - mask.bit_count()) * self.laws[mask]
                for mask in self.laws
                if mask | most == most
            )
            for most in (7, 3)
        )
        return Pairs(np.asarray(here), np.asarray(there))

    @property
    def neighbours(self) -> list[Pairs]:
        """Every two sets that differ in one record."""
        return [
            Pairs(self.laws[mask | bit], self.laws[mask])
            for mask in self.laws
            for bit in (1, 2, 4)
            if not mask & bit and mask | bit in self.laws
        ]

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return np.asarray(np.max([pairs.delta(epsilons) for pairs in self.neighbours], axis=0))

    def renyi(self, orders: np.ndarray) -> np.ndarray:
        return np.asarray(np.max([pairs.renyi(orders) for pairs in self.neighbours], axis=0))


def cubes(n: int, seed: int) -> Cube:
    """Each record tilts the law a little; half of the time only the last one does, which is the extremal case."""
    rng = np.random.Generator(np.random.Philox(seed))
    base, last = (lambda pairs: (pairs.q, pairs.p))(cases(n, seed + 100))
    tilts = [rng.choice([0.0, 0.3, 1.0], (len(base), 1)) * rng.normal(size=base.shape) for _ in range(2)]
    laws = {}
    for mask in range(8):
        tilt = sum(tilt * bool(mask & bit) for tilt, bit in zip(tilts, (1, 2), strict=True))
        law = (last if mask & 4 else base) * np.exp(tilt)
        laws[mask] = law / law.sum(axis=1, keepdims=True)
    return Cube(laws)


@dataclass(frozen=True)
class Tuning:
    """A search on a part, then a run that knows its outcome: laws [n, outcomes] and [n, outcomes, outcomes]."""

    search: Pairs
    run: Pairs

    def on(self, train_on: TrainOn, rate: float) -> Pairs:
        """The law of both outcomes with the record, whose coin sends it to the part, and without it."""
        part, without = self.search.p[:, :, None] * rate, self.search.q[:, :, None] * (1 - rate)
        final = self.run.q if train_on is TrainOn.REST else self.run.p
        present = part * final + without * self.run.p
        instead = self.search.q[:, :, None] * self.run.q
        return Pairs(*(one.reshape(len(one), -1) for one in (present, instead)))


def tunings(n: int, seed: int) -> Tuning:
    search, runs = cases(n, seed), cases(n * OUTCOMES, seed + 50)
    keep = len(search.p)
    run = Pairs(*(one[: keep * OUTCOMES].reshape(keep, OUTCOMES, OUTCOMES) for one in (runs.p, runs.q)))
    return Tuning(search, run)
