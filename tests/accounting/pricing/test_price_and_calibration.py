from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsweep.accounting.accountants.pld import Pld, clear_cached_prices
from dpsweep.accounting.accountants.prv import Prv
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import AccountantsDisagree, BadInput, UnsupportedEvent
from dpsweep.accounting.events.build import (
    DpEvent,
    PlanEvent,
    are_same_events,
    gaussian,
    poisson_gaussian,
    random_allocation,
    repeat,
)
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.lower_bounds.forced_epsilon import forced_epsilon
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.search_terms import SearchTerms
from dpsweep.accounting.profiles.selection_envelope import curves_and_tradeoffs
from dpsweep.accounting.selection.interface import Disclosure, SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    PoissonSelection,
    PrivateSelection,
    RandomStopping,
    Subsampled,
    Threshold,
    rule_from_config,
)

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
PANEL = Panel(claimants=(Pld(), Rdp()))


def run(noise: float, steps: int = 100, rate: float = 0.1) -> PlanEvent:
    return PlanEvent(training=repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps))


def test_the_claim_is_the_tightest_and_both_are_recorded() -> None:
    quote = PANEL.quote(run(1.5), 1e-5, ADD)
    assert quote.claimed_by == "PLD"
    assert quote.epsilon == quote.bounds["PLD"] < quote.bounds["RDP"]
    assert quote.guarantee == Guarantee(epsilon=quote.epsilon, delta=1e-5)


def test_each_population_has_the_accountant_that_is_tightest_there() -> None:
    """Of a replaced record RDP alone bounds the epochs; PLD is tighter for the scores: each part has its own bound."""
    epochs = random_allocation(epochs=20, steps=20, noise_multiplier=8.0)
    scores = repeat(gaussian(noise_multiplier=4.0), 30)
    event, replaced = PlanEvent(training=epochs, validation=scores), Adjacency.REPLACE_ONE
    quote = PANEL.quote(event, 1e-5, replaced)
    parts = {"training": Rdp().epsilon(epochs, 1e-5, replaced), "validation": Pld().epsilon(scores, 1e-5, replaced)}
    assert quote.parts == parts
    assert quote.epsilon == max(parts.values()) == PANEL.epsilon(event, 1e-5, replaced)
    assert quote.claimed_by == "RDP and PLD"
    assert quote.bounds_by_part == {
        "training": {"RDP": parts["training"]},
        "validation": {one.name: one.epsilon(scores, 1e-5, replaced) for one in PANEL.claimants},
    }
    with pytest.raises(UnsupportedEvent, match="No accountant can bound this plan: PRV has no proven bound"):
        Panel(claimants=(Prv(),)).epsilon(PlanEvent(training=epochs, validation=scores), 1e-5, ADD)


def test_an_accountant_without_a_bound_on_one_population_is_heard_on_the_other() -> None:
    epochs, scores = random_allocation(epochs=2, steps=20, noise_multiplier=2.0), gaussian(noise_multiplier=8.0)
    panel = Panel(claimants=(Rdp(),), witnesses=(Prv(),))
    quote = panel.quote(PlanEvent(training=epochs, validation=scores), 1e-5, ADD)
    assert "PRV" not in quote.bounds
    assert quote.bounds_by_part["training"].keys() == {"RDP"}
    assert quote.bounds_by_part["validation"].keys() == {"RDP", "PRV"}


def test_witnesses_are_heard_but_never_claim() -> None:
    quote = Panel(claimants=(Rdp(),), witnesses=(Pld(), Prv())).quote(run(1.5), 1e-5, ADD)
    assert quote.claimed_by == "RDP"
    assert quote.epsilon == quote.bounds["RDP"] > quote.bounds["PRV"] > quote.bounds["PLD"]


def test_a_refusal_is_recorded_with_its_reason() -> None:
    quote = PANEL.quote(run(1.5), 1e-5, REPLACE)
    assert quote.claimed_by == "PLD"
    assert "replace_one" in quote.refusals["RDP"]
    with pytest.raises(UnsupportedEvent, match="No accountant can bound"):
        Panel(claimants=(Rdp(),)).quote(run(1.5), 1e-5, REPLACE)


@dataclass(frozen=True)
class TooLow:
    """An accountant with a classic mistake: it forgets how often the mechanism was repeated."""

    name: str = "forgetful"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return Pld().epsilon(repeat(poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5), 1), delta, adjacency)


def test_contradicting_accountants_are_not_reported() -> None:
    with pytest.raises(AccountantsDisagree, match="forgetful"):
        Panel(claimants=(Pld(), TooLow())).quote(run(1.5), 1e-5, ADD)


@dataclass(frozen=True)
class JustTooLow:
    """An accountant whose bound is a percent below what is proven to be the least."""

    name: str = "generous"

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return 0.99 * forced_epsilon(event, delta, adjacency)


