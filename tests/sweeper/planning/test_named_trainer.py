"""The trainer that a file or a command line names is the trainer that runs, and `--cfg job` shows no other's axes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.hydra_app import move_options_before_overrides
from dpsweep.sweeper.planning.plan_builder import PricedPlan

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

CLI = "dpsweep.sweeper.commands.cli"
FAST = ("accountant=rdp", "accountant.witnesses=[]")
PUBLIC = ("dataset=digits", *FAST, "privacy.noise_multiplier=9")
LIGHT = (*PUBLIC, "score.noise_std=30")
OWN = """# @package _global_
# An experiment of a user's own.
defaults:
  - override /trainer: dpadam

steps: 3
"""


@pytest.fixture
def own_experiment(tmp_path: Path) -> Path:
    """A folder for `--config-dir`, with `experiment=mine`."""
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    (tmp_path / "my" / "experiment" / "mine.yaml").write_text(OWN)
    return tmp_path / "my"


def methods(priced: PricedPlan) -> list[str]:
    return list(dict.fromkeys(trial.method for trial in priced.plan.trials))


def shown(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert done.returncode == 0, done.stderr
    form = yaml.safe_load(done.stdout)
    assert isinstance(form, dict)
    return form


def test_the_default_is_by_grid_which_runs_the_methods_of_the_grid(compose_priced: Compose) -> None:
    default = compose_priced(LIGHT)
    assert methods(default) == ["dpnsgd", "dpsgd"]
    assert default.plan.id == compose_priced([*LIGHT, "trainer=by_grid"]).plan.id
    assert default.plan.id == compose_priced([*LIGHT, "trainer=dpnsgd,dpsgd"]).plan.id
    assert methods(compose_priced([*LIGHT, "grid.trainers=[dpadam]"])) == ["dpadam"]
    assert methods(compose_priced([*LIGHT, "trainer=dpadam,by_grid"])) == ["dpadam", "dpnsgd", "dpsgd"]


def test_a_value_that_is_given_without_a_trainer_is_every_methods(compose_priced: Compose) -> None:
    given = compose_priced([*LIGHT, "trainer.lr=2"]).plan
    assert {trial.config["trainer"]["lr"] for trial in given.trials} == {2}
    assert {key for trial in given.trials for key in trial.axes} == {"trainer.regularizer", "trainer.clip_norm"}
    with pytest.raises(BadInput, match=r"trainer\.clip_norm=1 to be a key of every method that runs \(dpnsgd, dpsgd\)"):
        compose_priced([*LIGHT, "trainer.clip_norm=1"])


@pytest.mark.parametrize("words", [LIGHT, (*PUBLIC, "experiment=smoke/b_fig7")])
def test_the_command_lines_trainer_wins_over_a_files(compose_priced: Compose, words: tuple[str, ...]) -> None:
    assert methods(compose_priced([*words, "trainer=dpsgd", "grid.trainers=[dpadam]"])) == ["dpsgd"]


def test_axes_are_given_to_a_method_that_runs_beside_others(compose_priced: Compose) -> None:
    line = [*LIGHT, "trainer=dpsgd,dpadam", "grid.axes.dpadam={trainer.lr: [0.2], trainer.clip_norm: [1]}"]
    assert [trial.method for trial in compose_priced(line).plan.trials] == ["dpsgd"] * 16 + ["dpadam"]


def test_a_class_in_the_place_of_a_trainer_is_the_trainer(compose_priced: Compose) -> None:
    own = "trainer={_target_:dpsweep.trainers.methods.named_methods.DpSgd,clip_norm:1}"
    plan = compose_priced([*LIGHT, own, "trainer.lr=1,2"]).plan
    assert [trial.config["trainer"] for trial in plan.trials] == [
        {"kind": "dp_sgd", "lr": lr, "clip_norm": 1} for lr in (1, 2)
    ]


def test_a_trainer_without_axes_is_refused_with_the_next_step(compose_priced: Compose) -> None:
    with pytest.raises(BadInput, match=r"trainer=\{_target_.*\} to have axes: .* Give them on the command line"):
        compose_priced([*LIGHT, "trainer={_target_:dpsweep.trainers.methods.named_methods.DpSgd,clip_norm:1}"])


@pytest.mark.parametrize("file", ["experiment/mine.yaml", "dataset/mine.yaml"])
def test_a_file_of_ones_own_names_the_trainer_that_is_planned(program: Program, tmp_path: Path, file: str) -> None:
    """In an experiment, and in a data set's defaults; the option stands before or after the overrides."""
    path = tmp_path / "my" / file
    path.parent.mkdir(parents=True)
    own = OWN if "experiment" in file else OWN.replace("  - override", "  - /dataset/digits\n  - _self_\n  - override")
    path.write_text(own)
    choice = ("experiment=mine", "dataset=digits") if "experiment" in file else ("dataset=mine",)
    line = ("--config-dir", "my", *choice, *LIGHT[1:]) if "experiment" in file else (*choice, "-cd", "my", *LIGHT[1:])
    done = program("plan", *line, module=CLI)
    assert done.returncode == 0, done.stderr
    (plan,) = tmp_path.rglob("plan.json")
    trials = [trial for block in json.loads(plan.read_text())["blocks"] for trial in block]
    assert {trial["method"] for trial in trials} == {"dpadam"}
    assert {trial["config"]["trainer"]["kind"] for trial in trials} == {"dp_adam"}
    assert {trial["config"]["steps"] for trial in trials} == {3}


@pytest.mark.parametrize("start", [("sweeper",), (CLI, "sweep"), (CLI, "plan"), ("dpsweep", "plan")], ids=" ".join)
def test_a_folder_of_configurations_is_named_anywhere(
    program: Program, own_experiment: Path, start: tuple[str, ...]
) -> None:
    module, *verb = start
    words = (*verb, "experiment=mine", f"--config-dir={own_experiment}", "steps=4", "--cfg", "job", "seed=1")
    form = shown(program(*words, module=module))
    assert (form["steps"], form["seed"], form["trainer"]["_target_"].split(".")[-1]) == (4, 1, "DpAdam")  # type: ignore[comparison-overlap,attr-defined]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a=1 --config-dir my b=2", "--config-dir my --multirun a=1 b=2"),
        ("-cd=my a=1", "-cd=my --multirun a=1"),
        ("--cfg job a=1", "--cfg job a=1"),
        ("a=1 --cfg job --resolve b=2", "--cfg job --resolve a=1 b=2"),
        ("-sc query=bash", "-sc query=bash"),
        ("", "--multirun"),
    ],
)
def test_options_stand_before_overrides(line: str, told: str) -> None:
    assert move_options_before_overrides(line.split()) == told.split()


def test_the_default_is_shown_in_about_a_hundred_lines_without_plumbing(program: Program) -> None:
    done = program("--cfg", "job")
    form = shown(done)
    assert len(done.stdout.splitlines()) <= 110
    assert not {"block", "part", "parts"} & form.keys()
    assert "id" not in form["plan"]
    assert form["trainer"]["_target_"] is None
    assert form["grid"] == {"trainers": ["dpnsgd"]}


def test_only_the_axes_of_the_named_trainer_are_shown(program: Program) -> None:
    assert set(shown(program("--cfg", "job", "trainer=dpadam"))["grid"]["axes"]) == {"dpadam"}  # type: ignore[call-overload]
