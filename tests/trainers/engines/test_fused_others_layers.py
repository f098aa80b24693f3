"""Opacus' own cases of per-example gradients: every engine is exact on them, or the refusal is listed and explained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.interface import Minibatch, Task, Unsupported
from dpsweep.trainers.methods.transforms import Clip
from tests.exactness import CLASSES, filled, noise, rows_alone
from tests.trainers.gradients import ENGINES

OTHERS = Path(__file__).parents[2] / "others"
DATA = json.loads((OTHERS / "per_example_gradients.json").read_text())
REFUSALS: Mapping[str, str] = json.loads((OTHERS / "differences.json").read_text())["gradients"]
DRAWS = 12
"""The number of points of a case's ranges that are drawn, from a fixed seed."""
EXACT = 1e-9
Point = Mapping[str, Any]


class OneInput(nn.Module):
    """A layer that gives logits, of an input with the examples first."""

    def __init__(self, layer: nn.Module, example: Tensor, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.call = layer, call
        with torch.no_grad():
            self.head = nn.Linear(call(layer, example).flatten(1).shape[1], CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.call(self.layer, values).flatten(1))


def plain(layer: nn.Module, values: Tensor) -> Tensor:
    return layer(values)


def first(layer: nn.Module, values: Tensor) -> Tensor:
    return layer(values)[0]


def attended(layer: nn.Module, values: Tensor) -> Tensor:
    query, key, value = values.unbind(-1)
    return layer(query, key, value, need_weights=False)[0]


Made = tuple[nn.Module, tuple[int, ...], Callable[[nn.Module, Tensor], Tensor]]
"""A layer, the shape of one example, and how the layer is called."""


def linear(point: Point) -> Made:
    shape = (point["Z"], point["H"])[: point["input_dim"] - 2]
    return nn.Linear(point["W"], point["W"] + 2, bias=point["bias"]), (*shape, point["W"]), plain


def convolution(kind: type[nn.Module]) -> Callable[[Point], Made | None]:
    def make(point: Point) -> Made | None:
        channels, sizes = point["C"], [point[name] for name in ("D", "H", "W") if name in point]
        out = 2 * channels if point["out"] == "expander" else max(1, channels // 2)
        if point["padding"] == "same" and point["stride"] != 1:
            return None
        if channels % point["groups"] or out % point["groups"]:
            return None
        options = {
            name: tuple(point[name]) if isinstance(point[name], list) else point[name]
            for name in ("kernel_size", "stride", "padding", "dilation", "groups")
        }
        return kind(channels, out, **options), (channels, *sizes), plain

    return make


def embedding(point: Point) -> Made:
    return nn.Embedding(point["V"], point["D"]), (point["T"], point["Q"], point["R"])[: point["dim"] - 1], plain


def group_norm(point: Point) -> Made | None:
    groups = point["C"] if point["num_groups"] == "C" else point["num_groups"]
    if point["C"] % groups:
        return None
    return nn.GroupNorm(groups, point["C"]), (point["C"], point["H"], point["W"]), plain


def last_norm(kind: type[nn.Module]) -> Callable[[Point], Made | None]:
    def make(point: Point) -> Made | None:
        shape = (*(point["Z"], point["H"])[: point["input_dim"] - 2], point["W"])
        if point["norm_dim"] >= point["input_dim"]:
            return None
        return kind(shape[-point["norm_dim"] :]), shape, plain

    return make


def instance_norm(point: Point) -> Made:
    return nn.InstanceNorm1d(point["C"], affine=True), (point["C"], point["W"]), plain


def recurrent(kind: type[nn.RNNBase]) -> Callable[[Point], Made]:
    def make(point: Point) -> Made:
        options = {name: point[name] for name in ("num_layers", "bias", "bidirectional")}
        return kind(point["D"], point["H"], batch_first=True, **options), (point["T"], point["D"]), first

    return make


def attention(point: Point) -> Made:
    other = point["D"] if point["kv_dim"] else None
    options = {name: point[name] for name in ("bias", "add_bias_kv", "add_zero_attn")}
    layer = nn.MultiheadAttention(point["D"], point["P"], kdim=other, vdim=other, batch_first=True, **options)
    return layer, (point["T"], point["D"], 3), attended


MAKERS: Mapping[str, Callable[[Point], Made | None]] = {
    "Linear": linear,
    "Conv1d": convolution(nn.Conv1d),
    "Conv2d": convolution(nn.Conv2d),
    "Conv3d": convolution(nn.Conv3d),
    "Embedding": embedding,
    "GroupNorm": group_norm,
    "LayerNorm": last_norm(nn.LayerNorm),
    "RMSNorm": last_norm(nn.RMSNorm),
    "InstanceNorm1d": instance_norm,
    "RNN": recurrent(nn.RNN),
    "GRU": recurrent(nn.GRU),
    "LSTM": recurrent(nn.LSTM),
    "MultiheadAttention": attention,
}


def drawn(case: Mapping[str, Any]) -> list[tuple[nn.Module, Tensor]]:
    """Models around a case's layer, and their inputs, at points of its ranges that its test does not skip."""
    rng, models = Random(case["layer"]), []
    while len(models) < DRAWS:
        point = {name: rng.choice(values) for name, values in case["ranges"].items()}
        if (made := MAKERS[case["layer"]](point)) is None:
            continue
        layer, shape, call = made
        words = isinstance(layer, nn.Embedding)
        inputs = noise(point["N"] + 1, *shape, seed=len(models))
        if words:
            inputs = (inputs.abs() * 1e6).long() % layer.num_embeddings
        model = filled(OneInput(layer.double(), inputs[:1], call), seed=len(models))
        models.append((model, inputs[: point["N"]]))
    return models


def agrees(engine: Any, model: nn.Module, inputs: Tensor) -> None:
    """The engine's norms and sums are those of single examples, with and without clipping."""
    targets = torch.arange(len(inputs)) % CLASSES
    rows = rows_alone(model, inputs, targets) if len(inputs) else torch.zeros(0, 1)
    for bound in (1e-2, 1e6):
        total, norms = engine.bounded_gradient_sum_and_norms(
            model, Minibatch(inputs, targets), Task(transform=Clip(clip_norm=bound))
        )
        assert len(norms) == len(inputs)
        if not len(inputs):
            assert not total.any()
            continue
        assert torch.allclose(norms, rows.norm(dim=1), rtol=EXACT, atol=EXACT)
        target = Clip(clip_norm=bound).factors(rows.norm(dim=1)) @ rows
        assert float((total - target).norm()) <= EXACT * max(1.0, float(target.norm()))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["layer"])
def test_gradients_are_those_of_single_examples_or_the_layer_is_refused(case: Mapping[str, Any], engine: Any) -> None:
    refused = 0
    for model, inputs in drawn(case):
        try:
            agrees(engine, model, inputs)
        except Unsupported:
            refused += 1
    assert (refused > 0) == (f"{case['layer']} by {type(engine).__name__}" in REFUSALS), refused


def test_every_listed_refusal_is_that_of_a_case() -> None:
    names = {f"{case['layer']} by {type(engine).__name__}" for case in DATA["cases"] for engine in ENGINES}
    assert set(REFUSALS) <= names
    table = (OTHERS / "README.md").read_text()
    for name, reason in REFUSALS.items():
        assert f"| {name} | {reason} |" in table
