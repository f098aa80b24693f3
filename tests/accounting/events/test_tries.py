"""Laws of the number of tries against their definitions, summed term by term."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.trial_counts import Capped, NegativeBinomial, Poisson, Stopping, Tries, draw_number
from dpsweep.accounting.lower_bounds.selection_attack import chance_to_draw_best_share, generating_function_rise

LAWS = [
    NegativeBinomial.with_mean(eta=1.0, mean=10.0),
    NegativeBinomial.with_mean(eta=0.5, mean=4.0),
    NegativeBinomial.with_mean(eta=0.0, mean=10.0),
    NegativeBinomial.with_mean(eta=-0.5, mean=6.0),
    NegativeBinomial(eta=3.0, gamma=1.0),
    Poisson(mean=7.0),
    Stopping(gamma=0.2, limit=30),
    Stopping(gamma=1.0, limit=3),
]
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)


def probabilities(law: Tries | Stopping) -> list[float]:
    """P(K = 0), P(K = 1), ... from the definition in the paper."""
    if isinstance(law, Poisson):
        return [math.exp(-law.mean + k * math.log(law.mean) - math.lgamma(k + 1)) for k in range(400)]
    if isinstance(law, Stopping):
        before = [law.gamma * (1 - law.gamma) ** (k - 1) for k in range(1, law.limit)]
        return [0.0, *before, 1 - sum(before)]
    assert isinstance(law, NegativeBinomial)
    weights = [0.0, 1.0]
    for k in range(2, 3000):
        weights.append(weights[-1] * (1 - law.gamma) * (k - 1 + law.eta) / k)
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@every_law
def test_moments_and_tails_are_those_of_the_definition(law: Tries | Stopping) -> None:
    exact = probabilities(law)
    assert law.mean == pytest.approx(sum(k * p for k, p in enumerate(exact)), rel=1e-9)
    for x in (0.0, 0.3, 0.9, 1.0):
        assert 1 - generating_function_rise(law, x, 1 - x) == pytest.approx(
            sum(p * x**k for k, p in enumerate(exact)), abs=1e-12
        )
    if isinstance(law, Stopping):
        return
    for x in (0.0, 0.3, 0.9, 1.0):
        slope = sum(k * p * x ** (k - 1) for k, p in enumerate(exact) if k)
        assert law.generating_function_slope(np.array([x])) == pytest.approx(slope, rel=1e-9)
    for limit in (1, 5, 29, 30, 60):
        beyond = math.fsum(exact[limit + 1 :])
        assert law.probability_beyond(limit) == pytest.approx(beyond, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("eta", [100.0, 200.0, 800.0])
def test_a_law_with_its_mass_far_away_has_no_less_beyond_a_limit(eta: float) -> None:
    """As many probabilities are summed as the law needs: with fewer, the tail was 0, and a limit cost nothing."""
    law = NegativeBinomial(eta=eta, gamma=0.5)
    assert law.probability_beyond(1) == pytest.approx(1.0, abs=1e-12)
    assert 0.3 < law.probability_beyond(round(law.mean)) < 0.7
    with pytest.raises(UnsupportedEvent, match="smaller eta"):
        NegativeBinomial(eta=3000.0, gamma=0.5).probability_beyond(1)


@every_law
@pytest.mark.parametrize("limit", [None, 3])
def test_draws_follow_the_law(law: Tries | Stopping, limit: int | None) -> None:
    rng, exact = Random(1), probabilities(law)
    if limit is not None and not isinstance(law, Stopping):
        exact = [*exact[:limit], math.fsum(exact[limit:])]
    draws = [draw_number(law, limit, rng) for _ in range(4000)]
    mean = math.fsum(k * p for k, p in enumerate(exact))
    spread = math.sqrt(sum(p * (k - mean) ** 2 for k, p in enumerate(exact)) / len(draws))
    assert abs(sum(draws) / len(draws) - mean) <= 5 * spread + 1e-12
    for k in (0, 1, 2, 5):
        assert draws.count(k) / len(draws) == pytest.approx(exact[k] if k < len(exact) else 0.0, abs=0.04)


@pytest.mark.parametrize("limit", [1, 2, 7, 400])
@pytest.mark.parametrize("law", [law for law in LAWS if not isinstance(law, Stopping)], ids=repr)
def test_a_limit_keeps_what_lies_beyond_it(law: NegativeBinomial | Poisson, limit: int) -> None:
    exact = probabilities(law)
    capped, chances = Capped(tries=law, limit=limit), [*exact[:limit], math.fsum(exact[limit:])]
    assert capped.probabilities_up_to(limit) == pytest.approx(chances, rel=1e-9, abs=1e-15)
    assert capped.mean == pytest.approx(sum(k * p for k, p in enumerate(chances)), rel=1e-9)


@pytest.mark.parametrize("eta", [-0.9, -0.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("mean", [1.0, 1.001, 4.0, 35.0, 1000.0])
def test_a_law_is_found_by_its_mean(eta: float, mean: float) -> None:
    assert NegativeBinomial.with_mean(eta=eta, mean=mean).mean == pytest.approx(mean, rel=1e-6)


def test_the_chance_of_the_best_point() -> None:
    """35 points, 40 tries on average: the mean flatters laws that are often 1."""
    chances = [
        chance_to_draw_best_share(NegativeBinomial.with_mean(eta=eta, mean=40.0), 1 / 35) for eta in (1.0, 0.0, -0.5)
    ]
    assert chances == pytest.approx([0.54, 0.37, 0.16], abs=5e-3)
    assert chance_to_draw_best_share(Poisson(mean=40.0), 1 / 35) == pytest.approx(0.68, abs=5e-3)
    assert chance_to_draw_best_share(LAWS[0], 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: NegativeBinomial(eta=-1.0, gamma=0.5), "Expected eta"),
        (lambda: NegativeBinomial(eta=math.nan, gamma=0.5), "Expected eta"),
        (lambda: NegativeBinomial(eta=1.0, gamma=0.0), "gamma=0.0"),
        (lambda: NegativeBinomial.with_mean(eta=1.0, mean=0.5), "Expected mean"),
        (lambda: Poisson(mean=0.0), "Expected mean"),
        (lambda: Stopping(gamma=0.5, limit=0), "Expected limit"),
        (lambda: chance_to_draw_best_share(LAWS[0], 0.0), "share=0.0"),
    ],
)
def test_what_is_no_law_is_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
