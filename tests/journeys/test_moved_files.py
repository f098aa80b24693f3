"""A file whose checksum a plan has may lie elsewhere when the command is given again; with other content it may not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.format_defaults import TABLE
from dpsweep.accounting.stored_names.stored_classes import identity_form_of_trial_config
from tests.conftest import Program
from tests.freezing import LEDGER, OWN, restored, words_of

FROM, TO = "/home/researcher/own", "/srv/models"
SHA256 = "ab" * 32


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DPSWEEP_KEY", str(tmp_path / "fingerprint.key"))


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The frozen sweep over a model's folder, which lies elsewhere now under another name, and the command for it."""

    sweep: Path
    model: Path
    words: tuple[str, ...]
    ledger: Ledger

    @property
    def plan(self) -> Plan:
        return Plan.read(self.sweep / "plan.json")

    def change_weights(self) -> None:
        weights = load_file(self.model / "model.safetensors")
        save_file({name: 2 * value for name, value in weights.items()}, self.model / "model.safetensors")


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")
    sweep, former, model = restored("texts", tmp_path), tmp_path / OWN / "bert", tmp_path / "models" / "renamed"
    model.parent.mkdir()
    former.rename(model)
    words = tuple(word.replace(str(former), str(model)) for word in words_of("texts", tmp_path))
    return Moved(sweep=sweep, model=model, words=words, ledger=Ledger(tmp_path / LEDGER))


def test_a_moved_model_is_recognised_for_nothing_and_other_weights_are_another_plan(
    program: Program, moved: Moved
) -> None:
    frozen, before = moved.plan, moved.ledger.statement("reviews").charges
    done = program("sweep", *moved.words, module="dpsweep")
    assert done.returncode == 0, done.stderr
    assert "nothing" in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith(str(moved.sweep.resolve()))
    assert moved.plan.id == frozen.id
    assert {trial.config["model"]["path"] for trial in moved.plan.trials} == {str(moved.model)}, "jobs look there"
    moved.change_weights()
    other = program("plan", *moved.words, "page=false", module="dpsweep")
    assert f"Files that it names or defaults have changed: this command was plan {frozen.id} before" in other.stdout
    assert len(list(moved.sweep.parent.iterdir())) == 2, "another plan has another folder"
    assert moved.ledger.statement("reviews").charges == before


@pytest.mark.long
def test_what_trains_needs_the_folder_with_these_weights(program: Program, moved: Moved) -> None:
    resume, before = ("resume", str(moved.sweep), "data=own"), moved.ledger.statement("reviews").charges
    lost = program(*resume, module="dpsweep")
    assert lost.returncode == 2
    assert re.search(r"Expected model.path=\S*bert .*give the command of the sweep again", lost.stderr), lost.stderr
    assert program("sweep", *moved.words, module="dpsweep").returncode == 0
    assert program(*resume, module="dpsweep").returncode == 0, "the plan has the new place"
    moved.change_weights()
    checksum = moved.plan.trials[0].config["model"]["sha256"]
    claimed = program("sweep", *moved.words, f"model.sha256={checksum}", "--again", module="dpsweep")
    assert claimed.returncode == 2
    assert f"to have weights with sha256={checksum}, got " in claimed.stderr
    assert moved.ledger.statement("reviews").charges == before


@pytest.mark.long
def test_what_does_not_train_needs_no_folder(program: Program, moved: Moved) -> None:
    shutil.rmtree(moved.model)
    for command in ("verify", "report", "release", "export"):
        done = program(command, str(moved.sweep), module="dpsweep")
        assert done.returncode == 0, (command, done.stderr)
    done = program("check", str(moved.sweep / "release"), module="dpsweep")
    assert done.returncode == 8, done.stdout + done.stderr


PLACED: Mapping[str, Mapping[str, Any]] = {
    "hf": {"model": {"kind": "hf", "path": f"{FROM}/bert", "sha256": SHA256, "name": "bert"}},
    "hf_encoder": {"features": {"kind": "hf_encoder", "path": f"{FROM}/vit", "sha256": SHA256, "norm": 4.0}},
    "folder_tokenizer": {
        "dataset": {
            "kind": "text_table",
            "vocabulary": {"kind": "folder_tokenizer", "path": f"{FROM}/bert", "sha256": SHA256},
        }
    },
    "sentence_encoder": {
        "features": {
            "kind": "sentence_encoder",
            "weights": {"package": None, "file": f"{FROM}/a.safetensors", "sha256": SHA256},
        }
    },
    "torch_module": {
        "features": {
            "kind": "torch_module",
            "weights": f"{FROM}/vit",
            "sha256": SHA256,
            "source": {"_target_": "my_module.Encoder", "folder": f"{FROM}/vit", "files": [f"{FROM}/vit/a.json"]},
        }
    },
    "script": {"trainer": {"kind": "script", "script": f"{FROM}/train.py", "sha256": SHA256, "lr": 1.0}},
}


@pytest.mark.parametrize("config", PLACED.values(), ids=PLACED)
def test_an_identity_has_no_place_of_a_file_but_its_checksum(config: Mapping[str, Any]) -> None:
    text = json.dumps(config)
    identity = identity_form_of_trial_config(config)
    assert FROM not in json.dumps(identity)
    assert identity == identity_form_of_trial_config(json.loads(text.replace(FROM, TO)))
    assert identity != identity_form_of_trial_config(json.loads(text.replace(SHA256, "cd" * 32)))


def test_a_module_that_reads_elsewhere_than_below_its_weights_is_another_plan() -> None:
    config = PLACED["torch_module"]
    other = {"features": config["features"] | {"source": {"_target_": "my_module.Encoder", "folder": TO}}}
    assert identity_form_of_trial_config(other)["features"]["source"]["folder"] == TO


def test_only_classes_of_the_users_keep_their_paths() -> None:
    own = {"model": {"_target_": "my_model.Net", "kind": "hf", "path": FROM}}
    assert identity_form_of_trial_config(own) == own


def test_a_swept_place_is_in_no_identity() -> None:
    form = json.loads((Path(__file__).parent.parent / "frozen/format_1/texts/plan.json").read_text())
    ids = set()
    for number in range(2):
        for place, trial in enumerate(trial for block in form["blocks"] for trial in block):
            trial["config"]["model"]["path"] = trial["axes"]["model.path"] = f"/models/{number}/{place}"
        ids.add(Plan.from_json(form).id)
    assert len(ids) == 1


def test_what_has_a_place_has_a_checksum() -> None:
    """A file without one, such as a data set's, is known by its name alone."""
    from inspect import signature

    from dpsweep.accounting.stored_names.tags import class_of_tag
    from tests.accounting.stored_names.test_format_defaults import FAMILY_OF

    for tag, keys in json.loads(TABLE.read_text())["places"].items():
        assert {"sha256", "weights"} & set(signature(class_of_tag(tag, FAMILY_OF[tag])).parameters), (tag, keys)
