"""Every grid gives every method axes: its own, or the method's default ones, and the plan says which are default."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from torch import nn

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.planning.plan_builder import PricedPlan

Compose = Callable[[Sequence[str]], PricedPlan]

THREE = "trainer=dpsgd,dpnsgd,dpadam"
FAST = ("accountant=rdp", "accountant.witnesses=[]")
NOISY = (*FAST, "privacy.noise_multiplier=9", "score.noise_std=30")
DATA_SETS = sorted(
    path.stem
    for path in CONF.glob("dataset/*.yaml")
    if "model.path" not in path.read_text() and not OmegaConf.missing_keys(OmegaConf.load(path))
)
"""Those that ask the user for nothing."""
GRIDS = sorted(path.stem for path in CONF.glob("grid/*.yaml"))


def default_axes(method: str) -> dict[str, Sequence[Any]]:
    axes: Any = OmegaConf.to_container(OmegaConf.load(CONF / "trainer" / "axes" / f"{method}.yaml"))
    return axes[method]  # type: ignore[no-any-return]


def axes_of(priced: PricedPlan, method: str) -> set[tuple[tuple[str, Any], ...]]:
    """The swept values of a method's points."""
    return {tuple(trial.axes.items()) for trial in priced.plan.trials if trial.method == method}


def combinations(axes: dict[str, Sequence[Any]]) -> set[tuple[tuple[str, Any], ...]]:
    return {tuple(zip(axes, values, strict=True)) for values in product(*axes.values())}


@pytest.mark.parametrize("dataset", DATA_SETS)
def test_three_methods_are_planned_on_every_data_set(compose_priced: Compose, dataset: str) -> None:
    one_run = dataset in ("adult", "cifar10", "enron", "sst2")  # by the law
    map_of_two_axes = ("grid=few",) if one_run else ()
    plan = compose_priced([f"dataset={dataset}", *map_of_two_axes, *FAST, THREE]).plan
    counts = Counter(trial.method for trial in plan.trials)
    assert counts.keys() == {"dpsgd", "dpnsgd", "dpadam"}
    for method in counts:
        own = [trial.axes for trial in plan.trials if trial.method == method]
        assert len(own[0]) == 2, "a map has two axes"
        assert all(len({axes[key] for axes in own}) >= 2 for key in own[0])


@pytest.mark.parametrize("grid", GRIDS)
def test_every_grid_has_axes_for_every_method(compose_priced: Compose, grid: str) -> None:
    methods = sorted(
        path.stem for path in CONF.glob("trainer/axes/dp*.yaml") if path.stem != "dpmomentum"
    )  # whose 280 points in grid=paper_b take seconds
    plan = compose_priced([*NOISY, f"grid={grid}", f"trainer={','.join(methods)}"]).plan
    assert {trial.method for trial in plan.trials} == set(methods)


def test_a_method_that_the_grid_lacks_runs_over_its_default_axes_and_the_plan_says_so(compose_priced: Compose) -> None:
    priced = compose_priced([*NOISY, "grid=paper_b", "trainer=dpsgd,dpnsgd"])
    assert axes_of(priced, "dpnsgd") == combinations(default_axes("dpnsgd"))
    assert priced.plan.notes == ("The grid has no axes for dpnsgd: its default ones (trainer/axes) make 16 points.",)
    twice = compose_priced([*NOISY, "grid=paper_b", "trainer=dpsgd,dpnsgd", "repeats=2"]).plan
    assert twice.notes == priced.plan.notes, "a repeat is no point"
    both = compose_priced([*NOISY, "grid=paper_b", "trainer=dpnsgd,dpnadam,dpsgd"]).plan
    assert both.notes == (
        "The grid has no axes for dpnsgd, dpnadam: their default ones (trainer/axes) make 32 points.",
    )


def test_a_loss_of_numbers_brings_smaller_learning_rates_unless_a_grid_is_named(compose_priced: Compose) -> None:
    """At the rates of classes every run ended with the largest error that the range has."""
    table = ["dataset=table", "dataset.name=t", "dataset.file=t.csv", "dataset.records=600", "dataset.shape=[1]"]
    number = ["dataset.label=y", "dataset.target=[0,10]", "dataset.classes=1", "dataset.bounds={x: [0, 1]}"]
    account = ["privacy.delta=1e-4", "budget.epsilon=9", "budget.delta=1e-3"]
    line = [*NOISY, *table, *number, *account, "loss=squared_error", "trainer=dpsgd"]
    for grid, factor in ((), 1), (("grid=few",), 4):
        priced = compose_priced([*line, *grid])
        assert max(trial.axes["trainer.lr"] for trial in priced.plan.trials) == factor


@pytest.mark.parametrize(
    "words",
    [("grid=paper_b", "trainer=dpsgd,dpadam"), ("grid=small", THREE), ("grid=few", THREE), ("grid=head", THREE)],
)
def test_axes_of_the_grid_need_no_note(compose_priced: Compose, words: tuple[str, ...]) -> None:
    assert compose_priced([*NOISY, *words]).plan.notes == ()


