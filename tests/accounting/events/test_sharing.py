"""Runs on the same subsamples: one mechanism, however many runs it has, and never the price of independent ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    are_same_events,
    compose,
    gaussian,
    leaves_with_counts,
    poisson_gaussian,
    repeat,
    runs_on_shared_batches,
    step_on_shared_subsample,
    without_replacement_gaussian,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.records.plan import priced_events_of_runs
from dpsweep.accounting.selection.rules import Composition

ADD = Adjacency.ADD_OR_REMOVE_ONE


def run(noise: float = 1.2, steps: int = 5000, rate: float = 0.02) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)


def test_at_the_papers_setting_they_cost_more_than_ten_times_what_independent_ones_do() -> None:
    shared, alone = (
        Rdp().epsilon(event, 1e-5, ADD) for event in (runs_on_shared_batches([run()] * 35), compose([run()] * 35))
    )
    assert alone == pytest.approx(72.9, abs=0.2)
    assert shared > 1200
    assert shared / alone > 10


def test_together_they_are_one_gaussian_of_sensitivity_root_k() -> None:
    assert are_same_events(runs_on_shared_batches([run(noise=2.0, steps=7)] * 4), run(noise=1.0, steps=7))
    unequal = runs_on_shared_batches([run(noise=3.0, steps=7), run(noise=4.0, steps=7)])
    ((step, steps),) = leaves_with_counts(unequal)
    assert steps == 7
    assert step.event.noise_multiplier == pytest.approx((1 / 9 + 1 / 16) ** -0.5)


def test_one_run_shares_with_nobody() -> None:
    assert are_same_events(runs_on_shared_batches([run()]), run())


def test_a_run_that_is_over_costs_nothing_more() -> None:
    event = runs_on_shared_batches([run(noise=2.0, steps=3), run(noise=2.0, steps=10), run(noise=2.0, steps=10)])
    three, two = (step_on_shared_subsample(sample_rate=0.02, noise_multipliers=[2.0] * count) for count in (3, 2))
    assert are_same_events(event, compose([repeat(three, 3), repeat(two, 7)]))


def test_with_everybody_in_every_batch_there_is_nothing_to_share() -> None:
    full = run(noise=8.0, steps=20, rate=1.0)
    shared, alone = (
        Pld().epsilon(event, 1e-5, ADD) for event in (runs_on_shared_batches([full] * 9), compose([full] * 9))
    )
    assert shared == pytest.approx(alone, rel=2e-3)


@settings(deadline=None, max_examples=40)
@given(
    noises=st.lists(st.floats(0.7, 5.0), min_size=2, max_size=6),
    rate=st.sampled_from([0.01, 0.1, 0.5]),
    steps=st.integers(1, 200),
)
def test_sharing_is_never_cheaper_and_another_run_never_free(noises, rate, steps) -> None:
    runs = [run(noise, steps, rate) for noise in noises]
    shared, fewer = (Rdp().epsilon(runs_on_shared_batches(some), 1e-5, ADD) for some in (runs, runs[:-1]))
    assert shared >= Rdp().epsilon(compose(runs), 1e-5, ADD) * (1 - 1e-9)
    assert shared >= fewer


@pytest.mark.parametrize(
    "other",
    [
        run(rate=0.03),
        compose([run(), run(noise=2.0)]),
        repeat(gaussian(noise_multiplier=1.0), 5),
        repeat(without_replacement_gaussian(records=100, batch_size=10, noise_multiplier=1.0), 5),
    ],
    ids=["another rate", "two kinds of steps", "no subsample", "another sampler"],
)
def test_what_cannot_share_is_refused(other) -> None:
    with pytest.raises(ValueError, match=r"^Expected "):
        runs_on_shared_batches([run(), other])


def test_a_plan_pays_for_them_once_and_for_each_of_their_scores() -> None:
    points = [PlanEvent(training=run(noise=4.0, steps=9), validation=gaussian(noise_multiplier=20.0))] * 4
    (paid,) = priced_events_of_runs(points, shared=True)
    assert are_same_events(paid.training, run(noise=2.0, steps=9))
    assert paid.validation is not None
    assert are_same_events(paid.validation, repeat(gaussian(noise_multiplier=20.0), 4))
    whole = Composition().event((paid,))
    assert are_same_events(whole.training, paid.training)
    (unscored,) = priced_events_of_runs([PlanEvent(training=run())] * 2, shared=True)
    assert unscored.validation is None
    assert math.isfinite(Rdp().epsilon(whole.training, 1e-5, ADD))


@pytest.mark.parametrize("more", [{"spares": 1}, {"turns": 3}], ids=str)
def test_neither_spare_attempts_nor_proposals_share(more) -> None:
    with pytest.raises(BadInput, match="all points run at once"):
        priced_events_of_runs([PlanEvent(training=run())] * 2, shared=True, **more)
