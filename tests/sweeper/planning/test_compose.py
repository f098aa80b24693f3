"""From a command line to a plan: the grid, its noise, its price; and every refusal in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import mechanisms_with_counts
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import current_path_of_class, fields_without_class_name
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.planning.grid import Grid
from dpsweep.sweeper.planning.resolution import BY_GRID
from dpsweep.sweeper.trial.build import make_model

Compose = Callable[[Sequence[str]], PricedPlan]
FAST = ["dataset=digits", "accountant=rdp", "accountant.witnesses=[]"]


def axes(plan: Plan) -> list[tuple[object, ...]]:
    return [(trial.method, *trial.axes.values()) for trial in plan.trials]


def test_the_command_lines_axes_are_the_grid(compose_priced: Compose) -> None:
    plan = compose_priced([*FAST, "trainer=dpnsgd", "trainer.lr=0.1,0.2", "trainer.regularizer=0.01,0.1"]).plan
    assert axes(plan) == [("dpnsgd", *pair) for pair in product((0.1, 0.2), (0.01, 0.1))]


def test_without_axes_the_grid_file_decides_and_a_fixed_value_drops_its_axis(compose_priced: Compose) -> None:
    plan = compose_priced([*FAST, "grid=paper_a"]).plan
    assert len(plan.trials) == 70
    assert {trial.method for trial in plan.trials} == {"dpsgd", "dpnsgd"}
    one = compose_priced([*FAST, "grid=paper_a", "trainer=dpsgd", "trainer.lr=0.4"]).plan
    assert [trial.axes for trial in one.trials] == [{"trainer.clip_norm": c} for c in (0.1, 0.4, 1.6, 6.4, 12.8)]
    assert {trial.config["trainer"]["lr"] for trial in one.trials} == {0.4}


def test_the_paper_grids_are_the_papers(compose_priced: Compose) -> None:
    """Yang et al., figure 3; Mohapatra et al., table 2."""
    paper_a = compose_priced([*FAST, "grid=paper_a", "trainer=dpnsgd"]).plan
    assert {(t.axes["trainer.lr"], t.axes["trainer.regularizer"]) for t in paper_a.trials} == set(
        product((0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2), (1e-4, 1e-3, 1e-2, 0.1, 1.0))
    )
    paper_b = compose_priced([*FAST, "grid=paper_b", "trainer=dpsgd"]).plan
    assert {(t.axes["trainer.lr"], t.axes["trainer.clip_norm"]) for t in paper_b.trials} == set(
        product((0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), (0.1, 0.2, 0.5, 1.0))
    )
    momenta = compose_priced([*FAST, "grid=paper_b", "trainer=dpmomentum"]).plan
    assert {tuple(trial.axes.values()) for trial in momenta.trials} == {
        (lr, bound, momentum)
        for lr, bound in {(t.axes["trainer.lr"], t.axes["trainer.clip_norm"]) for t in paper_b.trials}
        for momentum in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    }


ASKS_FOR_A_FILE = "script"
"""The method that is a program of the user's: tests/sweeper/trial/scripts.py."""
TRAINERS = sorted({path.stem for path in (CONF / "trainer").glob("*.yaml")} - {BY_GRID, ASKS_FOR_A_FILE})


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_method_has_a_sweep_of_its_own_out_of_the_box(compose_priced: Compose, trainer: str) -> None:
    written = OmegaConf.load(CONF / "trainer" / f"{trainer}.yaml")
    public = instantiate(written).noiseless
    priced = compose_priced(
        [*FAST, f"trainer={trainer}", *(["dataset.public=true", "score=training"] if public else [])]
    )
    assert {trial.method for trial in priced.plan.trials} == {trainer}
    few = ("auto_s", "sgd", "adam", "adadp", "output_perturbation")
    assert len(priced.plan.trials) == (4 if trainer in few else 16)
    for trial in priced.plan.trials:
        assert fields_without_class_name(trial.config["trainer"]).keys() == fields_without_class_name(written).keys()
        assert current_path_of_class(trial.config["trainer"]) == written["_target_"]


def test_several_methods_models_and_noises_unite_in_one_plan(compose_priced: Compose) -> None:
    priced = compose_priced(
        [
            *FAST,
            "trainer=dpsgd,dpadam",
            "model=logistic,one_hidden",
            "trainer.lr=1,2",
            "trainer.clip_norm=1",
            "privacy.noise_multiplier=2.0,4.0",
            "score.noise_std=5",
        ]
    )
    assert len(priced.plan.trials) == 2 * 2 * 2 * 2
    assert dict(priced.plan.trials[0].axes) == {"model": "logistic", "trainer.lr": 1, "privacy.noise_multiplier": 2.0}
    assert len(mechanisms_with_counts(priced.plan.event.training)) == 2, "unequal noise is composed as it is"
    assert priced.plan.target_epsilon is None