def test_a_bound_just_below_a_proven_one_is_not_reported() -> None:
    with pytest.raises(AccountantsDisagree, match="generous"):
        Panel(claimants=(Pld(), JustTooLow())).quote(run(1.5), 1e-5, ADD)


def test_the_parts_of_a_plan_are_priced_apart() -> None:
    event = PlanEvent(training=run(1.5).training, validation=gaussian(noise_multiplier=100.0))
    quote = PANEL.quote(event, 1e-5, ADD)
    assert quote.parts["training"] == quote.epsilon > quote.parts["validation"] > 0


@settings(max_examples=15, deadline=None)
@given(
    target=st.floats(0.3, 30),
    steps=st.integers(1, 3000),
    rate=st.floats(0.005, 0.5),
)
def test_calibrate_then_account_never_exceeds_the_target_and_wastes_little(
    target: float, steps: int, rate: float
) -> None:
    noise = calibrate_noise(lambda value: Rdp().epsilon(run(value, steps, rate).training, 1e-5, ADD), target)
    assert Rdp().epsilon(run(noise, steps, rate).training, 1e-5, ADD) <= target
    assert noise == 0.01 or Rdp().epsilon(run(noise * 0.997, steps, rate).training, 1e-5, ADD) > target


def test_the_whole_grid_is_calibrated() -> None:
    """35 runs of N=50000, batch 1000, 100 epochs at a total of epsilon 8: sigma 5.07."""
    trials = 35

    def total(noise: float) -> float:
        return PANEL.epsilon(Composition().event([run(noise, 5000, 0.02)] * trials), 1e-5, ADD)

    noise = calibrate_noise(total, 8.0)
    assert noise == pytest.approx(5.07, abs=0.01)
    assert 7.97 < total(noise) <= 8.0


@pytest.mark.parametrize("target", [0.3, 1.0, 2.7, 8.0])
@pytest.mark.parametrize(("steps", "rate"), [(1, 0.01), (80, 0.25), (3000, 0.02), (29_000, 0.02)])
def test_the_noise_of_a_search_is_the_least_of_four_digits(target: float, steps: int, rate: float) -> None:
    """The search for it is on a coarser grid than the price."""
    terms = SearchTerms(rule=Composition(), panel=PANEL, delta=1e-5, adjacency=ADD)
    noise = terms.least_noise_for_target(lambda value: [run(value, steps, rate)] * 6, target)
    less = noise - 10 ** (math.floor(math.log10(noise)) - 3)
    assert terms.epsilon([run(noise, steps, rate)] * 6) <= target < terms.epsilon([run(less, steps, rate)] * 6)


RULES: dict[str, Callable[[int], SelectionRule]] = {
    "composition": lambda points: Composition(),
    "disjoint": lambda points: DisjointParts(share=0.2),
    "best_of_grid": lambda points: BestOfGrid(),
    "geometric": lambda points: PrivateSelection(eta=1.0),
    "logarithmic": lambda points: PrivateSelection(eta=0.0),
    "limited": lambda points: PrivateSelection(eta=1.0, limit=3 * points),
    "poisson": lambda points: PoissonSelection(),
    "random_stopping": lambda points: RandomStopping(delta=1e-5),
    "threshold": lambda points: Threshold(threshold=0.9, delta=1e-5),
    "subsampled": lambda points: Subsampled(rule=PrivateSelection(eta=1.0), rate=0.1),
}


def price_over_target(rule: str, points: int, target: float, rate: float, steps: int) -> float:
    """The price at the noise that is found, as a part of the target."""
    terms = SearchTerms(rule=RULES[rule](points), panel=PANEL, delta=1e-5, adjacency=ADD)
    noise = terms.least_noise_for_target(lambda value: [run(value, steps, rate)] * points, target)
    return terms.epsilon([run(noise, steps, rate)] * points) / target


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "subsampled"])
@pytest.mark.parametrize(("points", "target"), [(1, 0.01), (1000, 50.0)])
def test_a_plan_costs_what_it_may_cost(rule: str, points: int, target: float) -> None:
    assert 0.995 <= price_over_target(rule, points, target, 1.0, 10) <= 1


@pytest.mark.parametrize(
    ("rule", "points", "target", "rate", "steps"),
    [
        ("poisson", 2, 8.0, 0.01, 1000),  # noise below .65: tangents near 1 are equal but for rounding
        ("limited", 2, 1.0, 0.1, 100),  # without a Renyi curve
        ("subsampled", 1, 1.0, 1.0, 10),
        ("composition", 35, 0.01, 1e-4, 20_000),
    ],
)
def test_a_plan_of_sampled_steps_costs_what_it_may_cost(
    rule: str, points: int, target: float, rate: float, steps: int
) -> None:
    assert 0.995 <= price_over_target(rule, points, target, rate, steps) <= 1


