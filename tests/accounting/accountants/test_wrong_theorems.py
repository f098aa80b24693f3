"""Wrong theorems are caught by the brute force of test_oracles.py: a constant, a term or a direction is changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dpsweep.accounting.accountants import rdp as renyi
from dpsweep.accounting.accountants.interface import Theorem
from dpsweep.accounting.events.build import above_threshold, random_stopping
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Tries
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.selection_attack import generating_function_rise
from dpsweep.accounting.profiles import selection_envelope as envelope
from dpsweep.accounting.profiles.privacy_profiles import Curve, Profile, curves_by_direction
from dpsweep.accounting.profiles.selection_envelope import BestOf
from dpsweep.accounting.selection.rules import TrainOn
from tests.accounting.finite import (
    OUTCOMES,
    Cube,
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
    Bound,
    Dearest,
    Exact,
    OneWay,
    above_best_of_each,
    above_the_envelope,
    broken_claims,
    claimed,
    noisy_maxima,
    sampled_curve,
    sampled_profile,
)

SLOPES_OF_CELLS = envelope.slopes_of_cells


def _curve_with(law: NegativeBinomial, factor: float, tries: float) -> int:
    """Papernot and Steinke's curve with another factor before its penalty and another mean."""
    pairs = cases(4000, 20)
    curve = pairs.renyi(ORDERS)
    penalty = ((1 - 1 / ORDERS) * curve - math.log(law.gamma) / ORDERS).min(axis=1)
    bound = curve + factor * penalty[:, None] + math.log(tries) / (ORDERS - 1)
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), bound)


def _poisson_without_delta() -> int:
    pairs, law = cases(1000, 21), Poisson(mean=10.0)
    bound = [renyi.poisson_selection_curve(curve, ORDERS, law, np.zeros_like) for curve in pairs.renyi(ORDERS)]
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), np.array(bound))


def _poisson_without_none() -> int:
    """The moment of the outcomes of tries alone: what the theorem says, and wrong below a mean of 1."""
    pairs, law = cases(400, 21), Poisson(mean=0.4)
    deltas = pairs.delta(np.log1p(1 / (ORDERS - 1)))
    bound = np.maximum(0, pairs.renyi(ORDERS) + law.mean * deltas + math.log(law.mean) / (ORDERS - 1))
    return broken(best(pairs, probabilities(law)).renyi(ORDERS), bound)


@dataclass(frozen=True)
class _NotItsSlope:
    """A law of tries with f in place of f'."""

    law: NegativeBinomial

    @property
    def mean(self) -> float:
        return self.law.mean

    def generating_function_slope(self, points: np.ndarray) -> np.ndarray:
        return generating_function_rise(self.law, np.zeros(len(points)), points)


def _with_f(inner: Any, law: NegativeBinomial) -> Profile:
    """With f in place of f'."""
    tries: Any = _NotItsSlope(law)
    return BestOf(inner, tries)


def _one_direction(inner: Exact, tries: Tries) -> Profile:
    """With the divergence of Q from Q' also in place of that of Q' from Q."""
    one: Any = OneWay(inner.pair)
    return BestOf(one, tries)


def _rounded_down(tries: Tries, ends: np.ndarray, bound: Curve) -> tuple[np.ndarray, np.ndarray]:
    """With f'(T) at the lower end of a cell of u and f'(u) at its upper end."""
    slopes, offsets = SLOPES_OF_CELLS(tries, ends, bound)
    return slopes[:-1], np.append(0.0, offsets[2:])


def _unordered(profile: Any) -> tuple[tuple[Curve, Curve], ...]:
    """With a trade-off curve that is not concave: of tests that add the outcomes in no order of their ratios."""
    p, q = (np.append(0.0, np.cumsum(one[0])) for one in (profile.pair.p, profile.pair.q))
    return tuple((curve, lambda ends: np.interp(ends, q, p)) for curve in curves_by_direction(profile))


def _one_try_less(inner: Dearest, tries: EachPoint) -> Profile:
    """With one try less than there are points."""
    told: Any = inner
    return BestOf(told, EachPoint(count=tries.count - 1))


def _first_point(inner: Dearest, tries: EachPoint) -> Profile:
    """With the profile of the first point in place of the dearest one's."""
    first: Any = inner.cases[0]
    return BestOf(first, tries)


def _each_with(bound: Bound, *seeds: int) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "CELLS", 3000)
        patch.setattr(envelope, "LINES", 300)
        return above_best_of_each([cases(40, seed) for seed in seeds], bound)


def _envelope_with(law: Tries, bound: Bound = BestOf, cells: int = 300, **patches: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CELLS": cells, "LINES": 300, **patches}.items():
            patch.setattr(envelope, name, value)
        return above_the_envelope(cases(100, 22), law, bound)


def _law_with(law: NegativeBinomial, told: NegativeBinomial) -> int:
    pairs = cases(100, 22)
    profiles: list[Any] = [Exact(one) for one in pairs]
    bounds = np.array([BestOf(one, told).delta(EPSILONS) for one in profiles])
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
        pytest.param(lambda: _envelope_with(LAWS[5], _one_direction), id="one direction"),
        pytest.param(
            lambda: _envelope_with(LAWS[5], lambda inner, law: BestOf(inner, _NotItsSlope(law))),
            id="f for its derivative",
        ),
        pytest.param(
            lambda: _envelope_with(LAWS[5], cells=12, slopes_of_cells=_rounded_down), id="cells rounded the wrong way"
        ),
        pytest.param(
            lambda: _envelope_with(LAWS[5], curves_and_tradeoffs=_unordered), id="a trade-off curve that is not concave"
        ),
        pytest.param(lambda: _each_with(_one_try_less, 31, 31), id="one try less than points"),
        pytest.param(lambda: _each_with(_first_point, 31, 32, 33), id="the first point for all"),
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
