"""Plans with a final run: its records, batch size, noise and learning rate, and plans that do not say so honestly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import are_same_events
from dpsweep.accounting.pricing.alternatives import offers_under_each_rule
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Block, Plan, Trial
from dpsweep.accounting.searches.every_point import EveryPoint
from dpsweep.accounting.searches.interface import search_class_for_plan
from dpsweep.accounting.searches.proposed_points import ProposedPoints
from dpsweep.sweeper.trial.spec import declaration_from_config

Compose = Callable[[Sequence[str]], PricedPlan]
BASE = ("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "steps=20")
GRID = (*BASE, "trainer.clip_norm=1", "trainer.lr=0.5,2", "privacy.epsilon=3")
DISJOINT = (*GRID, "tuning=disjoint")


def with_trials(plan: Plan, trials: Sequence[Trial]) -> Plan:
    return replace(plan, blocks=tuple(Block(trials=(trial,)) for trial in trials))


def test_each_part_has_the_sample_rate_that_all_records_would_have(compose_priced: Compose) -> None:
    whole = declaration_from_config(compose_priced(GRID).plan.trials[0].config)
    rate = whole.sampler.batch_size / whole.nominal_training_units
    plan = compose_priced([*DISJOINT, "tuning.share=0.3"]).plan
    for trial, share in ((plan.trials[0], 0.3), (plan.final_runs[0], 0.7)):
        own = declaration_from_config(trial.config)
        assert own.nominal_training_units == pytest.approx(share * whole.nominal_training_units, abs=1)
        assert own.sampler.batch_size / own.nominal_training_units == pytest.approx(rate, rel=0.01)
        assert trial.config["part"] == {"share": 0.3, "use": "final" if trial in plan.final_runs else "search"}


def test_search_and_final_run_may_each_cost_the_whole_target(compose_priced: Compose) -> None:
    priced = compose_priced(DISJOINT)
    parts = priced.quote.parts
    assert list(parts) == ["training", "validation", "final training", "final validation"]
    for cost in parts.values():
        assert 2.98 < cost <= 3
    plan = priced.plan
    assert (
        plan.final_runs[0].config["privacy"]["noise_multiplier"] < plan.trials[0].config["privacy"]["noise_multiplier"]
    )
    assert plan.final_runs[0].config["score"]["noise_std"] < plan.trials[0].config["score"]["noise_std"]
    assert search_class_for_plan(plan) is EveryPoint
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).id == plan.id


@pytest.mark.parametrize("carry", [0, 0.5, 1])
def test_the_learning_rate_is_carried_by_the_ratio_of_noise_per_example(compose_priced: Compose, carry: float) -> None:
    plan = compose_priced([*DISJOINT, f"tuning.carry={carry}"]).plan
    for trial, final in zip(plan.trials, plan.final_runs, strict=True):
        own, last = (
            one.config["privacy"]["noise_multiplier"] / one.config["sampler"]["batch_size"] for one in (trial, final)
        )
        rate = trial.config["trainer"]["lr"] * (own / last) ** carry
        assert final.config["trainer"]["lr"] == pytest.approx(rate, rel=1e-3)
        assert final.axes["trainer.lr"] == final.config["trainer"]["lr"]
        assert final.id != trial.id


def test_a_given_noise_is_that_of_the_search_and_of_the_final_run(compose_priced: Compose) -> None:
    plan = compose_priced([*GRID[:-1], "tuning=disjoint", "privacy.noise_multiplier=4", "score.noise_std=5"]).plan
    assert {trial.config["privacy"]["noise_multiplier"] for trial in plan.trials + plan.final_runs} == {4}
    assert {trial.config["score"]["noise_std"] for trial in plan.trials + plan.final_runs} == {5}


def test_steps_that_meet_a_target_are_those_of_the_final_run_too(compose_priced: Compose) -> None:
    words = [*GRID, "tuning=disjoint", "privacy.noise_multiplier=6", "score.noise_std=9", "solve=steps"]
    plan = compose_priced(words).plan
    steps = {trial.config["steps"] for trial in plan.trials + plan.final_runs}
    assert len(steps) == 1
    assert min(steps) > 1


def test_a_sampler_may_propose_the_points_of_the_search(compose_priced: Compose) -> None:
    grid, proposed = compose_priced(DISJOINT), compose_priced([*DISJOINT, "search=random", "search.trials=2"])
    assert search_class_for_plan(proposed.plan) is ProposedPoints
    assert are_same_events(
        proposed.plan.event.events_by_population["final training"],
        grid.plan.event.events_by_population["final training"],
    )


def test_shared_subsamples_are_those_of_the_search(compose_priced: Compose) -> None:
    plan = compose_priced([*DISJOINT, "subsample=shared"]).plan
    apart = compose_priced(DISJOINT).plan
    assert are_same_events(
        plan.event.events_by_population["final training"], apart.event.events_by_population["final training"]
    )
    assert search_class_for_plan(plan) is EveryPoint


def test_records_that_may_be_replaced_have_parts_by_position(compose_priced: Compose) -> None:
    plan = compose_priced([*DISJOINT, "sampler=fixed_size", "privacy.adjacency=replace_one"]).plan
    search, final = declaration_from_config(plan.trials[0].config), declaration_from_config(plan.final_runs[0].config)
    assert search.nominal_training_units + final.nominal_training_units < 1797
    assert search_class_for_plan(plan) is EveryPoint


def test_output_perturbation_divides_by_the_records_of_its_part(compose_priced: Compose) -> None:
    words = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "tuning=disjoint", "steps=1"]
    plan = compose_priced([*words, "trainer=output_perturbation", "trainer.l2=0.1,0.2"]).plan
    sizes = [declaration_from_config(trial.config).sampler.batch_size for trial in (plan.trials[0], plan.final_runs[0])]
    assert sizes == [359, 1438]


def test_only_its_own_rule_prices_a_plan_with_parts_and_no_plan_without_them_has_that_rule(
    compose_priced: Compose,
) -> None:
    disjoint, plain = compose_priced(DISJOINT), compose_priced(GRID)
    rules = {"disjoint": disjoint.rule, "composition": plain.rule}
    assert [offer.label for offer in offers_under_each_rule(replace(disjoint, offers=lambda: rules))] == ["disjoint"]
    assert [offer.label for offer in offers_under_each_rule(replace(plain, offers=lambda: rules))] == ["composition"]
    auto = compose_priced([*GRID, "tuning=auto"])
    assert auto.rule.name == "composition"
    assert "disjoint" not in auto.offers()


def test_two_final_runs_are_refused(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match="Expected final=true to be left out: disjoint parts has"):
        compose_priced([*DISJOINT, "final=true"])


def test_spare_attempts_pay_for_no_final_run_on_other_records(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"Expected plan\.spare_attempts=1 to be 0 under disjoint parts"):
        compose_priced([*DISJOINT, "plan.spare_attempts=1"])
    with pytest.raises(BadInput, match=r"spare_attempts=1 to be 0 under disjoint parts"):
        search_class_for_plan(replace(compose_priced(DISJOINT).plan, spares=1))
    final = compose_priced([*GRID, "final=true", "plan.spare_attempts=1"]).plan
    assert final.final_runs[0].event == final.trials[0].event
    assert search_class_for_plan(final) is EveryPoint


def test_a_learning_rate_that_would_leave_its_limits_is_refused(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"Expected tuning\.carry=20"):
        compose_priced([*DISJOINT, "tuning.carry=20"])


def test_a_plan_whose_runs_read_other_records_than_its_rule_says_does_not_run(compose_priced: Compose) -> None:
    """The price is the larger of two: runs on records of the other part, or of all parts, would cost the sum."""
    plan = compose_priced(DISJOINT).plan
    whole = compose_priced(GRID).plan
    first, *others = plan.trials
    assert first.final is not None
    everything = {key: value for key, value in first.config.items() if key != "part"}
    swapped = {**first.config, "part": {**first.config["part"], "use": "final"}}
    wider = {**first.final.config, "part": {"share": 0.1, "use": "final"}}
    again = replace(first.final, final=first.final)
    for dishonest in (
        replace(first, config=everything),
        replace(first, config=swapped),
        replace(first, final=replace(first.final, config=wider)),
        replace(first, final=replace(first.final, config=first.config)),
        replace(first, final=None),
        replace(first, final=again),
    ):
        with pytest.raises(BadInput, match=r"final run|as disjoint parts pays for it"):
            search_class_for_plan(with_trials(plan, [dishonest, *others]))
    with pytest.raises(BadInput, match="as composition pays for it"):
        search_class_for_plan(with_trials(whole, [replace(trial, final=None) for trial in plan.trials]))
    with pytest.raises(BadInput, match="final run"):
        search_class_for_plan(with_trials(whole, plan.trials))


def test_a_secret_part_has_the_sample_rate_of_all_records_and_poisson_batches(compose_priced: Compose) -> None:
    line = (*GRID, "tuning=subsampled", "tuning.rate=0.2")
    whole = declaration_from_config(compose_priced(GRID).plan.trials[0].config)
    plan = compose_priced(line).plan
    for trial, share in ((plan.trials[0], 0.2), (plan.final_runs[0], 0.8)):
        own = declaration_from_config(trial.config)
        assert own.nominal_training_units == pytest.approx(share * whole.nominal_training_units, abs=1)
        rates = (one.sampler.batch_size / one.nominal_training_units for one in (own, whole))
        assert next(rates) == pytest.approx(next(rates), rel=0.02)
    kept, carried = (compose_priced([*line, f"tuning.carry={power}"]).plan.final_runs[0].config for power in (0, 1))
    assert kept["trainer"]["lr"] == 0.5
    assert carried["trainer"]["lr"] > 1.5
    assert "part" not in compose_priced([*line, "tuning.train_on=all"]).plan.final_runs[0].config
    for words, sentence in (
        ("sampler=shuffle", "Expected sampler=poisson with a secret part"),
        ("privacy.adjacency=replace_one", "add_or_remove_one with a secret part"),
        ("subsample=shared", "Expected subsample=shared to be independent"),
        ("plan.spare_attempts=1", r"Expected plan\.spare_attempts=1 to be 0"),
        ("final=true", "has a final run already"),
    ):
        with pytest.raises(BadInput, match=sentence):
            compose_priced([*line, words])
