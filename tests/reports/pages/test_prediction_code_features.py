"""The code of a card whose model reads frozen features: it computes what our pipeline computes, without us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from dpsweep.accounting.stored_names.stored_classes import current_path_of_class, stored_form_of_config_part
from dpsweep.reports.content.trial_config import FrozenFeatures
from dpsweep.reports.pages.prediction_code import (
    EXTRACTOR,
    declared_preprocessing,
    prediction_snippet,
    source_of_module_and_imports,
)
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.sweeper.trial.spec import dataset_from_config
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights as build_model
from tests.alone import answers

CONF = Path(__file__).parents[3] / "conf"


def config_of(dataset: str, features: str) -> dict[str, Any]:
    nodes: dict[str, Any] = {
        "dataset": OmegaConf.to_container(OmegaConf.load(CONF / "dataset" / f"{dataset}.yaml").dataset),
        "features": OmegaConf.to_container(OmegaConf.load(CONF / "features" / f"{features}.yaml")),
    }
    parts = {name: stored_form_of_config_part(node, name) for name, node in nodes.items()}
    return config_with_base_weight_facts({"model": {}, **parts})


def pictures() -> tuple[list[Any], torch.Tensor]:
    bytes_ = torch.randint(256, (4, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    bytes_[1:3] = bytes_[1:3] // 8
    return bytes_.tolist(), bytes_ / 127.5 - 1


def sentences() -> tuple[list[Any], torch.Tensor]:
    texts = [[101, 2307, 3185, 102], [101, 102], [101, 9202, 2919, 7221, 102], [101, 2307, 102]]
    inputs = torch.zeros(len(texts), 64)
    for place, text in enumerate(texts):
        inputs[place, : len(text)] = torch.tensor(text).float()
    return texts, inputs


@pytest.mark.long
@pytest.mark.parametrize(
    ("dataset", "features", "examples"),
    [
        ("cifar10", "efficientnet_lite0", pictures),
        ("cifar10", "scattering", pictures),
        ("sst2_tokens", "minilm", sentences),
    ],
)
def test_labels_are_those_of_our_pipeline(dataset: str, features: str, examples: Any, tmp_path: Path) -> None:
    config = config_of(dataset, features)
    source, frozen = dataset_from_config(config), FrozenFeatures.from_trial_config(config)
    rows, inputs = examples()
    assert frozen is not None
    form = declared_preprocessing(config["dataset"], frozen)
    assert form is not None
    model = build_model(lambda: logistic(source.shape, source.classes), 3)
    with torch.no_grad():
        found = torch.cat([source.extractor_module()(one[None]) for one in inputs])
        model[1].weight.normal_(generator=torch.Generator().manual_seed(2))
        model[1].bias.copy_(-model[1].weight @ found.mean(dim=0))
    (tmp_path / "preprocessing.json").write_text(json.dumps(form))
    (tmp_path / "model.py").write_text(source_of_module_and_imports("dpsweep.trainers.models.fully_connected"))
    (tmp_path / EXTRACTOR).write_text(
        source_of_module_and_imports(current_path_of_class(config["features"]).rpartition(".")[0])
    )
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    expected = model(found).argmax(dim=1).tolist()
    assert len(set(expected)) > 1
    code = prediction_snippet({"model": {"kind": "logistic"}}, config["dataset"], form, "model.safetensors", frozen)
    labels = form["labels"]
    assert answers(tmp_path, code, rows) == (expected if labels is None else [labels[place] for place in expected])


def test_of_a_file_of_the_users_only_the_name_is_released() -> None:
    config = config_of("sst2_tokens", "minilm")
    config["features"]["weights"] = {"package": None, "file": "/home/ann/encoder/model.safetensors", "sha256": "0" * 64}
    frozen = FrozenFeatures.from_trial_config(config)
    assert frozen is not None
    assert frozen.settings_for_release["settings"]["weights"]["file"] == "model.safetensors"
    assert frozen.weights_package is None
    code = prediction_snippet(
        {"model": {"kind": "logistic"}},
        config["dataset"],
        declared_preprocessing(config["dataset"], frozen),
        "m",
        frozen,
    )
    assert "/home/ann" not in code
    assert "384 numbers of your module" in code
