"""Brute force over small mechanisms: every theorem that a price rests on, against exact arithmetic.

The exact divergences of a search stand beside what the theorem makes of the exact divergences of one try. That the
comparison can fail is shown at the end: wrong theorems are caught.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import special

from dpsweep.accounting.accountants import approximate_dp as claims
from dpsweep.accounting.accountants import renyi_curves as renyi
from dpsweep.accounting.accountants.approximate_dp import Theorem
from dpsweep.accounting.accountants.rdp import noisy_max_epsilon
from dpsweep.accounting.events.bounded_counts import Capped, Stopping
from dpsweep.accounting.events.build import DpEvent, above_threshold, gaussian, noisy_max, random_stopping, select
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.profiles import selection_envelope as envelope
from dpsweep.accounting.profiles.privacy_profiles import Mixture, Sampled, Worst
from dpsweep.accounting.profiles.selection_envelope import BestOf, Curve
from dpsweep.accounting.selection.subsampled import TrainOn
from tests.accounting.finite import (
    OUTCOMES,
    SLACK,
    TAIL,
    Cube,
    Pairs,
    Tuning,
    best,
    broken,
    cases,
    cubes,
    first_good,
    limited,
    probabilities,
    tunings,
)

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
CAPPED = [
    Capped(tries=LAWS[2], limit=4),
    Capped(tries=LAWS[5], limit=30),
    Capped(tries=POISSONS[2], limit=7),
    Stopping(gamma=0.1, limit=12),
]

SIZES = [pytest.param(1, id="some"), pytest.param(25, id="many", marks=pytest.mark.long)]


@dataclass(frozen=True)
class OneWay:
    """One direction of a case's profile."""

    pair: Pairs

    def delta(self, epsilons: np.ndarray) -> np.ndarray:
        weights = np.exp(epsilons)[:, None]
        return np.asarray(np.maximum(self.pair.p - weights * self.pair.q, 0).sum(axis=1))


@dataclass(frozen=True)
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


def selected_curve(pairs: Pairs, law: NegativeBinomial) -> np.ndarray:
    return np.array([renyi.selected(curve, ORDERS, law) for curve in pairs.renyi(ORDERS)])


