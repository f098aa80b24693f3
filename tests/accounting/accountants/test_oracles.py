"""Brute force over small mechanisms: every theorem that a price rests on, against exact arithmetic.

The exact divergences of a search stand beside what the theorem makes of the exact divergences of one try. That the
comparison can fail is shown by test_wrong_theorems.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.accountants import interface as claims
from dpsweep.accounting.accountants import rdp as renyi
from dpsweep.accounting.accountants.interface import noisy_max_epsilon
from dpsweep.accounting.events.build import above_threshold, best_of_tries, noisy_max, random_stopping
from dpsweep.accounting.events.trial_counts import Capped, NegativeBinomial, Poisson, Stopping, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.selection_attack import generating_function_rise
from dpsweep.accounting.profiles import selection_envelope as envelope
from dpsweep.accounting.profiles.derived_profiles import mixture_profile, worst_profile
from dpsweep.accounting.profiles.selection_envelope import BestOf
from dpsweep.accounting.selection.rules import TrainOn
from tests.accounting.finite import (
    OUTCOMES,
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
from tests.accounting.theorem_bounds import (
    ANY,
    DELTAS,
    EPSILONS,
    LAWS,
    ORDERS,
    POISSONS,
    Exact,
    above_best_of_each,
    above_the_envelope,
    broken_claims,
    claimed,
    noisy_maxima,
    sampled_curve,
    sampled_profile,
)

CAPPED = [
    Capped(tries=LAWS[2], limit=4),
    Capped(tries=LAWS[5], limit=30),
    Capped(tries=POISSONS[2], limit=7),
    Capped(tries=NegativeBinomial(eta=1.0, gamma=0.1), limit=12),
]

SIZES = [pytest.param(1, id="some"), pytest.param(25, id="many", marks=pytest.mark.long)]


def selected_curve(pairs: Pairs, law: NegativeBinomial) -> np.ndarray:
    return np.array([renyi.negative_binomial_selection_curve(curve, ORDERS, law) for curve in pairs.renyi(ORDERS)])


def selected_poisson_curve(pairs: Pairs, law: Poisson) -> np.ndarray:
    def curve(one: Pairs) -> np.ndarray:
        return renyi.poisson_selection_curve(one.renyi(ORDERS)[0], ORDERS, law, lambda at: one.delta(at)[0])

    return np.array([curve(one) for one in pairs])


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The envelope on few cells and few tangents: an upper bound too, in a hundredth of the time."""
    monkeypatch.setattr(envelope, "CELLS", 3000)
    monkeypatch.setattr(envelope, "LINES", 300)
    monkeypatch.setattr(envelope, "STEP", 1e-3)


def test_the_laws_are_those_that_are_drawn_and_priced() -> None:
    for law in [*LAWS, *POISSONS, Stopping(gamma=0.2, limit=9)]:
        chances = probabilities(law)
        assert chances.sum() == pytest.approx(1, abs=TAIL * 10)
        assert chances @ np.arange(len(chances)) == pytest.approx(law.mean, rel=1e-9)
        assert chances @ 0.7 ** np.arange(len(chances)) == pytest.approx(
            1 - generating_function_rise(law, 0.7, 0.3), rel=1e-9
        )


def test_the_oracles_divergences_are_right() -> None:
    """Randomised response: its profile and its Renyi curve in closed form, and epsilon inverts delta."""
    yes = math.e / (1 + math.e)
    one = Pairs(np.array([[yes, 1 - yes]]), np.array([[1 - yes, yes]]))
    assert one.delta(EPSILONS)[0] == pytest.approx(np.maximum(0, yes - np.exp(EPSILONS) * (1 - yes)))
    assert one.renyi(ORDERS)[0] == pytest.approx(renyi.pure_dp_curve(1.0, ORDERS), rel=1e-9)
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


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("alike", [True, False])
def test_the_envelope_of_one_run_of_each_point(count: int, alike: bool, times: int) -> None:
    """Alike points are scored unlike each other all the same."""
    points = [cases(40 * times, 30 + (0 if alike else point)) for point in range(count)]
    assert above_best_of_each(points) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize(("gamma", "delta2"), [(0.5, 1e-6), (0.15, 1e-7), (0.9, 1e-3), (1.0, 1e-6)])
