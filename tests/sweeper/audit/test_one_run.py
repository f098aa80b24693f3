"""Bounds from one run with many canaries, against a linear program, other theorems, and simulated mechanisms."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from dpsweep.accounting.profiles.privacy_profiles import GaussianProfile
from dpsweep.sweeper.audit.one_run import (
    Guesses,
    best_bound,
    epsilon_lower_bound,
    guess_coins,
    refutes_epsilon,
)


def worst_probability(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses that the theorem allows, by a linear program."""
    right, rows, limits = np.arange(guesses.made + 1), [], []
    for count in range(1, guesses.made + 1):
        sure = np.where(right >= count, right / guesses.canaries, 0)
        other = np.where(right >= count - 1, (guesses.made - right) / guesses.canaries, 0)
        rows += [math.exp(-epsilon) * sure - other, math.exp(epsilon) * sure - other]
        limits += [delta * math.exp(-epsilon), math.exp(epsilon) - 1 + delta]
    aim = -np.where(right >= guesses.right, 1.0, 0)
    solved = linprog(aim, A_ub=rows, b_ub=limits, A_eq=[np.ones(len(right))], b_eq=[1.0], method="highs")
    return float(-solved.fun)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.5, 0.0), (2.5, 1e-3)])
@pytest.mark.parametrize(
    ("canaries", "made", "right"), [(20, 20, 18), (30, 12, 11), (12, 6, 6), (40, 25, 17), (9, 1, 1)]
)
def test_a_claim_is_refuted_at_the_probability_of_the_worst_mechanism(
    epsilon: float, delta: float, canaries: int, made: int, right: int
) -> None:
    guesses = Guesses(canaries=canaries, made=made, right=right)
    exact = worst_probability(guesses, epsilon, delta)
    assert refutes_epsilon(guesses, epsilon, delta, exact * 1.001 + 1e-9) or exact > 0.99
    assert not refutes_epsilon(guesses, epsilon, delta, exact * 0.999)


@pytest.mark.parametrize(("made", "right", "epsilon"), [(100, 100, 3.0), (60, 50, 1.0), (500, 400, 1.2)])
def test_without_delta_it_is_nearly_the_binomial_tail_of_randomised_response(
    made: int, right: int, epsilon: float
) -> None:
    """Steinke, Nasr, Jagielski 2023, Theorem 3.1, which randomised response attains."""
    guesses = Guesses(canaries=made, made=made, right=right)
    tail = binom.sf(right - 1, made, 1 / (1 + math.exp(-epsilon)))
    assert not refutes_epsilon(guesses, epsilon, 0.0, tail * 0.999)
    assert refutes_epsilon(guesses, epsilon, 0.0, 1.5 * tail)


def test_more_right_guesses_prove_more_and_a_larger_delta_less() -> None:
    bounds = [
        epsilon_lower_bound(Guesses(canaries=400, made=200, right=right), 1e-5, 0.05) for right in range(100, 201, 10)
    ]
    assert bounds[0] == 0
    assert all(low <= high for low, high in pairwise(bounds))
    guesses = Guesses(canaries=400, made=200, right=180)
    by_delta = [epsilon_lower_bound(guesses, delta, 0.05) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert all(low >= high for low, high in pairwise(by_delta))
    assert epsilon_lower_bound(Guesses(canaries=10, made=4, right=0), 1e-5, 0.05) == 0


def test_of_a_correct_mechanism_few_audits_find_more_than_is_true() -> None:
    """Simulated Gaussian mechanisms: the best of all guesses is above the truth in at most so many cases as it says."""
    alarms, times, level, rng = 0, 200, 0.2, np.random.Generator(np.random.Philox(5))
    truth = GaussianProfile(mu=0.5).epsilon(1e-2)
    for _ in range(times):
        coins = rng.random(300) < 0.5
        scores = 0.5 * coins + rng.standard_normal(300)
        alarms += best_bound(guess_coins(scores, coins), 1e-2, level)[0] > truth
    assert alarms <= binom.isf(1e-6, times, level)


def test_guesses_take_the_highest_and_the_lowest_scores() -> None:
    coins = np.array([True, False, True, False, True])
    scores = np.array([5.0, -1.0, 0.0, 9.0, np.nan])
    guesses = guess_coins(scores, coins)
    assert Guesses(canaries=5, made=2, right=1) in guesses, "the two highest are present in one case"
    assert Guesses(canaries=5, made=4, right=2) in guesses
    assert best_bound(guess_coins(np.arange(400), np.arange(400) > 200), 1e-5, 0.05)[0] > 2
    with pytest.raises(ValueError, match="Expected scores"):
        guess_coins(scores[:3], coins)
    with pytest.raises(ValueError, match="Expected 0 <= right"):
        Guesses(canaries=3, made=2, right=3)