def selected_poisson_curve(pairs: Pairs, law: Poisson) -> np.ndarray:
    def curve(one: Pairs) -> np.ndarray:
        return renyi.selected_poisson(one.renyi(ORDERS)[0], ORDERS, law, lambda at: one.delta(at)[0])

    return np.array([curve(one) for one in pairs])


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The envelope on few cells and few tangents: an upper bound too, in a hundredth of the time."""
    monkeypatch.setattr(envelope, "CELLS", 3000)
    monkeypatch.setattr(envelope, "LINES", 300)
    monkeypatch.setattr(envelope, "STEP", 1e-3)


def in_all_orders(pairs: Pairs) -> Iterator[Pairs]:
    """The same mechanisms, their outcomes scored in each of the possible orders."""
    for order in itertools.permutations(range(OUTCOMES)):
        yield Pairs(pairs.p[:, order], pairs.q[:, order])


def above_the_envelope(pairs: Pairs, law: Tries, bound: type[BestOf] = BestOf) -> int:
    """How many deltas of the searches over these mechanisms, scored in all orders, are above their bounds."""
    bounds = np.array([bound(inner=Exact(one), tries=law).delta(EPSILONS) for one in pairs])
    chances = probabilities(law)
    return sum(broken(best(ordered, chances).delta(EPSILONS), bounds) for ordered in in_all_orders(pairs))


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
        near = at < 100
        assert np.all(many.delta(np.where(near, at, 0.0)[:, None])[near, 0] <= delta * (1 + 1e-9))
        assert np.all(many.delta(np.where(near, at, 1.0)[:, None] - 1e-3)[near & (at > 2e-3), 0] > delta)


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_papernot_and_steinkes_curve(law: NegativeBinomial, times: int) -> None:
    pairs = cases(2000 * times, 2)
    assert broken(best(pairs, probabilities(law)).renyi(ORDERS), selected_curve(pairs, law)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", POISSONS, ids=str)
def test_papernot_and_steinkes_curve_for_poisson(law: Poisson, times: int) -> None:
    pairs = cases(700 * times, 3)
    assert broken(best(pairs, probabilities(law)).renyi(ORDERS), selected_poisson_curve(pairs, law)) == 0


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", [*LAWS, *POISSONS, *CAPPED], ids=str)
def test_the_envelope_of_every_law_in_all_orders_of_the_outcomes(law: Tries, times: int) -> None:
    """64 mechanisms in 120 orders under 16 laws are 122,880 searches."""
    assert above_the_envelope(cases(64 * times, 4), law) == 0


def claimed(theorem: Theorem, leaf: DpEvent, pairs: Pairs) -> np.ndarray:
    """What a theorem about one (epsilon, delta) at a time makes of each case at `DELTAS`, shape [n, deltas]."""
    return np.array([[theorem(leaf, delta, Exact(one).epsilon_of) for delta in DELTAS] for one in pairs])


def broken_claims(search: Pairs, epsilons: np.ndarray) -> int:
    """How many claims at `DELTAS` the search does not keep."""
    finite = np.minimum(epsilons, 50.0)
    return int(np.sum((search.delta(finite) > np.array(DELTAS) + SLACK) & (epsilons < 50)))


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize(("gamma", "delta2"), [(0.5, 1e-6), (0.15, 1e-7), (0.9, 1e-3), (1.0, 1e-6)])
def test_liu_and_talwars_random_stopping(gamma: float, delta2: float, times: int) -> None:
    leaf = random_stopping(ANY, gamma=gamma, delta2=delta2)
    pairs = cases(500 * times, 5)
    search = best(pairs, probabilities(leaf.tries))
    assert broken_claims(search, claimed(claims.random_stopping, leaf, pairs)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize(("gamma", "limit"), [(0.5, 60), (0.1, 300), (0.3, 12), (0.05, 3), (1.0, 1)])
@pytest.mark.parametrize("good", [1, 3])
def test_the_known_threshold(gamma: float, limit: int, good: int, times: int) -> None:
    leaf = above_threshold(ANY, gamma=gamma, limit=limit)
    pairs = cases(40 * times, 6)
    search = first_good(pairs, leaf.tries, good)
    assert broken_claims(search, claimed(claims.above_threshold, leaf, pairs)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("limit", [1, 4, 30])
@pytest.mark.parametrize("law", [LAWS[2], LAWS[5], POISSONS[1]], ids=str)
def test_a_hard_stop(law: NegativeBinomial | Poisson, limit: int, times: int) -> None:
    pairs = cases(40 * times, 7)
    endless = best(pairs, probabilities(law))
    leaf = select(ANY, law, limit)
    assert broken_claims(best(pairs, limited(law, limit)), claimed(claims.hard_stop, leaf, endless)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, 30.0])
def test_the_noisy_maximum(scale: float, adjacency: Adjacency, times: int) -> None:
    """With Gumbel noise the winner's law is a softmax of the counts."""
    search = noisy_maxima(scale, adjacency, 2000 * times)
    bound = noisy_max_epsilon(noisy_max(noise_scale=scale), adjacency)
    assert broken(np.abs(np.log(search.p) - np.log(search.q)), np.full(search.p.shape, bound)) == 0


def noisy_maxima(scale: float, adjacency: Adjacency, n: int) -> Pairs:
    rng = np.random.Generator(np.random.Philox(8))
    counts = rng.integers(0, 12, (n, OUTCOMES)).astype(float)
    moved = rng.integers(0 if adjacency is Adjacency.ADD_OR_REMOVE_ONE else -1, 2, counts.shape)
    return Pairs(*(special.softmax(one / scale, axis=1) for one in (counts, counts + moved)))


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.95])
def test_the_profile_of_a_sampled_mechanism(rate: float, times: int) -> None:
    cube = cubes(3000 * times, 9)
    assert broken(cube.sampled(rate).delta(EPSILONS), sampled_profile(cube, rate)) == 0


def sampled_profile(cube: Cube, rate: float) -> np.ndarray:
    return np.asarray(Sampled(inner=cube, rate=rate).delta(EPSILONS))  # type: ignore[arg-type]


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.95])
def test_the_curve_of_a_sampled_mechanism(rate: float, times: int) -> None:
    cube = cubes(600 * times, 10)
    assert broken(cube.sampled(rate).renyi(ORDERS), sampled_curve(cube, rate)) == 0


