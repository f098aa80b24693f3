"""Encoders from a folder on disk: the folder's own weights, no dropout, no download, and one sentence for a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.trainers.data import published_files as pretrained_files
from dpsweep.trainers.data.published_files import UNKNOWN, PretrainedFolder, number_of_tokenizer_entries
from dpsweep.trainers.models.weights import construct_user_model
from tests.trainers.pretrained_folders import ARCHITECTURES, pretrained_folder

SHAPE, CLASSES = (6,), 2
TEXTS = torch.tensor([[2, 4, 5, 6, 3, 0], [2, 7, 3, 0, 0, 0]])


def completed(folder: Path, **settings: Any) -> dict[str, Any]:
    """The arguments of `hf` as planning completes them."""
    node = {"kind": "hf", "path": str(folder), **settings}
    model = config_with_base_weight_facts({"model": node, "dataset": {}})["model"]
    return {key: value for key, value in model.items() if key != "kind"}


def built(arguments: dict[str, Any], seed: int = 1) -> nn.Module:
    from dpsweep.trainers.models.hugging_face import hf

    return construct_user_model(lambda: hf(SHAPE, CLASSES, **arguments), "hf", seed)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_encoder_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / kind, kind)
    arguments = completed(folder)
    model = built({**arguments, "padding": 0})
    import transformers

    theirs = transformers.AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    mask = (TEXTS != 0).long()
    values = theirs(input_ids=TEXTS, attention_mask=mask).last_hidden_state
    mean = (values * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    assert torch.allclose(model.train()(TEXTS), model.head(mean), atol=1e-5), "no dropout, in training mode too"
    assert torch.equal(model.train()(TEXTS), model.eval()(TEXTS))


@pytest.mark.parametrize(("pooling", "place"), [("first", [0, 0]), ("last", [4, 2])])
def test_a_text_is_read_at_one_word(pooling: str, place: list[int], tmp_path: Path) -> None:
    model = built(completed(pretrained_folder(tmp_path / "bert"), pooling=pooling))
    mask = (TEXTS != 0).long()
    values = model.encoder(input_ids=TEXTS, attention_mask=mask).last_hidden_state
    assert torch.allclose(model(TEXTS), model.head(values[torch.arange(2), torch.tensor(place)]), atol=1e-6)


def test_the_head_is_drawn_by_the_seed_and_the_rest_is_the_folders(tmp_path: Path) -> None:
    arguments = completed(pretrained_folder(tmp_path / "bert"))
    first, second, again = built(arguments, 1), built(arguments, 2), built(arguments, 1)
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, second.head.weight)
    assert [name for name, value in first.named_parameters() if value.requires_grad] == ["head.weight", "head.bias"]
    for (name, one), two in zip(first.encoder.named_parameters(), second.encoder.parameters(), strict=True):
        assert torch.equal(one, two), name


def test_planning_states_what_the_folder_has(tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    facts = completed(folder)
    assert (facts["name"], facts["licence"], facts["padding"]) == ("tiny-encoder", "mit", 0)
    assert facts["architecture"]["hidden_size"] == 8
    assert "transformers_version" not in facts["architecture"]
    assert completed(folder, licence="mine", padding=3)["licence"] == "mine"
    (folder / "README.md").unlink()
    assert completed(folder)["licence"] == UNKNOWN
    assert completed(folder)["name"] == "bert"
    cached = pretrained_folder(tmp_path / "models--an-org--a-model" / "snapshots" / "0123")
    (cached / "README.md").unlink()
    assert PretrainedFolder(path=str(cached)).name == "an-org/a-model"


def test_other_weights_are_another_plan_and_are_refused_by_this_one(tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    arguments = completed(folder)
    file = folder / "model.safetensors"
    save_file({name: value + 1 for name, value in load_file(file).items()}, file)
    pretrained_files._cached_sha256_of_file.cache_clear()
    assert completed(folder)["sha256"] != arguments["sha256"]
    with pytest.raises(ValueError, match=r"to have weights with sha256=[0-9a-f]{64}, got [0-9a-f]{64}\.$"):
        built(arguments)


def test_weights_of_a_larger_model_are_found_behind_their_prefix(tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    expected = built(completed(folder))(TEXTS)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file({f"bert.{name}": value for name, value in tensors.items()}, folder / "whole.safetensors")
    assert torch.equal(built(completed(folder))(TEXTS), expected)


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^Expected model.path=bert to be an absolute path of a folder\.$"):
        completed(Path("bert"))
    with pytest.raises(BadInput, match=r"to be a folder with weights, \*\.safetensors: nothing is downloaded"):
        completed(tmp_path)
    folder = pretrained_folder(tmp_path / "bert")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if "layer.1." not in name}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"to have encoder\.layer\.1\.[\w.]+ of shape \[8, 8\], as BertModel needs\.$"):
        built(completed(folder))
    (folder / "config.json").write_text(json.dumps({"hidden_size": 8}))
    with pytest.raises(BadInput, match=r"config\.json to name a model_type\.$"):
        completed(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(BadInput, match=r"config\.json to be JSON"):
        completed(folder)
    (folder / "config.json").unlink()
    with pytest.raises(BadInput, match=r"to be a folder with config\.json: nothing is downloaded"):
        completed(folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trained": "some"}, "Expected model.trained=some to be one of head, encoder."),
        ({"pooling": "max"}, "Expected model.pooling=max to be one of mean, first, last."),
        ({"padding": 99}, "Expected 0 <= model.padding=99 < 14."),
    ],
)
def test_settings_are_refused_by_name(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        built(completed(pretrained_folder(tmp_path / "bert"), **settings))


def test_a_model_that_is_no_encoder_of_texts_is_refused(tmp_path: Path) -> None:
    arguments = completed(pretrained_folder(tmp_path / "bert"))
    vision = {"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"intermediate_size": 8, "image_size": 4, "patch_size": 2}
    with pytest.raises(ValueError, match=r"to be an encoder of texts, got ViTModel\.$"):
        built({**arguments, "architecture": vision})


def test_a_missing_extra_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    monkeypatch.setattr("dpsweep.trainers.data.published_files.find_spec", lambda package: None)
    with pytest.raises(BadInput, match=r"^Expected transformers to be installed .*: pip install 'dpsweep\[hf\]'\.$"):
        completed(folder)


@pytest.mark.parametrize("content", ["{}", "[]", '{"model": {"vocab": 3}}', "{"])
def test_a_tokenizer_without_a_vocabulary_is_refused(content: str) -> None:
    with pytest.raises(BadInput, match=r"^Expected tokenizer\.json in here to have a vocabulary"):
        number_of_tokenizer_entries(content.encode(), "here")