def test_repeated_points_are_dropped_and_said(compose_priced: Compose) -> None:
    plan = compose_priced([*FAST, "trainer=dpnsgd", "trainer.lr=0.1,0.10,1e-1,0.2", "trainer.regularizer=1"]).plan
    assert len(plan.trials) == 2
    assert plan.notes == ("2 repeated points were dropped.",)


def test_points_of_one_identity_are_one_point(compose_priced: Compose) -> None:
    """Both values are one number."""
    line = ["trainer=dpadam", "trainer.lr=0.1", "trainer.clip_norm=1", "trainer.beta1=0.9,0.90"]
    (trial,) = compose_priced([*FAST, *line]).plan.trials
    assert trial.config["trainer"]["beta1"] == 0.9


def test_the_noise_is_calibrated_to_the_whole_plan(compose_priced: Compose) -> None:
    few = compose_priced([*FAST, "trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=1", "privacy.epsilon=4"])
    many = compose_priced(
        [*FAST, "trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=1,2,3,4", "privacy.epsilon=4"]
    )
    for priced in (few, many):
        assert 3.9 < priced.quote.epsilon <= 4
        assert priced.quote.parts["validation"] <= 4, "scores cost the held-out records no more"
        assert priced.single_run.epsilon < priced.quote.epsilon

    def noise(priced: PricedPlan) -> float:
        (value,) = {trial.config["privacy"]["noise_multiplier"] for trial in priced.plan.trials}
        return float(value)

    assert noise(many) == pytest.approx(2 * noise(few), rel=0.15), "four times the runs, about twice the noise"


def test_sample_rate_and_steps_are_the_declared_ones(compose_priced: Compose) -> None:
    priced = compose_priced(
        [*FAST, "trainer=dpnsgd", "trainer.lr=1", "trainer.regularizer=1", "sampler.batch_size=250"]
    )
    ((step, count),) = mechanisms_with_counts(priced.plan.trials[0].event.training)
    dataset = priced.plan.trials[0].config["dataset"]
    assert step.sampling_probability == 250 / round(dataset["records"] * 0.8)
    assert count == priced.plan.trials[0].config["steps"]


def test_a_public_test_set_costs_nothing_and_leaves_all_records_to_train_on(compose_priced: Compose) -> None:
    words = ["dataset=adult", "accountant=rdp", "score=public", "trainer=dpsgd", "trainer.lr=1,2"]
    priced = compose_priced([*words, "sampler.batch_size=1000"])
    assert priced.plan.event.validation is None
    ((step, _),) = mechanisms_with_counts(priced.plan.trials[0].event.training)
    assert step.sampling_probability == 1000 / 30162


def test_plans_are_reproducible_and_devices_no_part_of_them(compose_priced: Compose) -> None:
    line = [*FAST, "trainer=dpnsgd", "trainer.lr=1,2", "trainer.regularizer=1"]
    plain = compose_priced(line).plan
    elsewhere = compose_priced([*line, "compute.device=cuda", "compute.threads=7", "data=/elsewhere"]).plan
    richer = compose_priced([*line, "budget.epsilon=100"]).plan
    assert plain.id == elsewhere.id == richer.id
    assert compose_priced([*line, "seed=1"]).plan.id != plain.id
    assert compose_priced([*line, "steps=7"]).plan.id != plain.id


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (["ema=0.9,0.99"], ["weights.ema=0.9,0.99"]),
        (["ema=0.9,0.99"], ["grid.axes.dpnsgd={ema: [0.9, 0.99]}"]),
        (["ema=0.9,0.99"], ["grid.axes.dpnsgd={weights.ema: [0.9, 0.99]}"]),
        (["ema=0.9", "initial_weights=by_repetition"], ["weights={ema: 0.9, initial: by_repetition}"]),
        (["ema=0.9"], ["grid.axes.dpnsgd={weights.ema: [0.5, 0.99]}", "ema=0.9"]),
        (["final=true"], ["plan.final=true"]),
    ],
)
def test_a_key_and_its_short_word_are_one_plan(compose_priced: Compose, short: list[str], full: list[str]) -> None:
    line = [*FAST, "trainer=dpnsgd", "trainer.lr=1", "trainer.regularizer=1,2"]
    short_plan, full_plan = (compose_priced([*line, *words]).plan for words in (short, full))
    assert short_plan.id == full_plan.id
    assert short_plan.trials == full_plan.trials


