"""A folder of configurations from somebody else runs no code, whatever its files name, at any key and any depth.

The command names the folder and a data set in it, as `dpsweep declare` prints it. The folder's files name `evil.py` of
the current folder, and installed modules that would touch the same marker.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Program
from tests.randomized import TRAINS

pytestmark = TRAINS

CLI = "dpsweep.sweeper.commands.cli"
CONF = Path(__file__).parents[2] / "conf"
FIXED = ("trainer.lr=1,2", "steps=2", "privacy.noise_multiplier=9", "budget.epsilon=99", "score.noise_std=30")
LIGHT = (*FIXED, "accountant=rdp", "accountant.witnesses=[]", "compute.device=cpu")
LINE = ("--config-dir", "conf", "dataset=clinic")
REFUSED = "since no code runs because a file names it. If it is yours, add: "

OURS = "dpsweep.trainers"
CALL = {"_target_": "evil.call", "_args_": [1]}
TOUCH = {"_target_": "subprocess.Popen", "args": ["touch", "ran"]}
SHELL = {"_target_": "os.system", "command": "touch ran"}
METHOD = {"_target_": f"{OURS}.methods.method.Method", "lr": 1.0}
CLIP = {"_target_": f"{OURS}.methods.transforms.Clip", "clip_norm": 1.0}
SGD = {"_target_": f"{OURS}.methods.updates.Sgd"}
NET = {"_target_": "net.net", "width": 3}
PARTS: Mapping[str, Any] = {
    **{f"{part}": {part: {"_target_": "evil.Part"}} for part in ("model", "loss", "score", "engine", "sampler")},
    **{f"{part}": {part: {"_target_": "evil.Part"}} for part in ("lr_schedule", "clip_schedule", "adapter")},
    **{f"{part}": {part: {"_target_": "evil.Part"}} for part in ("augmentation", "trainer", "dataset", "features")},
    **{f"{part} called": {part: SHELL} for part in ("model", "loss", "score", "trainer", "features")},
    "partial": {"model": {"_target_": "evil.call", "_partial_": True, "_args_": [SHELL]}},
    "update": {"trainer": {**METHOD, "transform": CLIP, "update": TOUCH}},
    "transform": {"trainer": {**METHOD, "transform": CALL, "update": SGD}},
    "nested": {"model": {"_target_": "evil.Part", "layers": [{"deep": [CALL, TOUCH]}]}},
    "argument of ours": {"model": {"_target_": f"{OURS}.models.fully_connected.mlp", "activation": SHELL}},
    "then": {"lr_schedule": {"_target_": f"{OURS}.declarations.lr_schedules.WarmUp", "then": CALL}},
    "source": {"dataset": {"_target_": f"{OURS}.data.sets.own_arrays.TorchDataset", "source": TOUCH, "bounds": [0, 1]}},
    "encoder": {
        "features": {
            **{"_target_": "torch_module", "source": CALL, "weights": "/dev/null", "sha256": "0", "size": 3},
            **{"norm": 4.0, "trained_on": "nothing"},
        }
    },
    "logger": {"logger": {"mine": CALL}},
    "accountant": {"accountant": {"claimants": [CALL], "witnesses": [SHELL]}},
    "search": {"search": {"_target_": "evil.call", "trials": 2}},
    "a sampler's argument": {"search": {"_target_": "optuna.samplers.TPESampler", "trials": 2, "gamma": CALL}},
    "a sampler at another place": {"model": {"_target_": "optuna.samplers.TPESampler"}},
    "interpolation": {"model": {"_target_": "${oc.env:EVIL_CLASS,evil.Part}"}},
    "axis": {"grid": {"axes": {"dpsgd": {"model._target_": ["evil.Part"]}}}},
    "script": {"trainer": {"_target_": f"{OURS}.methods.script.Script", "script": "evil.py", "lr": 1.0}},
    "trusts itself": {"trusted": ["evil.Part"], "model": {"_target_": "evil.Part"}},
    "rule": {"tuning": CALL},
    "of ours without a tag": {
        "model": {"_target_": "dpsweep.sweeper.processes.subprocess.run", "args": ["touch", "ran"]}
    },
}
EVIL = "from pathlib import Path\nPath('ran').touch()\ndef call(*_, **__):\n    Path('ran').touch()\nPart = call\n"
HYDRA: Mapping[str, Any] = {
    "callbacks": {"callbacks": {"mine": CALL}},
    "sweeper": {"sweeper": {"_target_": "evil.call"}},
    "a sweeper's argument": {"sweeper": {"study": TOUCH}},
    "a launcher's argument": {"launcher": {"n_jobs": SHELL}},
    "logging": {
        "job_logging": {"version": 1, "handlers": {"mine": {"()": "evil.call"}}, "root": {"handlers": ["mine"]}}
    },
    "search path": {"searchpath": ["pkg://evil"]},
    "variables": {"job": {"env_set": {"LD_PRELOAD": "evil.so"}}},
    "folder": {"sweep": {"dir": "/tmp"}},
}
BELOW_HYDRA = "to set nothing below hydra: Hydra runs what its keys name"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "model").mkdir()
    return tmp_path


def write_clinic(folder: Path, keys: Mapping[str, Any], *defaults: str) -> None:
    """A data set's file with these keys, on the records of digits; a dataset of its own replaces their class."""
    form = {"defaults": ["digits", *defaults, "_self_"], **keys}
    (folder / "conf" / "dataset" / "clinic.yaml").write_text(f"# @package _global_\n{yaml.safe_dump(form)}")


