"""Plans with correlated noise: coefficients in the plan, DP-SGD's price at one band, resumes, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dpsweep.accounting.accountants.pld import Pld
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import (
    are_same_events,
    poisson_gaussian,
    repeat,
    shuffled_gaussian,
    with_rounded_noise,
)
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Trial
from dpsweep.sweeper.trial.blocks import most_stacked_points
from dpsweep.sweeper.trial.build import make_training_run
from dpsweep.sweeper.trial.spec import declaration_from_config

Compose = Callable[[Sequence[str]], PricedPlan]
WORDS = (
    *("dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "steps=48", "sampler.batch_size=40"),
    *("score=public", "dataset.test_records=360", "privacy.epsilon=2"),
)
CYCLIC = (*WORDS, "sampler=cyclic_poisson")


@pytest.fixture
def plan_of(compose_priced: Compose) -> Callable[..., PricedPlan]:
    return lambda *words: compose_priced([*(word for word in WORDS if not word.startswith("score")), *words])


def only_trial(priced: PricedPlan) -> Trial:
    (trial,) = priced.plan.trials
    return trial


def test_independent_noise_is_in_no_plan(plan_of) -> None:
    plain, named = plan_of(), plan_of("noise=independent")
    assert "noise" not in only_trial(plain).config
    assert plain.plan.id == named.plan.id


@pytest.mark.parametrize("noise", ["bsr", "band_mf"])
def test_one_band_costs_what_dp_sgd_costs_to_the_last_bit(plan_of, noise: str) -> None:
    words = "checkpoint.every=12", "checkpoint.resumes=2"
    plain, banded = plan_of(*words), plan_of("sampler=cyclic_poisson", f"noise={noise}", "noise.bands=1", *words)
    assert banded.quote.epsilon == plain.quote.epsilon
    assert banded.single_run.epsilon == plain.single_run.epsilon
    assert only_trial(banded).event == only_trial(plain).event
    assert only_trial(banded).id != only_trial(plain).id


@pytest.mark.parametrize("noise", ["bsr", "band_mf"])
def test_the_coefficients_are_part_of_the_plan_and_follow_from_the_schedule(plan_of, noise: str) -> None:
    words = "sampler=cyclic_poisson", f"noise={noise}", "noise.bands=4"
    config = only_trial(plan_of(*words)).config
    assert config["noise"].keys() == {"kind", "bands", "coefficients"}
    assert config["sampler"]["parts"] == 4
    other = only_trial(plan_of(*words, "lr_schedule=cosine")).config
    assert (other["noise"] == config["noise"]) is (noise == "bsr")
    run = make_training_run(json.loads(json.dumps(config)), declaration_from_config(config))
    assert list(run.noise_coefficients) == config["noise"]["coefficients"]


def test_the_schedule_changes_the_matrix_and_not_the_price(plan_of) -> None:
    words = "sampler=cyclic_poisson", "noise=band_mf", "noise.bands=4"
    trials = [only_trial(plan_of(*words, f"lr_schedule={name}")) for name in ("constant", "cosine", "warm_up")]
    assert are_same_events(trials[0].event.training, trials[1].event.training)
    assert are_same_events(trials[0].event.training, trials[2].event.training)
    assert len({tuple(trial.config["noise"]["coefficients"]) for trial in trials}) == 3


def test_a_run_is_declared_as_its_cycles(plan_of) -> None:
    trial = only_trial(plan_of("sampler=cyclic_poisson", "noise=bsr", "noise.bands=4"))
    records = declaration_from_config(trial.config).nominal_training_units
    noise = trial.config["privacy"]["noise_multiplier"]
    declared = shuffled_gaussian(epochs=12, steps=4, noise_multiplier=noise, sample_rate=4 * 40 / records)
    assert are_same_events(trial.event.training, with_rounded_noise(declared, trial.config["weights"]))
    assert trial.priced_steps == 48
    same = repeat(poisson_gaussian(sample_rate=4 * 40 / records, noise_multiplier=noise), 12)
    price = Pld().epsilon(declared, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)
    assert price == Pld().epsilon(same, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize(("every", "resumes", "cycles"), [(12, 1, 12 + 3), (12, 3, 12 + 9), (24, 2, 12 + 12)])
def test_a_resume_pays_for_the_cycles_that_it_may_repeat(plan_of, every: int, resumes: int, cycles: int) -> None:
    trial = only_trial(
        plan_of(
            *("sampler=cyclic_poisson", "noise=bsr", "noise.bands=4"),
            *(f"checkpoint.every={every}", f"checkpoint.resumes={resumes}"),
        )
    )
    assert trial.priced_steps == 4 * cycles
    records, noise = declaration_from_config(trial.config).nominal_training_units, trial.config["privacy"]
    declared = shuffled_gaussian(
        epochs=cycles, steps=4, noise_multiplier=noise["noise_multiplier"], sample_rate=160 / records
    )
    assert are_same_events(trial.event.training, with_rounded_noise(declared, trial.config["weights"]))


def test_bands_are_an_axis(plan_of) -> None:
    priced = plan_of("sampler=cyclic_poisson", "noise=bsr", "noise.bands=1,2,4,8")
    assert [trial.config["sampler"]["parts"] for trial in priced.plan.trials] == [1, 2, 4, 8]
    assert len(priced.plan.blocks) == 4, "models with other matrices are not trained together"


def test_a_search_and_its_final_run_have_their_own_rates(plan_of) -> None:
    trial = only_trial(plan_of("sampler=cyclic_poisson", "noise=band_mf", "noise.bands=4", "tuning=disjoint"))
    assert trial.final is not None
    assert trial.final.config["noise"] == trial.config["noise"]
    for one in (trial, trial.final):
        declared = declaration_from_config(one.config)
        rate = 4 * declared.sampler.batch_size / declared.nominal_training_units
        noise = one.config["privacy"]["noise_multiplier"]
        cycles = shuffled_gaussian(epochs=12, steps=4, noise_multiplier=noise, sample_rate=rate)
        assert are_same_events(one.event.training, with_rounded_noise(cycles, one.config["weights"]))


def test_rows_count_as_memory_of_a_stack(plan_of) -> None:
    config = only_trial(plan_of("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8")).config
    alone = {key: value for key, value in config.items() if key != "noise"}
    assert most_stacked_points(config) == most_stacked_points(alone) // 8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("noise=bsr",), r"Expected noise\.bands=8 <= 1"),
        (("noise=bsr", "noise.bands=4", "sampler=random_allocation"), r"Expected noise\.bands=4 <= 1"),
        (("noise=bsr", "noise.bands=4", "sampler=shuffle"), r"Expected noise\.bands=4 <= 1"),
        (
            ("noise=bsr", "noise.bands=4", "sampler=fixed_size", "privacy.adjacency=replace_one"),
            r"Expected noise\.bands=4 <= 1",
        ),
        (("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "sampler.parts=4"), r"Expected noise\.bands=8 <= 4"),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=48"),
            r"Expected sampler.parts=48 times sampler.batch_size=40 <= records",
        ),
        (("sampler=cyclic_poisson", "noise=bsr", "noise.bands=7"), r"Expected steps=48 to be whole cycles of 7 steps"),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "checkpoint.every=10"),
            r"Expected checkpoint\.every=10 to be whole cycles",
        ),
        (("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "clip_schedule=linear"), r"Expected .*clip_schedule"),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "clip_schedule=geometric"),
            r"Expected clip_schedule=constant with correlated noise",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "subsample=shared"),
            r"Expected shared subsamples to be sampler=poisson's",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "tuning=subsampled"),
            r"Expected sampler=poisson with a secret part",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "trainer=adadp"),
            r"Expected noise=independent with trainer=adadp",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=4", "noise.coefficients=[0.9,0.3,0.2,0.1]"),
            r"Expected noise\.coefficients to be left out",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "steps=when_budget_spent"),
            r"Expected steps='when_budget_spent' to be an integer >= 1 with noise=bsr",
        ),
        (
            ("sampler=cyclic_poisson", "noise=bsr", "noise.bands=8", "solve=steps", "privacy.noise_multiplier=1"),
            r"Expected solve=noise with correlated noise",
        ),
    ],
)
def test_what_is_not_proved_is_refused_in_one_sentence(plan_of, words: Sequence[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        plan_of(*words)
    assert "\n" not in str(refused.value)


def test_a_stored_matrix_that_is_not_that_of_the_run_is_refused(plan_of) -> None:
    config = dict(only_trial(plan_of("sampler=cyclic_poisson", "noise=band_mf", "noise.bands=4")).config)
    noise = config["noise"]
    for wrong in ([0.9, 0.3, 0.2, 0.1], [1.0, 0.5, 0.4, 0.3], None):
        with pytest.raises(BadInput, match=r"Expected (noise\.)?coefficients"):
            declaration_from_config({**config, "noise": {**noise, "coefficients": wrong}})
    with pytest.raises(BadInput, match=r"Expected noise\.coefficients"):
        declaration_from_config({**config, "steps": 480})
    with pytest.raises(BadInput, match=r"Expected noise=my\.Noise to be one of band_mf, bsr"):
        declaration_from_config({**config, "noise": {"_target_": "my.Noise", "bands": 4}})
    with pytest.raises(BadInput, match=r"Expected noise\.bands=4 <= 2"):
        declaration_from_config({**config, "sampler": {**config["sampler"], "parts": 2}})
    assert replace(declaration_from_config(config), steps=44).steps == 44


def test_output_perturbation_has_no_noise_to_correlate(compose_priced: Compose) -> None:
    words = "dataset=digits", "trainer=output_perturbation", "trainer.l2=0.1", "trainer.feature_norm=1", "steps=1"
    with pytest.raises(BadInput, match=r"Expected ema, augmentation, adapter, noise"):
        compose_priced([*words, "sampler=cyclic_poisson", "noise=bsr", "noise.bands=1"])
