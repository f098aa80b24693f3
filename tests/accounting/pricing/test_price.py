"""The accounting as a library: prices of searches, privacy curves, and Gaussian mu."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import (
    PlanEvent,
    compose,
    gaussian,
    no_access,
    noisy_count,
    non_private,
    poisson_gaussian,
    random_allocation,
    repeat,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.price import DELTAS, gaussian_mu, price, proven_gaussian_mu
from dpsweep.accounting.selection.interface import SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    Final,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Subsampled,
    Threshold,
)

DELTA = 1e-5
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
RUN = repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=2.0), 50)
SCORED = PlanEvent(training=RUN, validation=noisy_count(noise_std=8.0))
RULES: list[SelectionRule] = [
    Composition(),
    BestOfGrid(),
    PrivateSelection(),
    PoissonSelection(),
    RandomStopping(delta=DELTA),
    Threshold(threshold=0.9, delta=DELTA),
    NoisyMax(noise_scale=2.0),
    DisjointParts(),
    Subsampled(rate=0.1, rule=PrivateSelection()),
    Final(rule=PrivateSelection()),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_search_is_priced_by_the_default_panel_and_contains_its_attack(rule: SelectionRule) -> None:
    search = rule.search(SCORED, points=6)
    made, panel = price(search, DELTA), Panel(claimants=(Pld(), Rdp()))
    assert made.quote == panel.quote(search, DELTA, ADD)
    assert made.lower <= made.epsilon == min(made.bounds.values()) < math.inf
    assert made.epsilon_at(DELTA) == made.epsilon


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.final_run is None], ids=lambda rule: rule.name)
def test_a_search_is_the_rules_event_over_equal_points(rule: SelectionRule) -> None:
    assert rule.search(SCORED, points=6).is_same_as(rule.event([SCORED] * 6))
    assert rule.search(RUN, points=6).is_same_as(rule.event([PlanEvent(training=RUN)] * 6))


def test_a_search_with_a_final_run_pays_for_it() -> None:
    without, rule = PrivateSelection().search(SCORED, points=6), Final(rule=PrivateSelection())
    search = rule.search(SCORED, points=6)
    assert search.is_same_as(rule.event([PlanEvent(training=RUN, validation=SCORED.validation, final=SCORED)] * 6))
    assert price(search, DELTA).epsilon > price(without, DELTA).epsilon
    other = PlanEvent(training=RUN, final=PlanEvent(training=gaussian(noise_multiplier=1.0)))
    training = compose([PrivateSelection().search(RUN, points=6).training, gaussian(noise_multiplier=1.0)])
    assert rule.search(other, points=6).is_same_as(PlanEvent(training=training))
    assert DisjointParts().search(RUN, points=6).final is not None


@pytest.mark.parametrize("points", [0, -1, 2.5, True])
def test_a_search_has_points(points: int) -> None:
    with pytest.raises((ValueError, TypeError), match="n_points"):
        Composition().search(RUN, points=points)


@pytest.mark.parametrize("rule", [PrivateSelection(), BestOfGrid(), Composition()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_curves_fall_and_invert_each_other(rule: SelectionRule, adjacency: Adjacency) -> None:
    made = price(rule.search(SCORED, points=6), DELTA, adjacency=adjacency)
    assert made.quote.guarantee.adjacency is adjacency
    curve = made.curve((1e-2, 1e-4, 1e-6, 1e-8))
    assert list(curve.values()) == sorted(curve.values())
    for delta, epsilon in curve.items():
        assert made.delta_at(epsilon) == pytest.approx(delta, rel=2e-3)
    assert made.delta_at(made.epsilon) <= DELTA
    epsilons = np.linspace(0.0, 8.0, 9)
    assert np.all(np.diff(made.profile.delta(epsilons)) <= 0)
    assert all(
        made.delta_at(float(one)) <= 1.000001 * bound
        for one, bound in zip(epsilons, made.profile.delta(epsilons), strict=True)
    )


def test_a_search_costs_the_dearest_part_of_the_records() -> None:
    loud = PlanEvent(training=RUN, validation=noisy_count(noise_std=0.5))
    made = price(loud, DELTA)
    assert made.epsilon == made.quote.parts["validation"] == Pld().epsilon(gaussian(noise_multiplier=0.5), DELTA, ADD)
    assert made.delta_at(made.epsilon / 2) == pytest.approx(
        float(Pld().profile(gaussian(noise_multiplier=0.5), ADD).delta(np.array([made.epsilon / 2]))[0])
    )


def test_another_panel_and_another_neighbour_may_be_asked_for() -> None:
    assert price(RUN, DELTA, panel=Panel(claimants=(Rdp(),))).epsilon == Rdp().epsilon(RUN, DELTA, ADD)
    replaced = price(RUN, DELTA, adjacency="replace_one")  # type: ignore[arg-type]
    assert replaced.epsilon == Pld().epsilon(RUN, DELTA, REPLACE) > price(RUN, DELTA).epsilon


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_the_mu_of_a_gaussian_mechanism_is_its_own(noise: float) -> None:
    assert price(gaussian(noise_multiplier=noise), DELTA).mu() == pytest.approx(1 / noise, rel=1e-6)
    assert price(gaussian(noise_multiplier=noise), DELTA, adjacency=REPLACE).mu() == pytest.approx(2 / noise, rel=1e-6)


def test_a_mu_covers_its_deltas() -> None:
    made = price(PrivateSelection().search(RUN, points=6), DELTA)
    like = price(gaussian(noise_multiplier=1 / made.mu()), DELTA)
    assert all(made.epsilon_at(delta) <= like.epsilon_at(delta) for delta in DELTAS)
    assert made.mu((1e-5, 1e-6)) <= made.mu()


def test_a_mu_beyond_reach_is_infinite_and_never_too_small() -> None:
    assert gaussian_mu(1e4, 1e-5) == gaussian_mu(math.inf, 1e-5) == math.inf
    assert gaussian_mu(1.0, 1e-5) < gaussian_mu(2.0, 1e-5) < gaussian_mu(2.0, 1e-3)


def test_no_access_costs_nothing_and_no_noise_everything() -> None:
    nothing, everything = price(no_access(), DELTA), price(non_private(), DELTA)
    assert nothing.epsilon == nothing.epsilon_at(1e-9) == nothing.delta_at(0.0) == 0
    assert 0 < nothing.mu() < 1e-2
    assert everything.epsilon == everything.mu() == math.inf
    assert everything.delta_at(50.0) == 1


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_is_between_0_and_1(delta: float) -> None:
    with pytest.raises(ValueError, match=r"Expected .*delta="):
        price(RUN, delta)
    with pytest.raises(ValueError, match=r"Expected .*delta="):
        price(RUN, DELTA).epsilon_at(delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_an_epsilon_of_a_curve_is_finite_and_at_least_0(epsilon: float) -> None:
    with pytest.raises(ValueError, match="Expected epsilon="):
        price(RUN, DELTA).delta_at(epsilon)


def test_what_has_no_bound_is_refused() -> None:
    allocated = random_allocation(epochs=2, steps=10, noise_multiplier=4.0)
    made = price(allocated, DELTA, adjacency=REPLACE)
    assert made.epsilon == Rdp().epsilon(allocated, DELTA, REPLACE)
    with pytest.raises(UnsupportedEvent):
        made.delta_at(1.0)


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_a_proven_mu_is_that_of_the_steps_without_sampling(adjacency: Adjacency) -> None:
    sensitivity = 1 if adjacency is ADD else 2
    mu = proven_gaussian_mu([SCORED, SCORED], adjacency)
    assert mu == pytest.approx(sensitivity * math.sqrt(2 * 50 / 4), rel=1e-8)
    assert mu >= sensitivity * math.sqrt(2 * 50 / 4)


def test_a_proven_mu_bounds_the_curve_at_every_delta() -> None:
    run = PlanEvent(
        training=compose(
            [repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=4.0), 20), gaussian(noise_multiplier=3.0)]
        )
    )
    mu = proven_gaussian_mu([run], ADD)
    assert mu is not None
    assert price(run, DELTA).mu() <= mu
    allocated = PlanEvent(training=random_allocation(steps=10, noise_multiplier=3.0, epochs=4))
    assert proven_gaussian_mu([allocated], ADD) == pytest.approx(2 / 3)
    assert price(allocated, DELTA).mu() <= 2 / 3 + 1e-6


@pytest.mark.parametrize(
    "event",
    [
        PrivateSelection().search(SCORED, points=6),
        NoisyMax(noise_scale=2.0).search(SCORED, points=6),
        PlanEvent(training=gaussian(noise_multiplier=0.0)),
        PlanEvent(training=non_private()),
        None,
    ],
    ids=["secret tries", "gumbel", "no noise", "exact", "no event"],
)
def test_no_mu_is_proven_where_not_all_are_gaussian_steps(event: PlanEvent | None) -> None:
    assert proven_gaussian_mu([SCORED, event], ADD) is None


def test_of_no_access_mu_is_zero() -> None:
    assert proven_gaussian_mu([PlanEvent(training=no_access())], ADD) == 0.0
