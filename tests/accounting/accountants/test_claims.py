"""Theorems about one (epsilon, delta) pair, written out again by hand."""

from __future__ import annotations

import math

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import (
    PlanEvent,
    above_threshold,
    best_of_tries,
    black_box,
    compose,
    gaussian,
    random_stopping,
    repeat,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.selection.rules import Threshold

ADD = Adjacency.ADD_OR_REMOVE_ONE
RUN = gaussian(noise_multiplier=4.0)
PURE = black_box(epsilon=0.5, delta=0.0, adjacency=ADD)


def test_random_stopping_is_liu_and_talwars_theorem() -> None:
    """Theorem 3.4: epsilon = 3 eps1 + 3 sqrt(2 delta1) at delta = sqrt(2 delta1) T + delta2."""
    limit = math.ceil(40 * math.log(1e10))
    delta1 = ((1e-5 - 1e-10) / limit) ** 2 / 2
    expected = 3 * Rdp().epsilon(RUN, delta1, ADD) + 3 * math.sqrt(2 * delta1)
    assert Rdp().epsilon(random_stopping(RUN, gamma=1 / 40, delta2=1e-10), 1e-5, ADD) == pytest.approx(expected)
    exact = 3 * Pld().epsilon(RUN, delta1, ADD) + 3 * math.sqrt(2 * delta1)
    assert Pld().epsilon(random_stopping(RUN, gamma=1 / 40, delta2=1e-10), 1e-5, ADD) == pytest.approx(exact)
    assert 0.9 * expected < exact < expected


def test_delta2_must_leave_something() -> None:
    assert Rdp().epsilon(random_stopping(RUN, gamma=0.1, delta2=1e-5), 1e-5, ADD) == math.inf


def test_random_stopping_costs_three_runs_even_where_it_tries_once() -> None:
    once = random_stopping(RUN, gamma=1.0, delta2=1e-10)
    assert Rdp().epsilon(once, 1e-5, ADD) > 3 * Rdp().epsilon(RUN, 1e-5, ADD)


def test_a_known_threshold_costs_two_runs_and_the_hard_stop() -> None:
    """Theorem 3.1: the stop's (1 - gamma)^limit comes off delta; without delta it is 2 eps1."""
    gamma = 0.1
    cheap = Pld().epsilon(above_threshold(PURE, gamma=gamma, limit=600), 1e-5, ADD)
    assert 0.99 < cheap < 1.0 + 1e-3
    early = above_threshold(RUN, gamma=gamma, limit=140)
    epsilon = Pld().epsilon(early, 1e-5, ADD)
    left = 1e-5 - (1 - gamma) ** 140
    inner = Pld().epsilon(RUN, left * gamma, ADD)
    assert epsilon == pytest.approx(2 * inner, abs=1e-3)
    assert epsilon > Pld().epsilon(above_threshold(RUN, gamma=gamma, limit=600), 1e-5, ADD)
    assert Pld().epsilon(above_threshold(RUN, gamma=gamma, limit=100), 1e-5, ADD) == math.inf


def test_a_dear_threshold_is_finite() -> None:
    """The stop's price does not grow with exp(epsilon)."""
    search = Threshold(threshold=0.9, delta=1e-5).event([PlanEvent(training=gaussian(noise_multiplier=0.15))] * 10)
    epsilon, run = Pld().epsilon(search.training, 1e-5, ADD), gaussian(noise_multiplier=0.15)
    assert 100 < epsilon == pytest.approx(2 * Pld().epsilon(run, 1e-6, ADD), rel=1e-3)


@pytest.mark.parametrize("law", [NegativeBinomial.with_mean(eta=1.0, mean=10.0), Poisson(mean=10.0)], ids=repr)
def test_a_hard_stop_costs_the_mass_it_cuts_off(law: NegativeBinomial | Poisson) -> None:
    limit = 190 if isinstance(law, NegativeBinomial) else 29
    epsilon = Rdp().epsilon(best_of_tries(RUN, law, limit), 1e-5, ADD)
    left = 1e-5 - (1 + math.exp(epsilon)) * law.probability_beyond(limit)
    assert 0 < left < 0.999e-5
    assert epsilon == pytest.approx(Rdp().epsilon(best_of_tries(RUN, law), left, ADD), rel=1e-9)
    assert Rdp().epsilon(best_of_tries(RUN, law, 10), 1e-5, ADD) == math.inf, "a tail that delta cannot afford"
    unlimited = Rdp().epsilon(best_of_tries(RUN, law), 1e-5, ADD)
    assert Rdp().epsilon(best_of_tries(RUN, law, 400), 1e-5, ADD) == pytest.approx(unlimited, rel=1e-6)


def test_claims_compose_by_addition_at_equal_shares_of_delta() -> None:
    search, other = random_stopping(RUN, gamma=0.1, delta2=1e-10), above_threshold(RUN, gamma=0.2, limit=200)
    parts = [(search, 2), (other, 1), (RUN, 1)]
    expected = sum(count * Rdp().epsilon(event, 1e-5 / 4, ADD) for event, count in parts)
    whole = compose(repeat(event, count) for event, count in parts)
    assert Rdp().epsilon(whole, 1e-5, ADD) == pytest.approx(expected, rel=1e-12)
