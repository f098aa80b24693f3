"""Cycles of Poisson samples from fixed parts of the records: their price is that of as many Poisson-sampled steps."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpsweep.accounting.accountants.interface import Accountant
from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import (
    DpEvent,
    compose,
    from_json,
    number_of_steps,
    poisson_gaussian,
    repeat,
    runs_on_shared_batches,
    shuffled_gaussian,
    to_json,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.lower_bound import lower_bound
from dpsweep.reports.recomputation import event_price

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def cycles(count: int, parts: int, rate: float, noise: float) -> DpEvent:
    return shuffled_gaussian(epochs=count, steps=parts, noise_multiplier=noise, sample_rate=rate)


@pytest.mark.parametrize("accountant", [Pld(), Rdp(), Prv()], ids=lambda one: one.name)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_cycles_cost_what_as_many_poisson_steps_cost_to_the_last_bit(
    accountant: Accountant, adjacency: Adjacency
) -> None:
    if not isinstance(accountant, Pld) and adjacency is REPLACE:
        pytest.skip("no bound")
    ours, theirs = cycles(40, 8, 0.16, 1.2), repeat(poisson_gaussian(sample_rate=0.16, noise_multiplier=1.2), 40)
    assert accountant.epsilon(ours, 1e-5, adjacency) == accountant.epsilon(theirs, 1e-5, adjacency)


@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_full_parts_cost_what_the_closed_form_of_one_gaussian_says(parts: int, noise: float) -> None:
    """32 steps of full parts: 32 / parts Gaussian mechanisms, which are one of mu = sqrt(32 / parts) / noise."""
    mu = math.sqrt(32 / parts) / noise

    def delta(epsilon: float) -> float:  # Balle and Wang 2018, Theorem 8
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))

    exact = brentq(lambda epsilon: delta(epsilon) - 1e-5, 0.0, 100.0)
    price = Pld().epsilon(cycles(32 // parts, parts, 1.0, noise), 1e-5, ADD)
    assert exact <= price <= 1.001 * exact


@pytest.mark.parametrize("rate", [0.001, 1 / 8])
def test_more_parts_cost_more_at_equal_noise(rate: float) -> None:
    """What correlation saves in noise has to be more than what the amplification that is lost costs."""
    prices = [Pld().epsilon(cycles(64 // parts, parts, parts * rate, 1.0), 1e-5, ADD) for parts in (1, 2, 4, 8)]
    assert prices == sorted(prices)


def test_what_is_stored_names_the_rate_of_cycles_alone() -> None:
    event = cycles(3, 4, 0.25, 1.5)
    assert from_json(to_json(event)) == event
    assert number_of_steps(event) == 12
    epoch = shuffled_gaussian(epochs=1, steps=4, noise_multiplier=1.5)
    assert "sampling_probability" in str(to_json(event))
    assert "sampling_probability" not in str(to_json(epoch))
    assert to_json(cycles(1, 4, 1.0, 1.5)) == to_json(epoch)


@pytest.mark.parametrize("rate", [0.0, 1.5, float("nan")])
def test_no_cycle_has_another_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="sampling_probability="):
        cycles(1, 4, rate, 1.0)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_released_program_recomputes_the_price(adjacency: Adjacency) -> None:
    event = compose([cycles(40, 8, 0.16, 1.2), repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=1.2), 9)])
    ours = Pld().epsilon(event, 1e-5, adjacency)
    assert event_price.epsilon(to_json(event)["event"], 1e-5, str(adjacency)) == pytest.approx(ours, rel=2e-3)
    assert lower_bound(event, 1e-5, adjacency) <= ours


def test_shared_batches_of_cycles_have_no_price() -> None:
    with pytest.raises(ValueError, match=r"to repeat one Poisson-sampled Gaussian step"):
        runs_on_shared_batches([cycles(4, 8, 0.16, 1.2)] * 2)
