"""Laws of the number of tries against their definitions, summed term by term."""

from __future__ import annotations

import math
from random import Random

import pytest

from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Stopping, Tries, chance_to_draw_best_share

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


def probabilities(law: Tries) -> list[float]:
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
def test_moments_and_tails_are_those_of_the_definition(law: Tries) -> None:
    exact = probabilities(law)
    assert law.mean == pytest.approx(sum(k * p for k, p in enumerate(exact)), rel=1e-9)
    for x in (0.0, 0.3, 0.9, 1.0):
        assert law.generating_function(x) == pytest.approx(sum(p * x**k for k, p in enumerate(exact)), abs=1e-12)
    for limit in (1, 5, 29, 30, 60):
        beyond = math.fsum(exact[limit + 1 :])
        assert beyond - 1e-15 <= law.probability_beyond(limit) <= beyond + 1e-11


@every_law
def test_draws_follow_the_law(law: Tries) -> None:
    rng, exact = Random(1), probabilities(law)
    draws = [law.sample(rng) for _ in range(4000)]
    mean = sum(draws) / len(draws)
    spread = math.sqrt(sum(p * (k - law.mean) ** 2 for k, p in enumerate(exact)) / len(draws))
    assert abs(mean - law.mean) <= 5 * spread + 1e-12
    for k in (0, 1, 2, 5):
        assert draws.count(k) / len(draws) == pytest.approx(exact[k] if k < len(exact) else 0.0, abs=0.04)


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
        (lambda: NegativeBinomial(eta=1.0, gamma=0.0), "Expected gamma"),
        (lambda: NegativeBinomial.with_mean(eta=1.0, mean=0.5), "Expected mean"),
        (lambda: Poisson(mean=0.0), "Expected mean"),
        (lambda: Stopping(gamma=0.5, limit=0), "Expected limit"),
        (lambda: chance_to_draw_best_share(LAWS[0], 0.0), "Expected share"),
    ],
)
def test_what_is_no_law_is_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
