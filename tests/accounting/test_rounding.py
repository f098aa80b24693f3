"""Rounded noise is in the price of one try, before the rule: brute-force winners, laws, and the charge for places."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpsweep.accounting import Adjacency, price
from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import (
    are_same_events,
    black_box,
    compose,
    from_json,
    number_of_steps,
    poisson_gaussian,
    repeat,
    to_json,
    with_rounded_noise,
)
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial, Poisson, Stopping, Tries
from dpsweep.accounting.events.types import RoundedNumberDpEvent
from dpsweep.accounting.lower_bounds.selection_attack import generating_function_rise
from dpsweep.accounting.profiles.privacy_profiles import (
    LOG_RATIO,
    REACHES,
    SHARE,
    TAIL,
    epsilon_with_rounding,
    log_ratio_of_numbers,
)
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Threshold,
)

ADD = Adjacency.ADD_OR_REMOVE_ONE
NEAR = REACHES[0]
EPSILON, X, RARE, DELTA = 0.3, 0.05, 1e-3, 1e-9
ONE = black_box(epsilon=EPSILON, delta=0.0, adjacency=ADD)
RUN = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 1000)


def _numbers_with_log_ratio(x: float) -> int:
    """The fewest numbers whose joint law may be x away from that of exact noise."""
    least, most = 1, 10**30
    while least < most:
        middle = (least + most) // 2
        least, most = (middle + 1, most) if log_ratio_of_numbers(middle, NEAR, TAIL) < x else (least, middle)
    return least


def _log_ratio_of_each(runs: int, delta: float) -> float:
    """How far each of several composed runs may be, if all are as far: their numbers together are what is bounded."""
    return log_ratio_of_numbers(runs * _numbers_with_log_ratio(X), NEAR, SHARE * delta) / runs


def _laws(x: float) -> tuple[np.ndarray, np.ndarray]:
    """A try's laws on three scores under both neighbours: pure `EPSILON`, then each within exp(+-x) of that.

    The rare middle score is where the winner's ratio is the largest: it wins against what is likely under one law only.
    """
    low = 1 / (1 + math.exp(EPSILON))
    p = np.array([0.0, RARE * math.exp(x), low * math.exp(-x)])
    q = np.array([low - RARE * math.exp(-EPSILON), RARE * math.exp(-EPSILON), 0.0]) * math.exp(-x)
    return p + np.array([1 - p.sum(), 0, 0]), q + np.array([0, 0, 1 - q.sum()])


def _winner(tries: Tries, law: np.ndarray) -> np.ndarray:
    """The law of the best try's score, and of no try: by the law of the largest of K."""
    tops = np.minimum(1.0, np.append(0.0, np.cumsum(law)))
    below = 1 - generating_function_rise(tries, tops, 1 - tops)
    return np.append(np.diff(below), below[0])