def test_an_average_that_nobody_wants_leaves_no_trace(compose_priced: Compose) -> None:
    line = [*FAST, "trainer=dpnsgd", "trainer.lr=1", "trainer.regularizer=1"]
    plain, explicit, both = (compose_priced([*line, *more]) for more in ((), ("ema=null",), ("ema=null,0.9",)))
    assert plain.plan.id == explicit.plan.id
    assert "ema" not in plain.plan.trials[0].config
    assert [trial.config.get("ema") for trial in both.plan.trials] == [None, 0.9]
    assert both.plan.trials[0].event == both.plan.trials[1].event


def test_replace_one_is_priced_by_the_accountant_that_can(compose_priced: Compose) -> None:
    priced = compose_priced(
        ["dataset=digits", "privacy.adjacency=replace_one", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1"]
    )
    assert priced.plan.adjacency is Adjacency.REPLACE_ONE
    assert priced.quote.claimed_by == "PLD"
    assert "replace_one" in priced.quote.refusals["RDP"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["trainer=dpnsgd", "trainer.lr=abc"], "Expected lr='abc' to be a number"),
        (["trainer=dpnsgd", "trainer.lr=0.1,-1"], "Expected lr=-1 > 0"),
        (["trainer=dpnsgd", "trainer.lr=0.1,nan"], "Expected trainer.lr=nan to be finite"),
        (["trainer=dpnsgd", "+trainer.foo=1"], "Expected trainer.foo to be one of lr, regularizer"),
        (["trainer=dpnsgd", "trainer.clip_norm=1,2"], "trainer has lr, regularizer"),
        (["trainer=dpmomentum", "trainer.momentum=0.6,1"], "Expected 0 <= momentum=1 < 1"),
        (["trainer=dpadamwosm", "+trainer.beta2=0.9"], "Expected trainer.beta2 to be one of beta1, clip_norm, eps, lr"),
        (["trainer=dpsgd", "grid.axes.dpsgd={trainer.lr: []}"], "non-empty list"),
        (["trainer=dpsgd", "grid.axes.dpsgd={plan.final: [true, false]}"], "Expected plan.final to have one value"),
        (["initial_weights=null,by_repetition"], "Expected weights.initial to have one value"),
        (["grid.trainers=[]"], "at least one point"),
        (["trainer=dpsgd", "+grid.panels=[2]"], "Expected grid.panels=[2] to map keys to lists of values"),
        (["trainer.lr=interval(0,1)"], "continuous interval"),
        (["dataset=digits,mnist"], "dataset to have one value"),
        (["privacy.epsilon=2,4"], "run a sweep each"),
        (["privacy.epsilon=0"], "privacy.epsilon=0 > 0"),
        (["privacy.epsilon=abc"], "to be a number"),
        (["privacy.delta=1"], "privacy.delta=1.0 < 1"),
        (["seed=abc"], "Expected seed='abc' to be null or an integer"),
        (["dataset.name=../elsewhere"], "letters, digits"),
        (["privacy.unit=patient"], "nothing above record level is claimed"),
        (["privacy.adjacency=both"], "to be one of add_or_remove_one, replace_one"),
        (["privacy.noise_multiplier=-1"], "noise_multiplier=-1 > 0"),
        (["privacy.noise_multiplier=1", "privacy.epsilon=1"], "one decides the other"),
        (["steps=0"], "steps=0 >= 1"),
        (["steps=2.5"], "to be an integer"),
        (["ema=0.9,1"], "Expected 0 < ema=1 < 1"),
        (["ema=most"], "Expected ema='most' to be a number"),
        (["sampler.batch_size=100000"], "batch_size=100000 <= records"),
        (
            ["sampler.batch_size=1797"],
            "<= records=1438, those that are trained on: 359 of 1797 are held out for scores",
        ),
        (["score=public"], "no public test set"),
        (["score.fraction=1.5"], "fraction"),
        (["lr_schedule=cosine", "lr_schedule.final=2"], "Expected 0 < final=2 < 1"),
        (["lr_schedule=warm_up_cosine", "lr_schedule.then.final=0"], "Expected 0 < final=0 < 1"),
        (["lr_schedule=warm_up", "lr_schedule.then=cosine"], "Expected then='cosine' to be a schedule"),
        (["budget.epsilon=-1"], "budget.epsilon=-1 > 0"),
        (["model=nosuch,logistic"], "nosuch"),
        (
            ["tuning._target_=dpsweep.accounting.selection.rules.Kompozition"],
            "Kompozition to be one of best_of_grid",
        ),
        (["tuning._target_=os.system"], "rule=os.system to be one of best_of_grid, "),
        (["grid.axes.dpsgd=[1,2]"], "grid.axes.dpsgd=[1, 2] to map keys to lists of values"),
        (
            ["trainer=dpsgd", "trainer._target_=dpsweep.trainers.methods.dpsgd.NoSuch"],
            "trainer=dpsweep.trainers.methods.dpsgd.NoSuch to be one of ",
        ),
        (
            ["sampler._target_=dpsweep.trainers.methods.named_methods.DpSgd"],
            "sampler=dp_sgd to be one of cyclic_poisson, fixed_size, poisson, random_allocation, shuffle",
        ),
    ],
)
def test_bad_input_is_one_sentence(compose_priced: Compose, overrides: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compose_priced([*FAST, *overrides])
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("trainer", "compositions"), [("trainer=dpnsgd", 0), ("trainer=dpnsgd,dpsgd", 2)])
def test_a_thousand_points_take_seconds(
    compose_priced: Compose, monkeypatch: pytest.MonkeyPatch, trainer: str, compositions: int
) -> None:
    """Not a timed test: what would make it slow is composing Hydra's configuration per point, so that is counted."""
    calls = []
    original = Grid._compose_config
    monkeypatch.setattr(Grid, "_compose_config", lambda *arguments: calls.append(1) or original(*arguments))  # type: ignore[func-returns-value]
    values = ",".join(str(1 + step / 1000) for step in range(1000))
    bounds = ["grid.axes.dpnsgd={trainer.regularizer: [1]}", "grid.axes.dpsgd={trainer.clip_norm: [1]}"]
    plan = compose_priced([*FAST, trainer, f"trainer.lr={values}", *bounds]).plan
    assert len(plan.trials) == 1000 * len(trainer.split(","))
    assert len(calls) == compositions