def sampled_curve(cube: Cube, rate: float) -> np.ndarray:
    """Zhu and Wang's bound of each case."""
    orders = np.unique(np.concatenate([ORDERS, np.arange(2.0, ORDERS.max() + 1)]))
    curves = cube.renyi(orders)
    return np.array(
        [
            renyi.sampled(rate, ORDERS, lambda at, curve=curve: curve[np.searchsorted(orders, at)])  # type: ignore[misc]
            for curve in curves
        ]
    )


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("rate", [0.02, 0.2, 0.6, 1.0])
def test_training_the_winner_on_the_rest_costs_no_more_than_on_all(rate: float, times: int) -> None:
    tuning = tunings(2500 * times, 11)
    on_all, on_rest = (tuning.on(TrainOn(where), rate) for where in ("all", "rest"))
    assert broken(on_rest.delta(EPSILONS), on_all.delta(EPSILONS)) == 0
    assert broken(on_rest.renyi(ORDERS), on_all.renyi(ORDERS)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("train_on", list(TrainOn))
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_the_curve_of_tuning_on_a_part(rate: float, train_on: TrainOn, times: int) -> None:
    tuning = tunings(500 * times, 12)
    assert broken(tuning.on(train_on, rate).renyi(ORDERS), tuned_curve(tuning, rate)) == 0


def tuned_curve(tuning: Tuning, rate: float) -> np.ndarray:
    """The sampled search's curve and that of the worst run after it."""
    runs = Pairs(*(one.reshape(-1, OUTCOMES) for one in (tuning.run.p, tuning.run.q))).renyi(ORDERS)
    search = sampled_curve(Cube({4: tuning.search.p, 0: tuning.search.q}), rate)
    return np.asarray(search + runs.reshape(len(search), OUTCOMES, -1).max(axis=1))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("law", [LAWS[2], LAWS[5], Poisson(mean=4.0), Capped(tries=LAWS[2], limit=4)], ids=str)
def test_a_search_among_unlike_points_costs_no_more_than_among_their_mixture(law: Any, times: int) -> None:
    """Two points, one of them taken at random by every try, and which one it was is shown."""
    one, other = cases(200 * times, 13), cases(200 * times, 14)
    order = np.random.Generator(np.random.Philox(15)).permutation(2 * OUTCOMES)
    mixed = Pairs(*(np.concatenate([a, b], axis=1)[:, order] / 2 for a, b in ((one.p, other.p), (one.q, other.q))))
    search = best(mixed, probabilities(law))
    both = zip(one.renyi(ORDERS), other.renyi(ORDERS), strict=True)
    curves = [renyi.mixture(pair, (0.5, 0.5), ORDERS) for pair in both]
    if isinstance(law, NegativeBinomial):
        assert broken(search.renyi(ORDERS), np.array([renyi.selected(each, ORDERS, law) for each in curves])) == 0
    mixtures = [Mixture(inner=(Exact(a), Exact(b)), weights=(0.5, 0.5)) for a, b in zip(one, other, strict=True)]
    assert broken(mixed.delta(EPSILONS), np.array([each.delta(EPSILONS) for each in mixtures])) == 0
    profiles = [BestOf(inner=each, tries=law).delta(EPSILONS) for each in mixtures]
    assert broken(search.delta(EPSILONS), np.array(profiles)) == 0


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("law", [LAWS[2], Poisson(mean=4.0)], ids=str)
def test_the_interpolated_profile_of_a_search_is_an_upper_bound(law: Any) -> None:
    pairs, epsilons = cases(60, 16), np.linspace(0.0, 6.0, 10 * envelope.ANCHORS)
    bounds = [BestOf(inner=Exact(pair), tries=law).delta(epsilons) for pair in pairs]
    assert broken(best(pairs, probabilities(law)).delta(epsilons), np.array(bounds)) == 0


def test_a_mixture_is_exact_and_cheaper_than_the_worst() -> None:
    one, other = cases(200, 13), cases(200, 14)
    mixed = Pairs(*(np.concatenate([a / 4, 3 * b / 4], axis=1) for a, b in ((one.p, other.p), (one.q, other.q))))
    profiles = [Mixture(inner=(Exact(a), Exact(b)), weights=(0.25, 0.75)) for a, b in zip(one, other, strict=True)]
    deltas = np.array([each.delta(EPSILONS) for each in profiles])
    assert deltas == pytest.approx(mixed.delta(EPSILONS), rel=1e-9, abs=1e-15)
    worst = np.array([Worst(inner=each.inner).delta(EPSILONS) for each in profiles])
    assert np.all(deltas <= worst * (1 + 1e-9))
    assert np.any(deltas < 0.9 * worst)


def test_an_endless_curve_stays_endless_when_sampled() -> None:
    assert np.all(np.isinf(renyi.sampled(0.1, ORDERS, lambda orders: np.full(len(orders), np.inf))))


def _curve_with(law: NegativeBinomial, factor: float, tries: float) -> int:
    """Papernot and Steinke's curve with another factor before its penalty and another mean."""
    pairs = cases(4000, 20)
    curve = pairs.renyi(ORDERS)
    penalty = ((1 - 1 / ORDERS) * curve - math.log(law.gamma) / ORDERS).min(axis=1)
    bound = curve + factor * penalty[:, None] + math.log(tries) / (ORDERS - 1)
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), bound)


