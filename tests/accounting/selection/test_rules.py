"""What every selection rule keeps, and what each one promises."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
import yaml

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.accountants.rdp import Rdp
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    PlanEvent,
    are_same_events,
    best_of_tries,
    compose,
    mixture,
    noisy_count,
    noisy_max,
    poisson_gaussian,
    poisson_sampled,
    repeat,
    worst_of_events,
)
from dpsweep.accounting.events.trial_counts import NegativeBinomial, Poisson, Stopping
from dpsweep.accounting.events.types import RandomStoppingDpEvent, ThresholdDpEvent
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.selection_attack import chance_to_draw_best_share
from dpsweep.accounting.rule_words import chance_of_best, expected_tries
from dpsweep.accounting.selection.interface import THE_WINNER, Disclosure, Draw, Proposals, Search, SelectionRule
from dpsweep.accounting.selection.rules import (
    BestOfGrid,
    Composition,
    DisjointParts,
    Final,
    HiddenSearch,
    NoisyMax,
    PoissonSelection,
    PrivateSelection,
    Public,
    RandomStopping,
    Subsampled,
    Threshold,
    TrainOn,
    delta2_maximising_delta_of_one_run,
    rule_from_config,
)
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part

ADD = Adjacency.ADD_OR_REMOVE_ONE
DELTA = 1e-5
CONF = Path(__file__).parents[3] / "conf" / "tuning"

HIDING: list[HiddenSearch] = [
    RandomStopping(delta=DELTA),
    RandomStopping(gamma=0.3, delta=DELTA, delta2=1e-7),
    Threshold(threshold=0.9, delta=DELTA),
    Threshold(gamma=1.0, threshold=0.9, delta=DELTA),
    Threshold(gamma=0.2, limit=7, threshold=0.5, delta=DELTA),
    PrivateSelection(),
    PrivateSelection(eta=0.0, mean=12.5),
    PrivateSelection(eta=-0.5, gamma=0.2, limit=6),
    PoissonSelection(),
    PoissonSelection(mean=0.5, limit=3),
    BestOfGrid(),
]
DRAWN = HIDING[:-1]
PAYING: list[SelectionRule] = [Composition(), NoisyMax(noise_scale=2.0), Public(sweep="0123abcd")]
NESTED: list[SelectionRule] = [
    Subsampled(rate=0.1, rule=PrivateSelection()),
    Subsampled(rate=0.5, rule=BestOfGrid(), train_on=TrainOn.ALL),
]
LISTED = [*HIDING, *PAYING, *NESTED]


def of_conf() -> list[SelectionRule]:
    """The rules of conf/tuning that ask the user for nothing."""
    texts = [path.read_text().replace("${privacy.delta}", f"{DELTA:.5f}") for path in sorted(CONF.glob("*.yaml"))]
    return [
        rule_from_config(stored_form_of_config_part(form, "rule"))
        for form in map(yaml.safe_load, texts)
        if form and "???" not in form.values()
    ]


RULES = [pytest.param(rule, id=str(rule)) for rule in [*LISTED, *(rule for rule in of_conf() if rule not in LISTED)]]


def trial(noise: float = 2.0, score: float | None = 9.8) -> PlanEvent:
    training = repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise), 100)
    return PlanEvent(training=training, validation=None if score is None else noisy_count(noise_std=score))


def paid(rule: SelectionRule, trials: list[PlanEvent]) -> float:
    return max(Rdp().epsilon(part, DELTA, ADD) for part in rule.event(trials).events_by_population.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_draw_names_points_and_depends_on_its_generator_alone(rule: SelectionRule) -> None:
    for seed in range(50):
        draw = rule.draw(7, Random(seed))
        assert set(draw.tries) <= set(range(7))
        assert draw == rule.draw(7, Random(seed))
        assert draw.handicaps == () or len(draw.handicaps) == len(draw.tries)


@pytest.mark.parametrize("rule", RULES)
def test_no_points_no_search(rule: SelectionRule) -> None:
    for ask in (lambda: rule.draw(0, Random(1)), lambda: chance_of_best(rule, 0, 0.5)):
        with pytest.raises(ValueError, match="Expected n_points=0 >= 1"):
            ask()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_is_a_share(rule: SelectionRule, share: float) -> None:
    with pytest.raises(ValueError, match="share="):
        chance_of_best(rule, 10, share)


@pytest.mark.parametrize("rule", RULES)
def test_more_training_or_less_noise_never_costs_less(rule: SelectionRule) -> None:
    cheap, dear = [trial(3.0)] * 3, [trial(2.0)] * 3
    assert paid(rule, cheap) <= paid(rule, dear)
    assert paid(rule, [*cheap, dear[0]]) >= paid(rule, [*cheap, cheap[0]]) * (1 - 1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_the_price_does_not_depend_on_the_order_of_points(rule: SelectionRule) -> None:
    trials = [trial(2.0), trial(3.0), trial(4.0)]
    for name, part in rule.event(trials).events_by_population.items():
        assert are_same_events(part, rule.event(trials[::-1]).events_by_population[name])


@pytest.mark.parametrize("rule", RULES)
def test_held_out_records_are_priced_where_scores_are_private(rule: SelectionRule) -> None:
    assert rule.event([trial(score=9.8)] * 4).validation is not None
    assert rule.event([trial(score=None)] * 4).validation is None
    assert rule.event([trial(score=None), trial()]).validation is not None
    assert are_same_events(rule.event([trial(score=None)] * 4).training, rule.event([trial()] * 4).training)


@pytest.mark.parametrize("rule", HIDING, ids=str)
def test_rules_that_hide_treat_both_populations_alike(rule: SelectionRule) -> None:
    step = trial().training
    event = rule.event([PlanEvent(training=step, validation=step)] * 5)
    assert event.validation is not None
    assert are_same_events(event.training, event.validation)


@pytest.mark.parametrize("rule", HIDING, ids=str)
def test_rules_that_hide_show_the_winner_alone(rule: SelectionRule) -> None:
    public_number = {Disclosure.NUMBER_OF_TRIES} if isinstance(rule, BestOfGrid) else set()
    assert rule.discloses == {Disclosure.WINNER, Disclosure.WINNER_SCORE} | public_number


def test_a_noisy_maximum_shows_no_score_and_what_is_paid_for_shows_everything() -> None:
    assert NoisyMax(noise_scale=1.0).discloses == {Disclosure.WINNER, Disclosure.NUMBER_OF_TRIES}
    assert Composition().discloses == Public(sweep="0123abcd").discloses == frozenset(Disclosure)
    assert NESTED[0].discloses == PrivateSelection().discloses
    assert NESTED[1].discloses == BestOfGrid().discloses


def test_rules_that_hide_draw_their_tries_and_a_final_run_follows_any_search() -> None:
    assert {rule.search_kind(Search()) for rule in HIDING} == {"secret_draw"}
    for rule in (Composition(), DisjointParts(), Final(rule=Composition()), Public(sweep="0123abcd")):
        assert rule.search_kind(Search()) == "every_point"
        assert rule.search_kind(Search(proposals=Proposals.ADAPTIVE)) == "proposed_points"
        assert not rule.hides_losers
    for rule in (*NESTED, Final(rule=PrivateSelection()), NoisyMax(noise_scale=1.0)):
        assert rule.search_kind(Search()) == "secret_draw"
        assert rule.hides_losers


@pytest.mark.parametrize("rule", [*HIDING, NoisyMax(noise_scale=1.0), NESTED[0]], ids=str)
def test_proposals_and_pruning_that_read_hidden_scores_are_refused(rule: SelectionRule) -> None:
    rule.check_search(Search())
    with pytest.raises(BadInput, match="Expected proposals=adaptive to be fixed"):
        rule.check_search(Search(proposals=Proposals.ADAPTIVE))
    with pytest.raises(BadInput, match="Expected pruning=True to be False"):
        rule.check_search(Search(pruning=True))


@pytest.mark.parametrize("rule", [Composition(), Public(sweep="0123abcd")], ids=str)
def test_what_is_paid_for_may_be_searched_in_any_way(rule: SelectionRule) -> None:
    rule.check_search(Search(proposals=Proposals.ADAPTIVE, pruning=True))


def test_the_best_of_the_grid_tries_each_point_once_and_pays_for_no_more_than_all() -> None:
    rule = BestOfGrid()
    assert rule.draw(5, Random(5)) == Draw(tries=(0, 1, 2, 3, 4))
    assert (expected_tries(rule, 5), chance_of_best(rule, 5, 0.2)) == (5.0, 1.0)
    for n_points in (1, 2, 10, 35):
        trials = [trial()] * n_points
        hidden, shown = (Pld().epsilon(each.event(trials).training, DELTA, ADD) for each in (rule, Composition()))
        assert hidden <= shown * (1 + 1e-9)
        assert (hidden < 0.95 * shown) == (n_points >= 10)
    unlike, alike = ([trial(2.0), trial(other)] for other in (3.0, 2.0))
    assert paid(rule, unlike) == pytest.approx(paid(rule, alike)), "each is charged as the dearest"


@pytest.mark.parametrize("rule", DRAWN, ids=str)
def test_drawn_tries_are_uniform_and_as_many_as_expected(rule: SelectionRule) -> None:
    rng, points, draws = Random(5), 5, 4000
    drawn = [rule.draw(points, rng).tries for _ in range(draws)]
    numbers = [len(tries) for tries in drawn]
    if getattr(rule, "limit", None) is None or isinstance(rule, Threshold):
        assert sum(numbers) / draws == pytest.approx(expected_tries(rule, points), rel=0.08)
    assert len(set(numbers)) > 1 or expected_tries(rule, points) == 1
    counts = Counter(index for tries in drawn for index in tries)
    for index in range(points):
        assert counts[index] / sum(numbers) == pytest.approx(1 / points, rel=0.12)
    best = sum(3 in tries for tries in drawn) / draws
    assert best == pytest.approx(chance_of_best(rule, points, 1 / points), abs=0.03)


def test_the_tries_of_one_draw_are_independent_of_their_number() -> None:
    """With replacement, so that one point may be tried twice: without, the theorems do not hold."""
    draws = [PrivateSelection(gamma=0.2).draw(4, Random(seed)).tries for seed in range(3000)]
    pairs = Counter(tries[:2] for tries in draws if len(tries) > 1)
    assert len(pairs) == 16
    assert sum(count for (one, other), count in pairs.items() if one == other) / pairs.total() == pytest.approx(
        0.25, abs=0.03
    )


def test_a_hard_stop_bounds_the_tries() -> None:
    for rule in (PrivateSelection(mean=40.0, limit=5), PoissonSelection(mean=40.0, limit=5)):
        assert max(len(rule.draw(9, Random(seed)).tries) for seed in range(50)) == 5
        assert chance_of_best(rule, 9, 0.1) < chance_of_best(type(rule)(mean=40.0), 9, 0.1)
        assert rule.event([trial()]).training.limit == 5


def test_the_best_share_of_few_points_is_at_least_one() -> None:
    rule = PrivateSelection(mean=4.0)
    law = NegativeBinomial.with_mean(eta=1.0, mean=4.0)
    for share, best in {0.001: 1, 0.1: 1, 0.11: 2, 0.3: 3, 1.0: 10}.items():
        assert chance_of_best(rule, 10, share) == chance_to_draw_best_share(law, best / 10)


def test_the_luck_of_rules_at_equal_mean_is_that_of_the_table() -> None:
    """35 points, 40 tries on average: the chance to have tried the best one."""
    rules = [*(PrivateSelection(eta=eta, mean=40.0) for eta in (1.0, 0.0, -0.5)), PoissonSelection(mean=40.0)]
    assert [round(chance_of_best(rule, 35, 1 / 35), 2) for rule in rules] == [0.54, 0.37, 0.16, 0.68]
    assert chance_of_best(Composition(), 35, 1 / 35) == 1


def test_defaults_follow_the_number_of_points() -> None:
    trials = [trial()] * 20
    stopping = RandomStopping(delta=DELTA).event(trials).training
    assert isinstance(stopping, RandomStoppingDpEvent)
    assert stopping.tries.gamma == 1 / 20
    threshold = Threshold(threshold=0.9, delta=DELTA).event(trials).training
    assert isinstance(threshold, ThresholdDpEvent)
    assert threshold.tries.gamma == 1 / 20
    assert PrivateSelection().search_event(20).tries == NegativeBinomial.with_mean(eta=1.0, mean=20.0)
    assert PoissonSelection().search_event(20).tries == Poisson(mean=20.0)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("gamma", [1.0, 0.4, 0.1, 1 / 35])
def test_the_best_delta2_leaves_one_run_the_largest_delta(delta: float, gamma: float) -> None:
    def left(delta2: float) -> float:
        law: Stopping = RandomStopping(gamma=gamma, delta=delta, delta2=delta2).event([trial()]).training.tries
        return (delta - delta2) / law.limit

    best = left(delta2_maximising_delta_of_one_run(delta, gamma))
    assert all(left(delta * 10 ** (-step / 50)) <= best * (1 + 1e-9) for step in range(1, 400))


def test_the_best_delta2_is_cheaper_than_the_papers() -> None:
    trials = [PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=3.6), 5000))] * 10
    papers = paid(RandomStopping(gamma=0.1, delta=DELTA, delta2=1e-20), trials)
    assert papers == pytest.approx(10.01, abs=0.01)
    assert paid(RandomStopping(delta=DELTA), trials) < papers


def test_the_stop_of_a_threshold_costs_nothing_beside_delta() -> None:
    trials = [PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=2.0), 5000))] * 10
    endless, early = (paid(Threshold(limit=limit, threshold=0.9, delta=DELTA), trials) for limit in (5000, 120))
    assert paid(Threshold(threshold=0.9, delta=DELTA), trials) == pytest.approx(endless, rel=1e-9)
    assert early > endless


def test_a_threshold_tells_the_draw_what_is_good_enough() -> None:
    assert Threshold(threshold=0.9, delta=DELTA).draw(5, Random(1)).threshold == 0.9
    assert PrivateSelection().draw(5, Random(1)).threshold is None


def test_a_noisy_maximum_pays_once_for_held_out_records_and_for_every_run_on_the_others() -> None:
    event = NoisyMax(noise_scale=2.0).event([trial(2.0), trial(3.0)])
    assert are_same_events(event.training, compose([trial(2.0).training, trial(3.0).training]))
    assert event.validation == noisy_max(noise_scale=2.0)


def test_the_handicaps_of_a_noisy_maximum_are_gumbel_noise_in_counts() -> None:
    handicaps = NoisyMax(noise_scale=2.0).draw(20_000, Random(1)).handicaps
    mean = sum(handicaps) / len(handicaps)
    assert mean == pytest.approx(2 * 0.5772, abs=0.05)
    assert sum((one - mean) ** 2 for one in handicaps) / len(handicaps) == pytest.approx(4 * 3.14159**2 / 6, rel=0.04)
    assert sum(one < 0 for one in handicaps) / len(handicaps) == pytest.approx(0.3679, abs=0.012)


@pytest.mark.parametrize("train_on", list(TrainOn))
def test_tuning_on_a_part_pays_for_the_sampled_search_and_the_worst_run(train_on: TrainOn) -> None:
    trials = [trial(2.0), trial(3.0)]
    inner = PrivateSelection(eta=0.0)
    event = Subsampled(rate=0.1, rule=inner, train_on=train_on).event(trials)
    search = best_of_tries(mixture(one.training for one in trials), NegativeBinomial.with_mean(eta=0.0, mean=2.0))
    assert are_same_events(
        event.training,
        compose([poisson_sampled(search, sample_rate=0.1), worst_of_events(one.training for one in trials)]),
    )
    assert event.validation is not None
    assert not are_same_events(event.validation, inner.event(trials).validation)


def test_tuning_on_a_tenth_costs_little_more_than_one_run() -> None:
    trials = [PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=3.6), 5000))] * 10
    alone = Rdp().epsilon(trials[0].training, DELTA, ADD)
    part, full = (paid(rule, trials) for rule in (Subsampled(rate=0.1, rule=PrivateSelection()), PrivateSelection()))
    assert alone < part < full


def test_a_point_that_was_found_on_public_data_costs_one_run() -> None:
    (one, other) = (rule.event([trial()]) for rule in (Public(sweep="0123abcd"), Composition()))
    assert one == other


def test_selection_with_one_try_is_one_run() -> None:
    one = [trial()]
    for rule in (PrivateSelection(gamma=1.0), PrivateSelection(mean=1.0, eta=0.0), PrivateSelection()):
        assert Rdp().epsilon(rule.event(one).training, DELTA, ADD) == Rdp().epsilon(one[0].training, DELTA, ADD)
        assert rule.draw(1, Random(1)) == Draw(tries=(0,))


@pytest.mark.parametrize(
    ("rule", "price"),
    [
        (PrivateSelection(mean=10.0), 2.392),
        (PrivateSelection(eta=0.0, mean=10.0), 2.256),
        (Composition(), 5.780),
    ],
    ids=str,
)
def test_the_prices_of_ten_points_are_those_of_the_reference(rule: SelectionRule, price: float) -> None:
    trials = [PlanEvent(training=repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=3.6), 5000))] * 10
    assert Pld().epsilon(rule.event(trials).training, DELTA, ADD) == pytest.approx(price, rel=0.006)


class WinnerOnly(Composition):
    """A composition that lets out its winner alone: it pays for all runs, and still hides them."""

    discloses = THE_WINNER


@pytest.mark.parametrize("rule", [*HIDING, WinnerOnly(), Final(rule=WinnerOnly())], ids=lambda rule: rule.name)
@pytest.mark.parametrize(
    "more", [{"curves_every": 5}, {"scripts": True}, {"spares": 1}], ids=["curves", "scripts", "spares"]
)
def test_whatever_hides_its_losers_has_no_curves_scripts_and_spares(rule: SelectionRule, more: dict[str, int]) -> None:
    rule.check_search(Search())
    with pytest.raises(BadInput, match=r"score\.every=5|trainer=script|spare_attempts=1"):
        rule.check_search(Search(**more))
    Composition().check_search(Search(**more))
