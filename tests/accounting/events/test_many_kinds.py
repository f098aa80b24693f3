"""Compositions of thousands of kinds of step: rounded down in groups, soundly and by little."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.accounting.accountants import pld, rdp
from dpsweep.accounting.accountants.interface import Accountant, round_noise_down
from dpsweep.accounting.accountants.pld import Pld, clear_cached_prices
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    are_same_events,
    as_fixed_batch_step,
    best_of_tries,
    compose,
    from_json,
    leaves_with_counts,
    poisson_gaussian,
    repeat,
    to_json,
    without_replacement_gaussian,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.pricing.panel import Panel

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def ramp(steps: int, noise: float = 1.2, rate: float = 0.02) -> DpEvent:
    """Yu, Zhang, Chen 2019, Equation 6: the noise multiplier grows to almost twice of what it was."""
    return compose(poisson_gaussian(sample_rate=rate, noise_multiplier=noise * (1 + t / steps)) for t in range(steps))


@given(
    noises=st.dictionaries(st.floats(0.1, 50), st.integers(1, 100), min_size=1, max_size=60),
    most=st.integers(1, 20),
)
def test_groups_are_few_lose_no_step_and_add_no_noise(noises: dict[float, int], most: int) -> None:
    steps = tuple((poisson_gaussian(sample_rate=0.5, noise_multiplier=noise), count) for noise, count in noises.items())
    coarse = round_noise_down(steps, most)
    assert len(coarse) <= max(1, most)
    fine, rounded = (
        sorted(noise for step, count in kinds for noise in [step.event.noise_multiplier] * count)
        for kinds in (steps, coarse)
    )
    assert len(fine) == len(rounded)
    assert all(less <= noise for less, noise in zip(rounded, fine, strict=True))
    if len(steps) <= most:
        assert set(coarse) == set(steps)


def test_a_noise_that_most_steps_have_stands_alone() -> None:
    falling = [1.001**step for step in range(600)]
    kinds = [(poisson_gaussian(sample_rate=0.1, noise_multiplier=noise), 1) for noise in falling]
    floor = poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0), 5000
    assert floor in round_noise_down((*kinds, floor), 4)


@pytest.mark.parametrize(
    ("accountant", "module", "kinds"),
    [pytest.param(Rdp(), rdp, 64, id="RDP"), pytest.param(Pld(), pld, 64, id="PLD", marks=pytest.mark.long)],
)
def test_rounding_down_costs_more_and_at_most_a_hundredth(
    accountant: Accountant, module: ModuleType, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = ramp(160)
    monkeypatch.setattr(module, "KINDS_OF_STEP", kinds)
    clear_cached_prices()
    coarse = accountant.epsilon(event, 1e-5, ADD)
    monkeypatch.setattr(module, "KINDS_OF_STEP", 160)
    clear_cached_prices()
    fine = accountant.epsilon(event, 1e-5, ADD)
    assert fine < coarse < 1.01 * fine


def test_accountants_and_attack_do_not_contradict_each_other() -> None:
    quote = Panel(claimants=(Pld(), Rdp())).quote(PlanEvent(training=ramp(70)), 1e-5, ADD)
    assert 0 < quote.lower < quote.bounds["PLD"] < quote.bounds["RDP"]
    assert forced_epsilon(ramp(70), 1e-5, ADD) == 0, "what was rounded down bounds nothing from below"


def batches(steps: int) -> DpEvent:
    return compose(
        without_replacement_gaussian(records=500, batch_size=10, noise_multiplier=4 * (1 + t / steps))
        for t in range(steps)
    )


def test_batches_of_fixed_size_are_rounded_down_too(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = round_noise_down(leaves_with_counts(batches(50)), 8)
    assert len(coarse) == 8
    assert sum(count for _, count in coarse) == 50
    found = [as_fixed_batch_step(leaf) for leaf, _ in coarse]
    assert {step[:2] for step in found if step} == {(10, 500)}
    fine = Pld().epsilon(batches(50), 1e-5, REPLACE)
    monkeypatch.setattr(pld, "KINDS_OF_STEP", 20)
    clear_cached_prices()
    assert fine < Pld().epsilon(batches(50), 1e-5, REPLACE) < 1.03 * fine


@pytest.mark.parametrize(
    "event", [ramp(300), compose([ramp(150), ramp(7)]), batches(200)], ids=["one", "counts", "batches"]
)
def test_many_kinds_of_step_come_back(event: DpEvent) -> None:
    form = json.loads(json.dumps(to_json(event)))
    assert from_json(form) == event
    assert to_json(from_json(form)) == form
    inside = best_of_tries(event, NegativeBinomial.with_mean(eta=1.0, mean=5.0))
    assert from_json(to_json(inside)) == inside


def test_ten_thousand_steps_are_one_composition() -> None:
    event = ramp(10_000)
    assert are_same_events(repeat(event, 2), compose([event, event]))