def _poisson_without_delta() -> int:
    pairs, law = cases(1000, 21), Poisson(mean=10.0)
    bound = [renyi.selected_poisson(curve, ORDERS, law, np.zeros_like) for curve in pairs.renyi(ORDERS)]
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), np.array(bound))


def _poisson_without_none() -> int:
    """The moment of the outcomes of tries alone: what the theorem says, and wrong below a mean of 1."""
    pairs, law = cases(400, 21), Poisson(mean=0.4)
    deltas = pairs.delta(np.log1p(1 / (ORDERS - 1)))
    bound = np.maximum(0, pairs.renyi(ORDERS) + law.mean * deltas + math.log(law.mean) / (ORDERS - 1))
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), bound)


class _OneDirection(BestOf):
    """With the divergence of Q from Q' also in place of that of Q' from Q."""

    def __init__(self, *, inner: Exact, tries: Tries) -> None:
        super().__init__(inner=OneWay(inner.pair), tries=tries)  # type: ignore[arg-type]


class _Generating(BestOf):
    """With f(T(u)) in place of f'(T(u))."""

    def _lines(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        slopes, offsets = super()._lines(curve)
        tries: Any = self.tries
        tops = (1 - (slopes[1:] / slopes[-1]) ** (-1 / (1 + tries.eta)) * tries.gamma) / (1 - tries.gamma)
        return np.append(0.0, [tries.generating(float(np.clip(top, 0, 1))) for top in tops]), offsets


class _RoundedDown(BestOf):
    """With f'(T) at the lower end of a cell of u and f'(u) at its upper end."""

    def _lines(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        slopes, offsets = super()._lines(curve)
        return slopes[:-1], np.append(0.0, offsets[2:])


class _Unordered(BestOf):
    """With a trade-off curve that is not concave: of tests that add the outcomes in no order of their ratios."""

    def _lines(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        p, q = self.inner.pair.p[0], self.inner.pair.q[0]  # type: ignore[attr-defined]
        ends, tops = np.append(0.0, np.cumsum(q)), np.append(0.0, np.cumsum(p))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(envelope, "trade_off", lambda _, at: np.interp(at, ends, tops))
            return super()._lines(curve)


def _envelope_with(bound: type[BestOf], law: Tries, cells: int = 300) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "CELLS", cells)
        patch.setattr(envelope, "LINES", 300)
        return above_the_envelope(cases(100, 22), law, bound)


def _law_with(law: NegativeBinomial, told: NegativeBinomial) -> int:
    pairs = cases(100, 22)
    bounds = np.array([BestOf(inner=Exact(one), tries=told).delta(EPSILONS) for one in pairs])
    return broken(best(pairs, probabilities(law)).delta(EPSILONS), bounds)


def _stopping_with(theorem: Theorem, gamma: float, delta2: float) -> int:
    leaf = random_stopping(ANY, gamma=gamma, delta2=delta2)
    pairs = cases(1000, 23)
    return broken_claims(best(pairs, probabilities(leaf.tries)), claimed(theorem, leaf, pairs))


def _threshold_with(theorem: Theorem, gamma: float, limit: int) -> int:
    leaf = above_threshold(ANY, gamma=gamma, limit=limit)
    pairs = cases(100, 24)
    return sum(
        broken_claims(first_good(pairs, leaf.tries, good), claimed(theorem, leaf, pairs)) for good in range(1, OUTCOMES)
    )


def _sampled_with(rate: float, told: float) -> int:
    cube = cubes(1000, 25)
    return broken(cube.sampled(rate).delta(EPSILONS), sampled_profile(cube, told))


def _sampled_curve_with(rate: float, told: float) -> int:
    cube = cubes(400, 26)
    return broken(cube.sampled(rate).renyi(ORDERS), sampled_curve(cube, told))


def _hard_stop_ignored() -> int:
    law, pairs = LAWS[5], cases(400, 27)
    told = np.stack([best(pairs, probabilities(law)).epsilon(delta) for delta in DELTAS], axis=1)
    return broken_claims(best(pairs, limited(law, 2)), told)


def _noisy_max_with(scale: float, told: float) -> int:
    search = noisy_maxima(scale, Adjacency.REPLACE_ONE, 2000)
    return broken(np.abs(np.log(search.p) - np.log(search.q)), np.full(search.p.shape, told))


def _rest_as_sampled_alone() -> int:
    """As if the final run on the rest came for nothing."""
    tuning = tunings(2000, 28)
    return broken(
        tuning.on(TrainOn.REST, 0.2).delta(EPSILONS),
        sampled_profile(Cube({4: tuning.search.p, 0: tuning.search.q}), 0.2),
    )


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(lambda: _curve_with(LAWS[5], 1.0, LAWS[5].mean), id="eta for 1 + eta"),
        pytest.param(lambda: _curve_with(LAWS[5], 2.0, 1.0), id="no mean in the curve"),
        pytest.param(lambda: _curve_with(LAWS[4], 0.01, LAWS[4].mean), id="no penalty"),
        pytest.param(_poisson_without_delta, id="poisson without delta"),
        pytest.param(_poisson_without_none, id="poisson without the outcome of no try"),
        pytest.param(lambda: _law_with(LAWS[5], NegativeBinomial(eta=0.0, gamma=LAWS[5].gamma)), id="eta 0 for 1"),
        pytest.param(lambda: _envelope_with(_OneDirection, LAWS[5]), id="one direction"),
        pytest.param(lambda: _envelope_with(_Generating, LAWS[5]), id="f for its derivative"),
        pytest.param(lambda: _envelope_with(_RoundedDown, LAWS[5], cells=12), id="cells rounded the wrong way"),
        pytest.param(lambda: _envelope_with(_Unordered, LAWS[5]), id="a trade-off curve that is not concave"),
        pytest.param(
            lambda: _stopping_with(lambda leaf, delta, at: 3 * at(leaf.event, delta), 0.5, 1e-6), id="delta1 = delta"
        ),
        pytest.param(
            lambda: _stopping_with(lambda leaf, delta, at: at(leaf.event, delta), 0.15, 1e-7), id="epsilon once"
        ),
        pytest.param(
            lambda: _threshold_with(lambda leaf, delta, at: 2 * at(leaf.event, delta), 0.1, 300),
            id="delta, not gamma delta",
        ),
        pytest.param(
            lambda: _threshold_with(lambda leaf, delta, at: at(leaf.event, 0.1 * delta), 0.1, 300),
            id="epsilon, not twice",
        ),
        pytest.param(_hard_stop_ignored, id="hard stop for nothing"),
        pytest.param(lambda: _sampled_with(0.5, 0.45), id="rate too small in the profile"),
        pytest.param(lambda: _sampled_curve_with(0.5, 0.3), id="rate too small in the curve"),
        pytest.param(lambda: _noisy_max_with(1.0, 1.0), id="replacement as addition"),
        pytest.param(_rest_as_sampled_alone, id="the rest for nothing"),
    ],
)
def test_the_oracle_catches(found: Callable[[], int]) -> None:
    assert found() > 0
