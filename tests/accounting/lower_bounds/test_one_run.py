"""Bounds from one run with many canaries, against a linear program, other theorems, and simulated mechanisms."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, norm

from dpsweep.accounting.lower_bounds.canary_attack import CanarySteps
from dpsweep.accounting.lower_bounds.ideal_audit import NOISE_HALVED, RIGHT, IdealAudit, Mistake
from dpsweep.accounting.lower_bounds.one_run import (
    Claim,
    GuessCounts,
    Guesses,
    epsilon_lower_bound,
    fewest_right_guesses_to_refute,
    guesses_from_scores_and_coins,
    p_value,
    refutes_claim,
)
from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile

DELTAS = tuple(float(delta) for delta in np.geomspace(1e-6, 0.4, 16))


def gaussian(mu: float) -> Claim:
    """The privacy curve of a Gaussian mechanism."""
    return Claim(epsilons=tuple(map(GaussianProfile(mu=mu).epsilon, DELTAS)), deltas=DELTAS)


def pair(epsilon: float, delta: float) -> Claim:
    return Claim(epsilons=(epsilon,), deltas=(delta,))


def worst_probability(guesses: Guesses, claim: Claim) -> float:
    """The largest probability of so many right guesses that the theorem allows, by a linear program."""
    right, rows, limits = np.arange(guesses.made + 1), [], []
    for count in range(1, guesses.made + 1):
        sure = np.where(right >= count, right / guesses.canaries, 0)
        other = np.where(right >= count - 1, (guesses.made - right) / guesses.canaries, 0)
        for epsilon, delta in zip(claim.epsilons, claim.deltas, strict=True):
            rows += [math.exp(-epsilon) * sure - other, math.exp(epsilon) * sure - other]
            limits += [delta * math.exp(-epsilon), math.exp(epsilon) - 1 + delta]
    aim = -np.where(right >= guesses.right, 1.0, 0)
    solved = linprog(aim, A_ub=rows, b_ub=limits, A_eq=[np.ones(len(right))], b_eq=[1.0], method="highs")
    return float(-solved.fun)


@pytest.mark.parametrize(
    "claim",
    [pair(1.0, 0.01), pair(0.5, 0.0), pair(2.5, 1e-3), gaussian(0.8), gaussian(0.2)],
    ids=["pair", "pure", "large", "curve", "small curve"],
)
@pytest.mark.parametrize(
    ("canaries", "made", "right"), [(20, 20, 18), (30, 12, 11), (12, 6, 6), (40, 25, 17), (9, 1, 1)]
)
def test_the_p_value_is_that_of_the_worst_mechanism(claim: Claim, canaries: int, made: int, right: int) -> None:
    guesses = Guesses(canaries=canaries, made=made, right=right)
    exact = worst_probability(guesses, claim)
    assert exact * (1 - 1e-6) <= p_value(guesses, claim) <= min(1.0, exact * 1.011 + 1e-9)


@pytest.mark.parametrize(("made", "right", "epsilon"), [(100, 100, 3.0), (60, 50, 1.0), (500, 400, 1.2)])
def test_without_delta_it_is_nearly_the_binomial_tail_of_randomised_response(
    made: int, right: int, epsilon: float
) -> None:
    """Steinke, Nasr, Jagielski 2023, Theorem 3.1, which randomised response attains."""
    guesses = Guesses(canaries=made, made=made, right=right)
    tail = binom.sf(right - 1, made, 1 / (1 + math.exp(-epsilon)))
    assert tail * (1 - 1e-9) <= p_value(guesses, pair(epsilon, 0.0)) <= 1.5 * tail


def steinke(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Steinke, Nasr, Jagielski 2023, the p-value of their Appendix D."""
    rate, made, right = 1 / (1 + math.exp(-epsilon)), guesses.made, guesses.right
    between = np.cumsum([binom.pmf(right - i, made, rate) for i in range(1, right + 1)])
    largest = max(between / np.arange(1, right + 1))
    return float(min(1.0, binom.sf(right - 1, made, rate) + 2 * guesses.canaries * delta * largest))


@pytest.mark.parametrize(("canaries", "made", "right"), [(200, 60, 55), (1000, 300, 250), (1000, 1000, 800)])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_with_delta_it_is_stronger_than_the_theorem_for_one_epsilon_and_delta(
    canaries: int, made: int, right: int, delta: float
) -> None:
    guesses = Guesses(canaries=canaries, made=made, right=right)
    assert p_value(guesses, pair(1.0, delta)) < steinke(guesses, 1.0, delta)