def test_the_best_of_runs_of_allocated_epochs_costs_what_it_may_cost() -> None:
    """An epoch's profile never falls to nothing: its tangents end where it is flat."""
    terms = SearchTerms(rule=PrivateSelection(eta=1.0), panel=PANEL, delta=1e-5, adjacency=ADD)

    def price(noise: float) -> float:
        epochs = random_allocation(epochs=2, steps=20, noise_multiplier=noise)
        return terms.epsilon([PlanEvent(training=epochs)] * 35)

    assert 0.98 <= price(400.0) / price(390.0) * 400 / 390 <= 1.01
    assert price(200.0) < 2.2 * price(400.0)


SAMPLED = ((0.01, 1000), (0.1, 100), (1.0, 10), (1e-4, 20_000), (0.02, 1))
TARGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 8.0, 20.0, 50.0)


@pytest.mark.parametrize(
    ("rule", "points", "rate", "steps", "targets"),
    [  # each rule with each number of points, each rate and each target, and each of these with each other
        (rule, points, *SAMPLED[(place + row) % len(SAMPLED)], TARGETS[(place + row // 2) % 3 :: 3])
        for place, rule in enumerate(RULES)
        for row, points in enumerate([1, 2, 10, 35, 100, 1000])
    ],
)
@pytest.mark.long
def test_every_plan_costs_what_it_may_cost(
    rule: str, points: int, rate: float, steps: int, targets: Sequence[float]
) -> None:
    for target in targets:
        assert 0.995 <= price_over_target(rule, points, target, rate, steps) <= 1, target


def test_a_steep_price_has_more_digits_and_a_jump_keeps_its_distance() -> None:
    assert calibrate_noise(lambda noise: noise**-8, 1 - 1e-4) == 1.00002
    assert 1.2345678 <= calibrate_noise(lambda noise: 3.0 if noise < 1.2345678 else 0.3, 1.0) <= 1.23459


def test_what_is_forgotten_is_priced_again_alike() -> None:
    events = [rule.event([run(1.5)] * 3) for rule in (Composition(), PrivateSelection(mean=3))]
    before = [PANEL.epsilon(event, 1e-5, ADD) for event in events]
    assert Pld._profile_of_exact_noise.cache_info().currsize > 0
    assert curves_and_tradeoffs.cache_info().currsize > 0
    clear_cached_prices()
    assert Pld._profile_of_exact_noise.cache_info().currsize == curves_and_tradeoffs.cache_info().currsize == 0
    assert [PANEL.epsilon(event, 1e-5, ADD) for event in events] == before


def test_an_impossible_target_says_what_is_possible() -> None:
    with pytest.raises(BadInput, match=r"the least that it can cost is 0\.5"):
        calibrate_noise(lambda noise: 0.5 + 1 / noise, 0.1)
    for target in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match=r"Expected privacy.epsilon"):
            calibrate_noise(lambda noise: 1 / noise, target)


def test_composition_adds_every_point() -> None:
    step = poisson_gaussian(sample_rate=0.1, noise_multiplier=1.5)
    scored = PlanEvent(training=repeat(step, 10), validation=gaussian(noise_multiplier=3.0))
    total = Composition().event([scored, scored, PlanEvent(training=repeat(step, 5))])
    assert are_same_events(total.training, repeat(step, 25))
    assert total.validation is not None
    assert are_same_events(total.validation, repeat(gaussian(noise_multiplier=3.0), 2))
    assert Composition().event([PlanEvent(training=step)]).validation is None


def test_one_more_trial_never_lowers_the_price() -> None:
    trials = [run(2.0), run(3.0), run(2.0, 1)]
    prices = [PANEL.epsilon(Composition().event(trials[:count]), 1e-5, ADD) for count in (1, 2, 3)]
    assert prices == sorted(prices)


def test_composition_runs_and_shows_everything() -> None:
    from random import Random

    rule = rule_from_config({"kind": "composition"})
    assert rule.draw(4, Random(1)).tries == (0, 1, 2, 3)
    assert rule.discloses == frozenset(Disclosure)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"kind": "kompozition"},
        {"kind": "composition", "gamma": 0.1},
    ],
)
def test_a_rule_that_does_not_exist_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="to name a selection rule"):
        rule_from_config(config)


def test_guarantees_of_different_neighbours_are_never_compared() -> None:
    mine = Guarantee(epsilon=1.0, delta=1e-5)
    assert mine.is_within_budget(Guarantee(epsilon=1.0, delta=1e-5))
    assert not mine.is_within_budget(Guarantee(epsilon=2.0, delta=1e-6))
    with pytest.raises(ValueError, match="not comparable"):
        mine.is_within_budget(Guarantee(epsilon=2.0, delta=1e-5, adjacency=REPLACE))
    with pytest.raises(ValueError, match="not comparable"):
        mine.is_within_budget(Guarantee(epsilon=2.0, delta=1e-5, unit="patient"))


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (float("nan"), 0.1), (1.0, 1.0), (1.0, -0.1)])
def test_a_guarantee_is_made_of_numbers_that_make_sense(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="Expected"):
        Guarantee(epsilon=epsilon, delta=delta)