def _delta(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The larger hockey-stick divergence."""
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in ((one, other), (other, one)))


def test_the_laws_are_as_far_as_the_numbers_allow() -> None:
    exact, rounded = _laws(0.0), _laws(X)
    for one, other in zip(exact, rounded, strict=True):
        assert np.abs(np.log(other / one)).max() <= X * (1 + 1e-12)
    assert np.abs(np.log(exact[0] / exact[1])).max() <= EPSILON * (1 + 1e-12)
    assert _delta(*rounded, EPSILON + 1.9 * X) > 0


SECRET: list[tuple[SelectionRule, Tries]] = [
    (PrivateSelection(mean=10), NegativeBinomial.with_mean(eta=1.0, mean=10.0)),
    (PrivateSelection(mean=35), NegativeBinomial.with_mean(eta=1.0, mean=35.0)),
    (PrivateSelection(eta=0.0, mean=10), NegativeBinomial.with_mean(eta=0.0, mean=10.0)),
    (PoissonSelection(mean=10), Poisson(mean=10.0)),
]
OTHERS: list[tuple[SelectionRule, Tries]] = [
    (BestOfGrid(), EachPoint(count=4)),
    (RandomStopping(gamma=0.2, delta=1e-3), Stopping(gamma=0.2, limit=10**4)),
    (PrivateSelection(mean=10, limit=30), NegativeBinomial.with_mean(eta=1.0, mean=10.0)),
]


@pytest.mark.parametrize(("rule", "tries"), [*SECRET, *OTHERS])
def test_winners_of_rounded_tries_cost_no_more_than_the_price(rule: SelectionRule, tries: Tries) -> None:
    """Where all tries are secret, exact noise and one shift afterwards, as if one run had been rounded, is too low."""
    delta = DELTA if (rule, tries) in SECRET else 1e-3
    run = compose([ONE, repeat(RoundedNumberDpEvent(), _numbers_with_log_ratio(X))])
    asked, before = (price(rule.search(one, points=4), delta).epsilon for one in (run, ONE))
    x = _log_ratio_of_each(tries.count, delta) if isinstance(tries, EachPoint) else X  # all runs may be composed
    winners = [_winner(tries, law) for law in _laws(x)]
    assert before + 2 * X <= asked
    assert _delta(*winners, asked) <= delta
    if (rule, tries) in SECRET:
        assert _delta(*winners, before + 2 * X) > delta, "a shift after the rule is below the truth"


def test_all_tries_that_are_shown_cost_no_more_than_the_price() -> None:
    run = compose([ONE, repeat(RoundedNumberDpEvent(), _numbers_with_log_ratio(X))])
    shown = [np.prod(list(itertools.product(law, repeat=3)), axis=1) for law in _laws(_log_ratio_of_each(3, 1e-3))]
    asked = price(Composition().search(run, points=3), 1e-3).epsilon
    assert _delta(*shown, asked) <= 1e-3
    assert asked > price(Composition().search(ONE, points=3), 1e-3).epsilon


def test_the_first_try_above_a_threshold_costs_no_more_than_the_price() -> None:
    """The threshold is reached by the upper scores; a coin of 0.2 gives up."""
    run = compose([ONE, repeat(RoundedNumberDpEvent(), _numbers_with_log_ratio(X))])
    asked = price(Threshold(threshold=0.5, gamma=0.2, delta=1e-3).search(run, points=4), 1e-3).epsilon
    for good in (1, 2):
        outputs = []
        for law in _laws(X):
            reached = law[-good:] / (1 - 0.8 * (1 - law[-good:].sum()))
            outputs.append(np.append(reached, 1 - reached.sum()))
        assert _delta(*outputs, asked) <= 1e-3


@pytest.mark.parametrize("accountant", [Pld(), Rdp(), Prv()], ids=lambda one: one.name)
def test_more_numbers_never_cost_less(accountant: Accountant) -> None:
    prices = [
        accountant.epsilon(RUN if numbers is None else with_rounded_noise(RUN, numbers), 1e-5, ADD)
        for numbers in (None, 1, 1000, 10**6, 10**9)
    ]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1] < prices[0] + 1e-3


@pytest.mark.parametrize("rule", [PrivateSelection(), PoissonSelection(), BestOfGrid(), Composition()])
def test_the_numbers_of_each_run_are_in_the_price_of_a_search(rule: SelectionRule) -> None:
    prices = [
        price(rule.search(run, points=5), 1e-5).epsilon
        for run in (RUN, with_rounded_noise(RUN, 1000), with_rounded_noise(RUN, 10**7))
    ]
    assert prices == sorted(prices)
    assert prices[0] < prices[2] < prices[0] * (1 + 1e-4)


def test_numbers_of_all_runs_add_before_one_shift() -> None:
    event = with_rounded_noise(RUN, 100)
    grid = compose([event] * 7)
    assert are_same_events(grid, compose([repeat(RUN, 7), repeat(RoundedNumberDpEvent(), 7 * 100 * 1000)]))
    assert number_of_steps(grid) == 7000
    exact = Pld().epsilon(repeat(RUN, 7), 1e-5, ADD)
    x = log_ratio_of_numbers(7 * 1000 * 100, NEAR, 1e-9 * 1e-5)
    assert Pld().epsilon(grid, 1e-5, ADD) - exact == pytest.approx(2 * x, rel=0.5, abs=1e-9)


def test_by_hand_for_few_and_for_many_numbers() -> None:
    assert log_ratio_of_numbers(1, NEAR, TAIL) == LOG_RATIO
    assert 1.0 + 2 * LOG_RATIO <= epsilon_with_rounding(1, 1e-5, lambda delta: 1.0) < 1.0 + 2.01 * LOG_RATIO
    assert epsilon_with_rounding(0, 1e-5, lambda delta: delta) == 1e-5
    assert epsilon_with_rounding(10**9, 0.0, lambda delta: 1.0) == math.inf
    found = [log_ratio_of_numbers(10**power, NEAR, TAIL) for power in range(16)]
    assert found == sorted(found)
    assert found[10] < 1e-6


def test_a_price_that_the_near_reach_does_not_cover_is_shifted_further() -> None:
    near, far = (epsilon_with_rounding(10**12, 1e-5, lambda delta, e=e: e) - e for e in (60.0, 100.0))
    assert near < far


def test_stored_events_keep_their_numbers() -> None:
    event = with_rounded_noise(RUN, 7850)
    assert from_json(to_json(event)) == event
    many = compose([poisson_gaussian(sample_rate=0.1, noise_multiplier=1 + 0.01 * one) for one in range(150)])
    rounded = with_rounded_noise(many, 10)
    assert from_json(to_json(rounded)) == rounded
    assert len(str(to_json(rounded))) < 1.2 * len(str(to_json(many))), "still a table"