def nothing_ran(folder: Path) -> bool:
    return not (folder / "ran").exists() and not (folder / "sweeps").exists()


@pytest.mark.parametrize("keys", [pytest.param(keys, id=name) for name, keys in PARTS.items()])
def test_no_file_runs_what_it_names(program: Program, folder: Path, keys: Mapping[str, Any]) -> None:
    write_clinic(folder, keys)
    trainer = () if "trainer" in keys else ("trainer=dpsgd", "trainer.clip_norm=1")
    done = program("plan", *LINE, *trainer, *LIGHT, module=CLI)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert nothing_ran(folder)
    assert REFUSED in done.stderr or done.stderr.startswith(("Expected tuning", "Expected rule=", "Expected model=")), (
        done.stderr
    )


@pytest.mark.parametrize("key", ["model", "update", "encoder", "script"])
@pytest.mark.parametrize(
    "verb",
    [
        ("sweep",),
        ("rehearse",),
        ("audit",),
        ("advise",),
        ("plan", "--rules"),
        ("plan", "--for", "tre"),
        ("plan", "--cfg", "job"),
        ("plan", "--info", "all"),
        ("plan", "--help"),
        ("budget", "open"),
        ("help", "dataset=clinic"),
    ],
    ids=" ".join,
)
def test_no_verb_runs_what_a_file_names(program: Program, folder: Path, verb: tuple[str, ...], key: str) -> None:
    write_clinic(folder, PARTS[key])
    words = () if verb[0] == "help" else LINE if verb[0] == "budget" else (*LINE, *LIGHT)
    done = program(*verb, *words, module=CLI)
    assert "Traceback" not in done.stderr
    assert nothing_ran(folder)
    if verb[0] in ("sweep", "rehearse", "audit", "advise") or "tre" in verb or "--rules" in verb:
        assert done.returncode == 2
        assert REFUSED in done.stderr


@pytest.mark.parametrize("keys", [pytest.param(keys, id=name) for name, keys in HYDRA.items()])
def test_no_file_sets_a_key_of_hydras(program: Program, folder: Path, keys: Mapping[str, Any]) -> None:
    write_clinic(folder, {"hydra": keys})
    for verb in (("plan",), ("sweep",), ("budget", "open")):
        done = program(*verb, *LINE, *(LIGHT if verb[0] != "budget" else ()), module=CLI)
        assert done.returncode == 2, done.stdout
        assert f"Expected {folder}/conf/dataset/clinic.yaml {BELOW_HYDRA}" in done.stderr
        assert nothing_ran(folder)


HIDDEN = {
    "a header": ("model/mine.yaml", "# @package hydra.callbacks.mine\n", "override /model: mine"),
    "a package": ("model/mine.yaml", "", "/model@hydra.callbacks.mine: mine"),
    "a group": ("hydra/launcher/mine.yaml", "", "override /hydra/launcher: mine"),
}


@pytest.mark.parametrize(("file", "header", "default"), HIDDEN.values(), ids=HIDDEN)
def test_no_file_comes_below_hydra_by_its_package(
    program: Program, folder: Path, file: str, header: str, default: str
) -> None:
    key, _, value = default.rpartition(": ")
    write_clinic(folder, {}, {key: value})  # type: ignore[arg-type]
    (folder / "conf" / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / "conf" / file).write_text(f"{header}_target_: evil.call\n")
    done = program("plan", *LINE, *LIGHT, module=CLI)
    assert done.returncode == 2, done.stdout
    assert f"Expected {folder}/conf/{file} {BELOW_HYDRA}" in done.stderr
    assert nothing_ran(folder)


