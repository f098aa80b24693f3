"""`bounds=` and `schedule=`, which are called `clip_schedule=` and `lr_schedule=` now."""

from __future__ import annotations

import doctest
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpsweep.accounting.names import typed_names
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.commands import command_words
from dpsweep.sweeper.planning import former_words
from dpsweep.sweeper.planning.plan_builder import PricedPlan

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

CLI = "dpsweep.sweeper.commands.cli"
LINE = [
    *("dataset=digits", "accountant=rdp", "accountant.witnesses=[]", "trainer=dpsgd", "trainer.clip_norm=1"),
    *("privacy.noise_multiplier=9", "score.noise_std=30", "steps=4"),
]


@pytest.mark.parametrize("module", [typed_names, former_words, command_words], ids=lambda module: module.__name__)
def test_examples_hold(module: object) -> None:
    failed, attempted = doctest.testmod(module)  # type: ignore[arg-type]
    assert attempted > 0
    assert failed == 0


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["schedule=cosine"], ["lr_schedule=cosine"]),
        (["schedule=constant,cosine"], ["lr_schedule=constant,cosine"]),
        (["bounds=linear", "bounds.least=0.5,0.25"], ["clip_schedule=linear", "clip_schedule.least=0.5,0.25"]),
        (["bounds=linear", "++bounds.least=0.5"], ["clip_schedule=linear", "++clip_schedule.least=0.5"]),
        (
            ["bounds=linear", "grid.axes.dpsgd={bounds.least: [0.5, 0.25]}"],
            ["clip_schedule=linear", "grid.axes.dpsgd={clip_schedule.least: [0.5, 0.25]}"],
        ),
    ],
    ids=lambda line: " ".join(line),
)
def test_former_words_make_the_same_plan(compose_priced: Compose, former: list[str], present: list[str]) -> None:
    assert compose_priced([*LINE, *former]).plan == compose_priced([*LINE, *present]).plan


def test_what_is_stored_keeps_the_former_words(compose_priced: Compose) -> None:
    """They are part of identities: these are the ids that the plans had when the words were typed so."""
    line = [*LINE, "lr_schedule=constant,cosine", "clip_schedule=linear", "clip_schedule.least=0.5,0.25"]
    plan = compose_priced(line).plan
    assert set(plan.trials[0].axes) == {"schedule", "trainer.lr", "bounds.least"}
    assert {"schedule", "bounds"} < plan.trials[0].config.keys()
    assert not {"lr_schedule", "clip_schedule"} & plan.trials[0].config.keys()
    assert plan.id == "abf747b05de4"
    assert Plan.from_json(json.loads(json.dumps({"id": plan.id} | plan.to_json()))) == plan


def test_a_command_line_hears_of_the_present_word_once(program: Program) -> None:
    done = program("--cfg", "job", "bounds=linear", "bounds.least=0.25", "dataset=digits")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["bounds is called clip_schedule now; the former word still works here."]
    assert "least: 0.25" in done.stdout


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (
            "defaults:\n  - override /bounds: linear\n",
            "Expected `override /bounds` in experiment/mine.yaml to be `override /clip_schedule`.",
        ),
        ("schedule: {final: 0.1}\n", "Expected schedule in a configuration file to be called lr_schedule."),
    ],
)
def test_a_file_with_a_former_word_is_refused(program: Program, tmp_path: Path, file: str, sentence: str) -> None:
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    (tmp_path / "my" / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{file}")
    done = program("plan", *LINE, "experiment=mine", "--config-dir=my", module=CLI)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [sentence, "(exit code 2: bad input, nothing was charged)"]
    assert not list(tmp_path.rglob("plan.json"))


def test_axes_of_a_file_may_have_former_words(program: Program, tmp_path: Path) -> None:
    (tmp_path / "my" / "experiment").mkdir(parents=True)
    axes = "grid: {axes: {dpsgd: {trainer.lr: [1.0], bounds.least: [0.25, 0.5]}}}"
    (tmp_path / "my" / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{axes}\n")
    done = program("plan", *LINE, "clip_schedule=linear", "experiment=mine", "--config-dir=my", module=CLI)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["bounds is called clip_schedule now; the former word still works here."]
    (path,) = tmp_path.rglob("plan.json")
    assert [trial.axes["bounds.least"] for trial in Plan.read(path).trials] == [0.25, 0.5]
