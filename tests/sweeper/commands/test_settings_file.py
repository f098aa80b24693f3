"""`--config FILE.yaml`: a sweep as a file of keys and axes; typed words win, and no file makes code run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.sweeper.commands.hydra_app import hydra_arguments_from_command_line
from dpsweep.sweeper.commands.keywords import words_with_settings_file
from tests.conftest import Program
from tests.forked_programs import CLI

NET = """
from math import prod
from torch import nn

print("imported")

def net(shape, classes, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.Linear(width, classes))
"""


def written(folder: Path, form: Any) -> str:
    path = folder / "search.yaml"
    path.write_text(form if isinstance(form, str) else yaml.safe_dump(form, sort_keys=False))
    return str(path)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"dataset": "digits", "lr": [0.1, 1], "epsilon": 3}, "dataset=digits trainer.lr=0.1,1 privacy.epsilon=3"),
        ({"trainer": ["dpsgd", "dpnsgd"], "trainer.clip_norm": [1]}, "trainer=dpsgd,dpnsgd trainer.clip_norm=1"),
        ({"trainer": {"lr": [1, 2], "clip_norm": 1}}, "trainer.lr=1,2 trainer.clip_norm=1"),
        ({"dataset.shape": [[3]], "compute.threads": 1}, "dataset.shape=[3] compute.threads=1"),
        ({"dataset.bounds": {"age": [0, 90]}}, "dataset.bounds={age: [0,90]}"),
        ("privacy: {delta: 1e-5}", "privacy.delta=1e-05"),
    ],
)
def test_keys_and_axes_are_words(tmp_path: Path, form: Any, words: str) -> None:
    made = words_with_settings_file(["--config", written(tmp_path, form)])
    assert " ".join(made) == words
    assert words_with_settings_file([f"--config={written(tmp_path, form)}", "--again"]) == [*made, "--again"]


def test_a_typed_word_replaces_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, {"steps": 5, "lr": [1, 2], "seed": 3})
    words = words_with_settings_file(["trainer.lr=7", "--config", path, "+seed=4"])
    assert hydra_arguments_from_command_line(words) == ["steps=5", "trainer.lr=7", "+seed=4"]
    assert words_with_settings_file(["steps=5"]) == ["steps=5"]


def test_a_typed_key_of_a_class_of_ones_own_is_one_that_the_file_adds(tmp_path: Path) -> None:
    path = written(tmp_path, {"model": {"_target_": "my_model.Net", "width": [8, 16]}})
    words = words_with_settings_file(["--config", path, "model._target_=my_model.Net", "model.width=4"])
    assert hydra_arguments_from_command_line(words) == ["model._target_=my_model.Net", "+model.width=4"]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("a: [", "search.yaml to be a file in YAML"),
        ("[3]", "search.yaml to have keys and their values, as in steps: 100."),
        ("3", "search.yaml to be a file in YAML"),
        ({"hydra": {"searchpath": ["file:///x"]}}, "Expected hydra on the command line"),
        ({"hydra/launcher": "joblib"}, "Expected hydra/launcher on the command line"),
        ({"++hydra.sweep.dir": "elsewhere"}, "Expected ++hydra.sweep.dir on the command line"),
        ({"~hydra.callbacks.door": 1}, "Expected ~hydra.callbacks.door on the command line"),
        ({"--config-dir=.x": "y"}, "Expected --config-dir=.x on the command line"),
        ({"model": {"width=1 --config-dir": "y"}}, "Expected model.width=1 --config-dir on the command line"),
        ({"learning_rate": 3}, "Expected learning_rate=3 in dpsweep's words: lr=3."),
        ({"model._target_": "os.system"}, "since no code runs because a file names it"),
        ({"model": {"_target_": "evil.Net"}}, "add: model._target_=evil.Net"),
        ({"model": {"_target_": "evil.Net"}, "trusted": ["evil.Net"]}, "since no code runs because a file names it"),
        ({"trainer.update": {"inner": {"_target_": "evil.Net"}}}, "add: 'trusted=[evil.Net]'"),
        ({"script": "evil.py"}, "since no code runs because a file names it"),
    ],
)
def test_what_a_file_may_not_hold_is_refused(tmp_path: Path, form: Any, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        words_with_settings_file(["--config", written(tmp_path, form)])
    assert said in str(refusal.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="to be a file in YAML"):
        words_with_settings_file(["--config", str(tmp_path / "none.yaml")])


def test_a_sweep_in_a_file_is_the_sweep_that_is_typed(program: Program, tmp_path: Path, ledger: Ledger) -> None:
    form = {"dataset": "digits", "trainer": "dpsgd", "lr": [1, 2], "clip_norm": 1, "steps": 3, "accountant": "rdp"}
    words = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=3", "accountant=rdp")
    from_file = program("plan", "--config", written(tmp_path, form), module=CLI)
    typed = program("plan", *words, module=CLI)
    assert from_file.returncode == typed.returncode == 0, from_file.stderr
    plans = [next(line for line in done.stdout.splitlines() if line.startswith("Plan ")) for done in (from_file, typed)]
    assert plans[0] == plans[1]


def test_an_axis_over_a_model_of_ones_own(program: Program, tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / "net.py").write_text(NET)
    form = {"dataset": "digits", "model": {"_target_": "net.net", "width": [2, 4]}, "trainer": "dpsgd"}
    line = ("plan", "--config", written(tmp_path, form), "trainer.lr=1", "trainer.clip_norm=1", "accountant=rdp")
    refused = program(*line, module=CLI)
    assert (refused.returncode, refused.stdout) == (2, "")
    done = program(*line, "model._target_=net.net", module=CLI)
    assert done.returncode == 0, done.stderr
    assert "imported" in done.stdout
    assert "2 (2 dpsgd)" in done.stdout
    assert not ledger.account_names()