def test_liu_and_talwars_random_stopping(gamma: float, delta2: float, times: int) -> None:
    leaf = random_stopping(ANY, gamma=gamma, delta2=delta2)
    pairs = cases(500 * times, 5)
    search = best(pairs, probabilities(leaf.tries))
    assert broken_claims(search, claimed(claims.random_stopping_epsilon, leaf, pairs)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize(("gamma", "limit"), [(0.5, 60), (0.1, 300), (0.3, 12), (0.05, 3), (1.0, 1)])
@pytest.mark.parametrize("good", [1, 3])
def test_the_known_threshold(gamma: float, limit: int, good: int, times: int) -> None:
    leaf = above_threshold(ANY, gamma=gamma, limit=limit)
    pairs = cases(40 * times, 6)
    search = first_good(pairs, leaf.tries, good)
    assert broken_claims(search, claimed(claims.above_threshold_epsilon, leaf, pairs)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("limit", [1, 4, 30])
@pytest.mark.parametrize("law", [LAWS[2], LAWS[5], POISSONS[1]], ids=str)
def test_a_hard_stop(law: NegativeBinomial | Poisson, limit: int, times: int) -> None:
    pairs = cases(40 * times, 7)
    endless = best(pairs, probabilities(law))
    leaf = best_of_tries(ANY, law, limit)
    assert (
        broken_claims(best(pairs, limited(law, limit)), claimed(claims.hard_stopped_selection_epsilon, leaf, endless))
        == 0
    )


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, 30.0])
def test_the_noisy_maximum(scale: float, adjacency: Adjacency, times: int) -> None:
    """With Gumbel noise the winner's law is a softmax of the counts."""
    search = noisy_maxima(scale, adjacency, 2000 * times)
    bound = noisy_max_epsilon(noisy_max(noise_scale=scale), adjacency)
    assert broken(np.abs(np.log(search.p) - np.log(search.q)), np.full(search.p.shape, bound)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.95])
def test_the_profile_of_a_sampled_mechanism(rate: float, times: int) -> None:
    cube = cubes(3000 * times, 9)
    assert broken(cube.sampled(rate).delta(EPSILONS), sampled_profile(cube, rate)) == 0


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.95])
def test_the_curve_of_a_sampled_mechanism(rate: float, times: int) -> None:
    cube = cubes(600 * times, 10)
    assert broken(cube.sampled(rate).renyi(ORDERS), sampled_curve(cube, rate)) == 0


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
    curves = [renyi.mixture_curve(pair, (0.5, 0.5), ORDERS) for pair in both]
    if isinstance(law, NegativeBinomial):
        assert (
            broken(
                search.renyi(ORDERS),
                np.array([renyi.negative_binomial_selection_curve(each, ORDERS, law) for each in curves]),
            )
            == 0
        )
    mixtures = [mixture_profile((Exact(a), Exact(b)), (0.5, 0.5)) for a, b in zip(one, other, strict=True)]
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
    profiles = [mixture_profile((Exact(a), Exact(b)), (0.25, 0.75)) for a, b in zip(one, other, strict=True)]
    deltas = np.array([each.delta(EPSILONS) for each in profiles])
    assert deltas == pytest.approx(mixed.delta(EPSILONS), rel=1e-9, abs=1e-15)
    worst = np.array([worst_profile((Exact(a), Exact(b))).delta(EPSILONS) for a, b in zip(one, other, strict=True)])
    assert np.all(deltas <= worst * (1 + 1e-9))
    assert np.any(deltas < 0.9 * worst)


def test_an_endless_curve_stays_endless_when_sampled() -> None:
    assert np.all(np.isinf(renyi.poisson_sampled_curve(0.1, ORDERS, lambda orders: np.full(len(orders), np.inf))))