def test_the_command_lines_axes_take_the_place_of_default_ones(compose_priced: Compose) -> None:
    line = [*NOISY, "grid=paper_b", "trainer=dpnsgd", "trainer.lr=1,2"]
    replaced = compose_priced(line)
    regularizers = default_axes("dpnsgd")["trainer.regularizer"]
    assert axes_of(replaced, "dpnsgd") == combinations({"trainer.regularizer": regularizers, "trainer.lr": [1, 2]})
    assert replaced.plan.notes != ()
    assert compose_priced([*line, "trainer.regularizer=0.1"]).plan.notes == (), "no default axis is left"


def test_a_value_that_all_named_methods_have_and_the_default_lacks_is_theirs(compose_priced: Compose) -> None:
    plan = compose_priced([*NOISY, "trainer=dpnsgd,dpnadam", "trainer.lr=1", "trainer.regularizer=0.1"]).plan
    assert {(trial.method, trial.axes["trainer.regularizer"]) for trial in plan.trials} == {
        ("dpnsgd", 0.1),
        ("dpnadam", 0.1),
    }


def test_a_grids_panels_are_axes_of_every_method(compose_priced: Compose) -> None:
    plan = compose_priced([*FAST, "score.noise_std=30", "grid=cnn_7x5", "trainer=dpsgd,dpadam"]).plan
    counts = Counter((trial.method, trial.axes["privacy.noise_multiplier"], len(trial.axes)) for trial in plan.trials)
    noises = (0.878, 0.688, 0.540)
    assert counts == {("dpsgd", noise, 3): 35 for noise in noises} | {("dpadam", noise, 3): 16 for noise in noises}


def test_default_axes_of_a_users_own_method_lie_beside_its_trainer(program: Callable[..., Any], tmp_path: Path) -> None:
    own = tmp_path / "my" / "trainer"
    (own / "axes").mkdir(parents=True)
    (own / "mine.yaml").write_text("_target_: dpsweep.trainers.methods.named_methods.DpSgd\nlr: 1.0\nclip_norm: 1.0\n")
    line = ("plan", "--config-dir", "my", "dataset=digits", "grid=paper_a", "trainer=mine", *NOISY)
    refused = program(*line, module="dpsweep.sweeper.commands.cli")
    assert refused.returncode == 2
    assert "Expected trainer=mine to have axes" in refused.stderr
    (own / "axes" / "mine.yaml").write_text("mine: {trainer.lr: [1.0, 2.0]}\n")
    done = program(*line, module="dpsweep.sweeper.commands.cli")
    assert done.returncode == 0, done.stderr
    assert "2 (2 mine)" in done.stdout
    assert "The grid has no axes for mine" in done.stdout


def test_an_axis_without_values_is_refused(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"axis privacy\.noise_multiplier=\[\] of grid\.panels to be a non-empty list"):
        compose_priced([*FAST, "trainer=dpsgd", "+grid.panels={privacy.noise_multiplier: []}"])


@pytest.mark.parametrize(("typed", "regularizers"), [("0.01,0.1", {0.01, 0.1}), ("0.05", {0.05})])
def test_an_axis_that_some_of_the_named_methods_have_is_theirs(
    compose_priced: Compose, typed: str, regularizers: set[float]
) -> None:
    words = ["dataset=digits", "trainer=dpsgd,dpnsgd", f"trainer.regularizer={typed}", "trainer.clip_norm=1,2"]
    plan = compose_priced([*words, *NOISY, "trainer.lr=1"]).plan
    own = {method: [trial.axes for trial in plan.trials if trial.method == method] for method in ("dpsgd", "dpnsgd")}
    assert {axes["trainer.regularizer"] for axes in own["dpnsgd"]} == regularizers
    assert {axes["trainer.clip_norm"] for axes in own["dpsgd"]} == {1, 2}
    assert not any("trainer.regularizer" in axes for axes in own["dpsgd"])
    assert not any("trainer.clip_norm" in axes for axes in own["dpnsgd"])


def test_an_axis_that_no_named_method_has_is_refused(compose_priced: Compose) -> None:
    words = ["dataset=digits", "trainer=dpsgd,dpadam", "trainer.regularizer=0.1,1", *NOISY, "trainer.lr=1"]
    with pytest.raises(BadInput, match=r"trainer=dpsgd has no trainer\.regularizer; trainer has "):
        compose_priced(words)


def test_a_key_of_ones_own_class_may_be_an_axis(compose_priced: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    net = SimpleNamespace(Net=lambda shape, classes, width: nn.Linear(64, classes))
    monkeypatch.setitem(sys.modules, "my_model", net)  # type: ignore[arg-type]
    words = ["dataset=digits", "trainer=dpsgd", "trainer.lr=1", "trainer.clip_norm=1", *NOISY]
    plan = compose_priced([*words, "model._target_=my_model.Net", "+model.width=8,16"]).plan
    assert [trial.config["model"]["width"] for trial in plan.trials] == [8, 16]
    with pytest.raises(BadInput, match=r"model\._target_=my_model\.Net \+model\.width=8,16"):
        compose_priced([*words, "model.width=8,16"])
