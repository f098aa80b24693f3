"""What gives way to a target: noise, steps, points or the rule. Repeats and the final run are paid for like any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import are_same_events, compose, repeat
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.accounting.stored_names.stored_classes import stored_form_of_config_part
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.coordinator.request import plan_settings
from dpsweep.sweeper.planning.grid import Grid, sort_overrides_into_request
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan

Compose = Callable[[Sequence[str]], PricedPlan]
FAST = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd"]
SCORE = "score.noise_std=60"
NOISY = [*FAST, "privacy.noise_multiplier=20", SCORE]


@pytest.fixture
def offered() -> Callable[[Sequence[str]], tuple[PricedPlan, Mapping[str, Mapping[str, Any]]]]:
    """A plan with the rules that could have been chosen for it."""

    def compose_with_offers(arguments: Sequence[str]) -> tuple[PricedPlan, Mapping[str, Mapping[str, Any]]]:
        GlobalHydra.instance().clear()
        with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
            loader = GlobalHydra.instance().config_loader()
            request = sort_overrides_into_request(arguments, loader)
            config = loader.load_configuration("config", list(request.fixed), run_mode=RunMode.MULTIRUN)
            grid = Grid(request, config, loader)
            rules = grid.selection_rule_configs_by_name()
            return compose_priced_plan(grid.points(), plan_settings(config, request.keys, rules)), rules

    return compose_with_offers


def test_the_most_steps_that_fit_are_found(compose_priced: Compose) -> None:
    solved = compose_priced([*NOISY, "solve=steps", "privacy.epsilon=4"])
    (steps,) = {trial.config["steps"] for trial in solved.plan.trials}
    assert solved.quote.epsilon <= 4
    assert compose_priced([*NOISY, f"steps={steps}"]).quote.epsilon == pytest.approx(solved.quote.epsilon)
    assert compose_priced([*NOISY, f"steps={steps + 1}"]).quote.epsilon > 4


def test_the_most_points_that_fit_are_found(compose_priced: Compose) -> None:
    whole = compose_priced(NOISY)
    solved = compose_priced([*NOISY, "solve=points", "privacy.epsilon=2"])
    kept = len(solved.plan.trials)
    assert [trial.axes for trial in solved.plan.trials] == [trial.axes for trial in whole.plan.trials][:kept]
    assert solved.quote.epsilon <= 2
    training = whole.plan.trials[0].event.training
    assert solved.panel.claimants[0].epsilon(repeat(training, kept + 1), 1e-5, solved.plan.adjacency) > 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["solve=steps"], "Expected privacy.noise_multiplier to be given"),
        (["solve=epsilon"], "Expected solve=epsilon to be one of noise, steps, points"),
        (["solve=steps", "privacy.noise_multiplier=0.02", "privacy.epsilon=0.1"], "Not one step fits"),
        (["solve=points", "privacy.noise_multiplier=0.5", "privacy.epsilon=0.1"], "Not one point fits"),
        (["repeats=0"], "Expected repeats=0"),
        (["repeats=1.5"], "Expected repeats=1.5"),
        (["final=maybe"], "Expected final='maybe'"),
        (["tuning=auto", "show=nothing"], "Expected show=nothing to be one of all, winner"),
        (["tuning=random_stopping", "tuning.gamma=2"], "gamma"),
    ],
)
def test_what_cannot_be_solved_is_one_sentence(compose_priced: Compose, arguments: list[str], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        compose_priced([*FAST, *arguments])


def test_public_scores_need_no_noisy_maximum(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match="Expected score=private under noisy_max"):
        compose_priced(["dataset=mnist", *FAST[1:], "tuning=noisy_max", "score=public"])


def test_repeats_are_priced_like_more_points(compose_priced: Compose) -> None:
    once, thrice = compose_priced(NOISY), compose_priced([*NOISY, "repeats=3"])
    assert len(thrice.plan.trials) == 3 * len(once.plan.trials)
    assert len({trial.id for trial in thrice.plan.trials}) == 3 * len(once.plan.trials)
    assert are_same_events(thrice.plan.event.training, repeat(once.plan.event.training, 3))
    assert [trial.config["repeat"] for trial in thrice.plan.trials[:3]] == [1, 2, 3]
    assert thrice.plan.point_index_of_each_trial == tuple(3 * (place // 3) for place in range(len(thrice.plan.trials)))
    assert {frozenset(trial.axes) for trial in thrice.plan.trials} == {frozenset(once.plan.trials[0].axes)}


def test_a_final_run_is_priced_as_one_more_run(compose_priced: Compose) -> None:
    grid, final = compose_priced(NOISY), compose_priced([*NOISY, "final=true"])
    one = grid.plan.trials[0].event
    for name, part in grid.plan.event.events_by_population.items():
        assert are_same_events(
            final.plan.event.events_by_population[name], compose([part, one.events_by_population[name]])
        )
    assert final.quote.epsilon > grid.quote.epsilon
    assert rule_from_config(final.plan.rule).name == "composition + final run"


@pytest.mark.parametrize("rule", ["composition", "random_stopping", "private_selection", "noisy_max", "subsampled"])
def test_the_noise_of_any_rule_meets_the_target(compose_priced: Compose, rule: str) -> None:
    priced = compose_priced([*FAST, f"tuning={rule}", "privacy.epsilon=3"])
    assert 0.995 * 3 < priced.quote.epsilon <= 3
    assert priced.quote.parts["validation"] <= 3


def test_auto_takes_the_cheapest_rule_that_shows_what_was_asked_for(offered: Any) -> None:
    everything, rules = offered([*FAST, "tuning=auto"])
    assert everything.rule.name == "composition"
    winner, _ = offered([*FAST, "tuning=auto", "plan.show=winner", "privacy.noise_multiplier=20"])
    costs = {}
    for label in rules:
        costs[label] = offered([*FAST, f"tuning={label}", "privacy.noise_multiplier=20", "score=private"])[0]
    able = {
        label: priced.panel.epsilon(
            priced.rule.event([trial.event for trial in winner.plan.trials]), 1e-5, "add_or_remove_one"
        )
        for label, priced in costs.items()
        if {"winner", "winner_score"} <= set(priced.rule.discloses) and not priced.plan.final_runs
    }
    assert winner.plan.rule == stored_form_of_config_part(rules[min(able, key=able.__getitem__)], "rule")
    assert "tuning=auto" in winner.plan.notes[-1]


def test_every_rule_that_needs_nothing_more_is_offered_with_this_plans_delta(offered: Any) -> None:
    priced, rules = offered([*FAST, "tuning=private_selection", "tuning.mean=7", "privacy.delta=2e-6"])
    assert {"composition", "private_selection", "random_stopping", "noisy_max"} <= set(rules)
    assert "public" not in rules, "it needs the folder of the public sweep"
    assert rules["private_selection"]["mean"] == 7, "the chosen rule is offered as it was chosen"
    assert rules["random_stopping"]["delta"] == 2e-6
    assert priced.plan.rule == stored_form_of_config_part(rules["private_selection"], "rule")


def test_a_search_over_unlike_points_charges_their_mixture_and_says_so(compose_priced: Compose) -> None:
    noises = "privacy.noise_multiplier=20,40"
    mixed = compose_priced([*FAST, "tuning=private_selection", "tuning.mean=5", noises, SCORE])
    worst = compose_priced([*NOISY, "tuning=private_selection", "tuning.mean=5"])
    best = compose_priced([*FAST, "tuning=private_selection", "tuning.mean=5", "privacy.noise_multiplier=40", SCORE])
    assert best.quote.epsilon < mixed.quote.epsilon < worst.quote.epsilon
    assert "charges the mean of their deltas" in mixed.plan.notes[-1]
    assert worst.plan.notes == ()


def test_the_target_is_met_if_each_part_needs_another_accountant(compose_priced: Compose) -> None:
    """Of replaced records RDP alone bounds epochs with random allocation, and PLD is the tighter one for scores."""
    line = ["dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "sampler=random_allocation", "steps=20"]
    priced = compose_priced([*line, "privacy.epsilon=3", "privacy.adjacency=replace_one"])
    assert 2.99 < priced.quote.epsilon <= 3
    assert set(priced.quote.bounds_by_part["training"]) == {"RDP"}
    scores = priced.quote.bounds_by_part["validation"]
    assert priced.quote.parts["validation"] == scores["PLD"] < scores["RDP"]


@pytest.mark.parametrize("epsilon", [0.05, 30.0])
@pytest.mark.parametrize(
    "words",
    [["final=true"], ["final=true", "tuning=private_selection"], ["tuning=subsampled"], ["tuning=disjoint"]],
    ids=" ".join,
)
def test_scores_and_steps_cost_what_they_may_cost_with_a_final_run(
    compose_priced: Compose, words: list[str], epsilon: float
) -> None:
    """The final run's score reads the records that the scores of the search read."""
    line = [*FAST, "trainer.lr=1,2", "trainer.clip_norm=1", *words]
    parts = compose_priced([*line, f"privacy.epsilon={epsilon}"]).quote.parts
    assert {"training", "validation"} <= parts.keys()
    assert all(0.995 * epsilon <= part <= epsilon for part in parts.values())


@pytest.mark.parametrize(
    "words", [["tuning=noisy_max", "privacy.epsilon=.05"], ["score.noise_std=1", "privacy.epsilon=1"]], ids=" ".join
)
def test_scores_that_cost_more_than_the_plan_may_are_refused(compose_priced: Compose, words: list[str]) -> None:
    line = [*FAST, "trainer.lr=1,2", "trainer.clip_norm=1"]
    with pytest.raises(BadInput, match=r"^Expected privacy.epsilon=\S+ to pay for the scores as well as for the steps"):
        compose_priced([*line, *words])