def test_more_right_guesses_prove_more_and_a_larger_delta_less() -> None:
    bounds = [
        epsilon_lower_bound(Guesses(canaries=400, made=200, right=right), 1e-5, 0.05) for right in range(100, 201, 10)
    ]
    assert bounds[0] == 0
    assert all(low <= high for low, high in pairwise(bounds))
    guesses = Guesses(canaries=400, made=200, right=180)
    by_delta = [epsilon_lower_bound(guesses, delta, 0.05) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert all(low >= high for low, high in pairwise(by_delta))
    needed = fewest_right_guesses_to_refute(400, 200, pair(1.0, 1e-5), 0.05)
    assert needed is not None
    for right in (needed - 1, needed):
        refuted = refutes_claim(Guesses(canaries=400, made=200, right=right), pair(1.0, 1e-5), 0.05)
        assert refuted == (right == needed)
    assert fewest_right_guesses_to_refute(400, 2, pair(9.0, 1e-5), 0.05) is None
    assert epsilon_lower_bound(Guesses(canaries=10, made=4, right=0), 1e-5, 0.05) == 0


def test_of_a_correct_mechanism_few_audits_find_more_than_is_true() -> None:
    """Simulated Gaussian mechanisms: the test of the exact curve is wrong in at most so many cases as it says."""
    alarms, times, level, rng = 0, 400, 0.2, np.random.Generator(np.random.Philox(5))
    audit = IdealAudit(steps=(CanarySteps(rate=1.0, noise_multiplier=2.0, count=1),), canaries=300)
    for _ in range(times):
        scores, coins = audit.simulated_scores_and_coins(RIGHT, rng)
        guesses = guesses_from_scores_and_coins(scores, coins, GuessCounts(present=40, absent=40))
        alarms += refutes_claim(guesses, gaussian(0.5), level)
        bound = epsilon_lower_bound(guesses, 1e-2, level)
        alarms += bound > GaussianProfile(mu=0.5).epsilon(1e-2) and not refutes_claim(guesses, gaussian(0.5), level)
    assert alarms <= binom.isf(1e-6, times, level)


def test_power_is_what_simulated_audits_find() -> None:
    audit = IdealAudit(steps=(CanarySteps(rate=1.0, noise_multiplier=4.0, count=1),), canaries=4000)
    claim, rng = gaussian(0.25), np.random.Generator(np.random.Philox(6))
    split = audit.guess_counts_for_claim(claim, 0.05, rng)
    shares = [
        audit.share_of_refuting_audits(mistake, split, claim, 0.05)
        for mistake in (RIGHT, NOISE_HALVED, Mistake(share=1000.0))
    ]
    assert shares[0] == 0
    assert shares[1] > 0.8
    assert shares[2] == 1
    bound = audit.guess_counts_for_largest_bound(1e-5, 0.05, rng)
    bounds = [audit.median_epsilon_bound(mistake, bound, 1e-5, 0.05) for mistake in (RIGHT, NOISE_HALVED)]
    assert 0 < bounds[0] < bounds[1]
    noiseless = IdealAudit(steps=(CanarySteps(rate=1.0, noise_multiplier=0.0, count=1),), canaries=100)
    assert noiseless.median_epsilon_bound(RIGHT, GuessCounts(present=20, absent=20), 1e-5, 0.05) > 2


def test_guesses_take_the_highest_and_the_lowest_scores() -> None:
    coins = np.array([True, False, True, False, True])
    scores = np.array([5.0, -1.0, 0.0, 9.0, np.nan])
    assert guesses_from_scores_and_coins(scores, coins, GuessCounts(present=2, absent=1)) == Guesses(
        canaries=5, made=3, right=2
    )
    assert guesses_from_scores_and_coins(scores, coins, GuessCounts(present=1, absent=0)).right == 0
    assert guesses_from_scores_and_coins(np.zeros(5), coins, GuessCounts(present=0, absent=0)).made == 0
    with pytest.raises(ValueError, match="Expected scores"):
        guesses_from_scores_and_coins(scores[:3], coins, GuessCounts(present=1, absent=1))
    with pytest.raises(ValueError, match="Expected 0 <= right"):
        Guesses(canaries=3, made=2, right=3)
    with pytest.raises(ValueError, match="to have a delta each"):
        Claim(epsilons=(1.0,), deltas=())


def test_the_claim_is_the_largest_of_its_lines() -> None:
    rng = np.random.Generator(np.random.Philox(7))
    for _ in range(100):
        size = int(rng.integers(1, 8))
        deltas, epsilons = np.sort(rng.random(size)), np.sort(5 * rng.random(size))[::-1]
        claim = Claim(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))
        for level in (0.0, 1.0, *rng.random(10)):
            lines = [
                max((level - delta) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * (1 - level))
                for epsilon, delta in zip(epsilons, deltas, strict=True)
            ]
            assert claim.least_neighbour_probability(float(level)) == pytest.approx(max(0.0, *lines), abs=1e-12)


def test_the_curve_of_a_gaussian_is_its_trade_off() -> None:
    """Dong, Roth, Su 2022: f(x) = Phi(Phi^-1(1 - x) - mu); the claim's points lie below it, and near it."""
    fine = tuple(float(delta) for delta in np.geomspace(1e-9, 0.19, 400))
    claim = Claim(epsilons=tuple(map(GaussianProfile(mu=0.5).epsilon, fine)), deltas=fine)
    for level in (0.01, 0.2, 0.5, 0.9):
        exact = float(norm.cdf(norm.ppf(level) - 0.5))
        assert claim.least_neighbour_probability(level) == pytest.approx(exact, rel=0.01)
        assert claim.least_neighbour_probability(level) <= exact * (1 + 1e-9)
