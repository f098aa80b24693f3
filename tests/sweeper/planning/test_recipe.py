"""`auto` for steps, batches, schedule and average: by the declared numbers of a plan alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.sweeper.planning.recipe import LAST_STEPS, LEAST_BATCH, LEAST_STEPS, STEPS

Compose = Callable[[Sequence[str]], PricedPlan]

NOT_MEASURED = {"steps": 100, "lr_schedule": {"kind": "constant_lr"}}
AUTO = ("steps=auto", "sampler.batch_size=auto", "lr_schedule=auto", "ema=auto")


def table(records: int = 5000, inputs: int = 3, *words: str) -> tuple[str, ...]:
    """The words for a table of one's own, whose file no plan opens."""
    bounds = ", ".join(f"x{place}: [0, 1]" for place in range(inputs))
    return (
        *("dataset=table", "dataset.name=own", "dataset.file=own.csv", f"dataset.records={records}"),
        *(f"dataset.shape=[{inputs}]", "dataset.classes=2", "dataset.label=y", "dataset.labels=[0,1]"),
        *(f"dataset.bounds={{{bounds}}}", "privacy.delta=1e-5", "budget.epsilon=20", "budget.delta=1e-4", *words),
    )


def only(priced: PricedPlan) -> Trial:
    (trial,) = priced.plan.trials
    return trial


def noise_of(trial: Trial) -> float:
    return float(trial.config["privacy"]["noise_multiplier"])


@pytest.mark.parametrize(("records", "inputs", "epsilon"), [(430, 8, 8), (5000, 20, 1), (60000, 50, 3)])
def test_the_default_of_a_table_follows_records_weights_and_epsilon(
    records: int, inputs: int, epsilon: float, compose_priced: Compose
) -> None:
    trial = only(compose_priced(table(records, inputs, f"privacy.epsilon={epsilon}")))
    config, units = trial.config, round(0.8 * records)
    whole = only(
        compose_priced(
            table(
                *(records, inputs, f"privacy.epsilon={epsilon}"),
                *("steps=1", f"sampler.batch_size={units}", "lr_schedule=constant", "ema=null", "trainer.lr=1"),
            )
        )
    )
    mu, batch = 1 / noise_of(whole), config["sampler"]["batch_size"]
    assert trial.method == "auto_s"
    assert config["steps"] == STEPS == 2000
    assert batch == pytest.approx(max(LEAST_BATCH, 2 * mu * units / math.sqrt(STEPS)), rel=0.05)
    assert config["ema"] == 1 - LAST_STEPS / STEPS
    assert config["lr_schedule"] == {"kind": "cosine_lr", "final": 0.01}
    assert noise_of(trial) >= 1.9
    weights = 2 * (inputs + 1)
    # the law in numbers of one release; what subsampling loses to it is a few percent
    assert config["trainer"]["lr"] * STEPS == pytest.approx(76 * units * mu / math.sqrt(weights), rel=0.15)


def test_runs_share_epsilon_so_each_has_a_smaller_batch(compose_priced: Compose) -> None:
    words = table(60000, 20, "privacy.epsilon=8")
    alone = only(compose_priced(words))
    six = compose_priced([*words, "trainer.lr=auto*0.5,auto,auto*2", "trainer.regularizer=0.01,0.1"]).plan.trials
    batches = {trial.config["sampler"]["batch_size"] for trial in six}
    assert len(six) == 6
    (batch,) = batches
    assert alone.config["sampler"]["batch_size"] / batch == pytest.approx(math.sqrt(6), rel=0.05)


def test_an_identity_has_the_numbers_and_the_limit(compose_priced: Compose) -> None:
    by_default = compose_priced(table()).plan
    assert compose_priced(table(5000, 3, *AUTO)).plan.id == by_default.id
    assert compose_priced(table(5000, 3, "plan.limit=2e11")).plan.id != by_default.id
    trial = by_default.trials[0]
    larger = {**trial.config["sampler"], "batch_size": 777}
    for part in ({"steps": 1999}, {"ema": 0.5}, {"sampler": larger}, {"lr_schedule": {"kind": "constant_lr"}}):
        edited = replace(trial, config={**trial.config, **part})
        assert edited.id != trial.id
        with pytest.raises(BadInput, match="edited after planning"):
            Trial.from_json({**edited.to_json(), "id": trial.id})