@pytest.mark.parametrize(
    "choice",
    [
        f"{group}={path.stem}"
        for group in ("accountant", "adapter", "engine", "model", "sampler", "lr_schedule", "tuning")
        for path in sorted((CONF / group).glob("*.yaml"))
        # what needs texts or a folder of weights, which this data set and this test have not
        if path.stem not in ("minilm_head", "minilm", "roberta", "hf", "hf_causal", "lora")
    ],
)
def test_every_choice_composes_into_a_plan(compose_priced: Compose, choice: str) -> None:
    line = ["dataset=cifar10", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", "privacy.noise_multiplier=2"]
    line += ["sampler.batch_size=2000"]
    light = [] if choice.startswith("accountant") else ["accountant=rdp", "accountant.witnesses=[]"]
    more = {
        "tuning=public": ["tuning.sweep=0123abcd"],
        "sampler=auto": ["steps=81"],  # no whole epochs, so the cheapest is Poisson, as until prices are known
        "sampler=fixed_size": ["privacy.adjacency=replace_one"],
        "sampler=shuffle": ["steps=80"],
        "sampler=random_allocation": ["steps=80"],
    }.get(choice, [])
    plan = compose_priced([*line, *light, choice, *more]).plan
    assert len(set(plan.point_index_of_each_trial)) == 1
    group, _, name = choice.partition("=")
    if group in plan.trials[0].config:
        written = OmegaConf.load(CONF / group / f"{name}.yaml")
        written = written.get(group, written)  # a model with its features is a file of both
        fixed = "dpsweep.trainers.declarations.lr_schedules.Constant"  # of lr_schedule=auto, as the noise is given
        assert current_path_of_class(plan.trials[0].config[group]) == written.get("_target_", fixed)


def test_words_are_for_models_of_words_and_their_file_is_part_of_a_trial(compose_priced: Compose) -> None:
    line = ["dataset=sst2_tokens", "model=logistic", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", *FAST[1:]]
    plan = compose_priced(line).plan
    assert plan.account == "sst2"
    other = compose_priced([*line, f"dataset.vocabulary.sha256={'0' * 64}"]).plan
    assert plan.trials[0].id != other.trials[0].id
    with pytest.raises(ValueError, match=r"^Expected a model of words for dataset\.vocabulary"):
        make_model(plan.trials[0].config, "any")