def test_a_file_of_ours_comes_below_hydra_by_no_package(program: Program, folder: Path) -> None:
    write_clinic(folder, {}, {"/logger@hydra.callbacks.mine": "tensorboard"})  # type: ignore[arg-type]
    done = program("plan", *LINE, *LIGHT, module=CLI)
    assert done.returncode == 2, done.stdout
    assert f"/conf/logger/tensorboard.yaml {BELOW_HYDRA}" in done.stderr


NETS = """from math import prod
from torch import nn


def net(shape, classes, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.Tanh(), nn.Linear(width, classes))


def other(shape, classes, width):
    return net(shape, classes, width + 1)
"""
UPDATE = """from dataclasses import dataclass
from dpsweep.trainers.methods.updates import Update, Velocity


@dataclass(frozen=True, kw_only=True)
class Plain(Update[Velocity]):
    def start(self, weights):
        return Velocity(velocity=weights.new_zeros(weights.shape))

    def direction(self, state, gradient, noise_std):
        return state, gradient
"""
OWN: Mapping[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "one class": ({"model/mine": NET}, ("model=mine",), "model._target_=net.net"),
    "several choices": (
        {"model/mine": NET, "model/other": {**NET, "_target_": "net.other"}},
        ("model=mine,other",),
        "trusted=[net.net,net.other]",
    ),
    "one of several": ({"model/mine": NET}, ("model=mine,logistic",), "trusted=[net.net]"),
    "nested": (
        {"trainer/mine": {**METHOD, "transform": CLIP, "update": {"_target_": "plain.Plain"}}},
        ("trainer=mine",),
        "trusted=[plain.Plain]",
    ),
    "both": (
        {
            "model/mine": NET,
            "trainer/mine": {**METHOD, "transform": CLIP, "update": {"_target_": "plain.Plain"}},
        },
        ("trainer=mine", "model=mine"),
        "model._target_=net.net 'trusted=[plain.Plain]'",
    ),
}


@pytest.mark.parametrize(("files", "words", "added"), OWN.values(), ids=OWN)
def test_the_words_of_the_refusal_are_the_ones_that_let_it_run(
    program: Program, tmp_path: Path, files: dict[str, Any], words: tuple[str, ...], added: str
) -> None:
    (tmp_path / "net.py").write_text(NETS)
    (tmp_path / "plain.py").write_text(UPDATE)
    for name, form in files.items():
        path = tmp_path / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(form))
    own = any(word.startswith("trainer") for word in words)
    line = ("--config-dir", "conf", "dataset=digits", *LIGHT, *words)
    line = line if own else (*line, "trainer=dpsgd", "trainer.clip_norm=1")
    refused = program("sweep", *line, module=CLI)
    assert refused.returncode == 2, refused.stdout
    sentence = next(line for line in refused.stderr.splitlines() if REFUSED in line)
    pasted = shlex.split(sentence.partition(REFUSED)[2])
    assert pasted == shlex.split(added) or pasted == [added]
    done = program("sweep", *line, *pasted, module=CLI)
    assert done.returncode == 0, done.stderr
    results = [json.loads(path.read_text()) for path in tmp_path.glob("sweeps/*/*/trials/*/result.json")]
    assert {result["status"] for result in results} == {"finished"}
    (folder,) = tmp_path.glob("sweeps/*/*")
    resumed = program("resume", str(folder), module=CLI)
    assert resumed.returncode == 2
    assert "If it is yours, add: 'trusted=[" in resumed.stderr
    word = shlex.split(resumed.stderr.splitlines()[0].partition(REFUSED)[2].partition(", or give")[0])
    assert program("resume", str(folder), *word, module=CLI).returncode == 0


def test_a_copy_of_a_file_of_ours_needs_no_further_word(program: Program, folder: Path) -> None:
    """Files with classes of ours, and with one of another distribution at the place where ours have it."""
    for group, name in (("dataset", "digits"), ("model", "mlp"), ("search", "tpe"), ("lr_schedule", "warm_up_cosine")):
        (folder / "conf" / group).mkdir(exist_ok=True)
        (folder / "conf" / group / "copied.yaml").write_text((CONF / group / f"{name}.yaml").read_text())
    choices = ("dataset=copied", "model=copied", "lr_schedule=copied", "trainer=dpsgd", "trainer.clip_norm=1")
    for words in (choices, (*choices, "search=copied", "search.trials=2")):
        done = program("plan", "--config-dir", "conf", *words, *LIGHT, module=CLI)
        assert done.returncode == 0, done.stderr
    assert not (folder / "ran").exists()
