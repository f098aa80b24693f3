"""Brute force over small mechanisms: every theorem that a price rests on, against exact arithmetic.

A case is a mechanism on a few outcomes, as its laws P and Q under two neighbours; an outcome's place is its score. What
the best of K tries does is then a finite sum, so the exact divergences of a search stand beside what the theorem makes
of the exact divergences of one try. Laws of K are summed term by term, by formulas of their own. Half of the cases are
random, half nearly extremal: randomised response, leaks, small masses that are moved to an end of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from accounting import claims, renyi
from accounting.events import above_threshold, gaussian, noisy_max, random_stopping, select
from accounting.guarantee import Adjacency
from accounting.profiles import Sampled, Selected
from accounting.rdp import noisy_max_epsilon
from accounting.tries import NegativeBinomial, Poisson, Stopping

OUTCOMES = 5
TAIL = 1e-13
SLACK = 1e-9
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

Law = NegativeBinomial | Poisson | Stopping
SIZES = [pytest.param(1, id="some"), pytest.param(25, id="many", marks=pytest.mark.long)]


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
class Exact:
    """One case's profile, as `accounting/profiles.py` asks for it."""

    pair: Pairs

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        return self.pair.delta(epsilons)[0]

    def epsilon(self, delta: float) -> float:
        return float(self.pair.epsilon(delta)[0])


def selected_curve(pairs: Pairs, law: NegativeBinomial) -> np.ndarray:
    return np.array([renyi.selected(curve, ORDERS, law) for curve in pairs.renyi(ORDERS)])


def selected_poisson_curve(pairs: Pairs, law: Poisson) -> np.ndarray:
    return np.array(
        [
            renyi.selected_poisson(
                one.renyi(ORDERS)[0], ORDERS, law, lambda at, one=one: one.delta(np.array([at]))[0, 0]
            )
            for one in pairs
        ]
    )


def selected_profile(pairs: Pairs, law: NegativeBinomial) -> np.ndarray:
    return np.array([Selected(inner=Exact(one), tries=law).delta(EPSILONS) for one in pairs])


def test_the_laws_are_those_that_are_drawn_and_priced() -> None:
    for law in [*LAWS, *POISSONS, Stopping(gamma=0.2, limit=9)]:
        chances = probabilities(law)
        assert chances.sum() == pytest.approx(1, abs=TAIL * 10)
        assert chances @ np.arange(len(chances)) == pytest.approx(law.mean, rel=1e-9)
        assert chances @ 0.7 ** np.arange(len(chances)) == pytest.approx(law.generating(0.7), rel=1e-9)


def test_the_oracles_divergences_are_right() -> None:
    """Randomised response: its profile and its Renyi curve in closed form, and epsilon inverts delta."""
    yes = math.e / (1 + math.e)
    one = Pairs(np.array([[yes, 1 - yes]]), np.array([[1 - yes, yes]]))
    assert one.delta(EPSILONS)[0] == pytest.approx(np.maximum(0, yes - np.exp(EPSILONS) * (1 - yes)))
    assert one.renyi(ORDERS)[0] == pytest.approx(renyi.pure(1.0, ORDERS), rel=1e-9)
    many = cases(400, 1)
    for delta in DELTAS:
        at = many.epsilon(delta)
        finite = np.isfinite(at)
        assert np.all(many.delta(at[:, None])[finite, 0] <= delta * (1 + 1e-9))
        assert np.all(many.delta(at[:, None] - 1e-3)[finite & (at > 2e-3), 0] > delta)


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_papernot_and_steinkes_curve(law: NegativeBinomial, times: int) -> None:
    pairs = cases(1300 * times, 2)
    assert broken(best(pairs, probabilities(law)).renyi(ORDERS), selected_curve(pairs, law)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", POISSONS, ids=str)
def test_papernot_and_steinkes_curve_for_poisson(law: Poisson, times: int) -> None:
    pairs = cases(500 * times, 3)
    assert broken(best(pairs, probabilities(law)).renyi(ORDERS), selected_poisson_curve(pairs, law)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_profile_of_private_selection(law: NegativeBinomial, times: int) -> None:
    pairs = cases(100 * times, 4)
    assert broken(best(pairs, probabilities(law)).delta(EPSILONS), selected_profile(pairs, law)) == 0