def test_runs_of_one_noise_and_other_batches_are_other_trials(compose_priced: Compose) -> None:
    """By the law noise multipliers are alike at all epsilons: a larger one has larger batches."""
    noisy = ("accountant=rdp", "accountant.witnesses=[]", "score.noise_std=10", "trainer.lr=5")
    one, other = (
        only(compose_priced(table(60000, 20, f"privacy.epsilon={epsilon}", *noisy))) for epsilon in (3.9, 4.9)
    )
    assert noise_of(one) == noise_of(other)
    assert one.config["sampler"] != other.config["sampler"]
    assert one.id != other.id


def test_a_limit_takes_steps_and_the_plan_says_what_more_would_bring(compose_priced: Compose) -> None:
    limited = compose_priced(table(5000, 3, "plan.limit=1e6"))
    config = only(limited).config
    assert LEAST_STEPS < config["steps"] < STEPS
    assert config["steps"] * config["sampler"]["batch_size"] * config["weights"] <= 1e6
    (note,) = [one for one in limited.plan.notes if "plan.limit" in one]
    needed = note.partition("plan.limit=")[2].partition(")")[0]
    assert only(compose_priced(table(5000, 3, f"plan.limit={needed}"))).config["steps"] == STEPS
    assert only(compose_priced(table(5000, 3, "plan.limit=1"))).config["steps"] == LEAST_STEPS
    with pytest.raises(BadInput, match=r"plan\.limit=-1"):
        compose_priced(table(5000, 3, "plan.limit=-1"))


@pytest.mark.parametrize(
    "words",
    [
        ["trainer=dpadam"],
        ["privacy.noise_multiplier=2"],
        ["noise=independent", "trainer=dpmomentum"],
        ["dataset.labels=null", "dataset.target=[0,1]", "dataset.classes=1", "loss=squared_error"],
    ],
)
def test_what_was_not_measured_has_fixed_numbers(words: list[str], compose_priced: Compose) -> None:
    priced = compose_priced(table(5000, 3, *words))
    for trial in priced.plan.trials:
        assert {key: trial.config[key] for key in NOT_MEASURED} == NOT_MEASURED
        assert trial.config["sampler"]["batch_size"] == 250
        assert trial.config.get("ema") is None
    assert any("no law was measured" in note for note in priced.plan.notes)


def test_typed_numbers_stay(compose_priced: Compose) -> None:
    config = only(compose_priced(table(5000, 3, "steps=300", "ema=null"))).config
    assert (config["steps"], config.get("ema")) == (300, None)
    assert config["sampler"]["batch_size"] > LEAST_BATCH  # fewer steps have a larger share
    swept = compose_priced(table(5000, 3, "steps=auto,500")).plan.trials
    assert [trial.axes["steps"] for trial in swept] == [STEPS, 500]


def test_sealed_parts_are_no_training_records(compose_priced: Compose) -> None:
    notes = compose_priced(table(5000, 3, "budget.sealed=auto")).plan.notes
    assert any("for 3600 training records" in note for note in notes)


@pytest.mark.parametrize("rule", ["private_selection", "random_stopping", "disjoint"])
def test_rules_price_the_runs(rule: str, compose_priced: Compose) -> None:
    trials = compose_priced(table(60000, 20, f"tuning={rule}", "trainer.lr=auto*0.5,auto", "privacy.epsilon=8")).plan
    alone = only(compose_priced(table(60000, 20, "privacy.epsilon=8")))
    for trial in trials.trials:
        assert trial.config["sampler"]["batch_size"] < alone.config["sampler"]["batch_size"]
