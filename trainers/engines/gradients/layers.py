"""Layer by layer: from what went in and the gradient of what came out to the examples' gradients.

A layer is supported if it stands in `LAYERS` by its exact type: a subclass may do something else with its parameters.
Each function gets the layer, its inputs [n, ...] and the gradient of its outputs [n, ...], one row for each example,
and answers with what is held of each of its parameters that is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpsweep.trainers.engines.gradients.convolution import weight_gradients
from dpsweep.trainers.engines.gradients.layer_gradients import (
    DenseGradient,
    LayerGradient,
    OuterProductGradient,
    SparseGradient,
)
from dpsweep.trainers.models.weight_standardization import WeightStandardConv2d, pulled_back

Trained = Collection[str]


def linear(layer: nn.Linear, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """One outer product for each example, or the sum of as many as it has positions."""
    held: dict[str, LayerGradient] = {}
    if "weight" in trained and inputs.ndim == 2:
        held["weight"] = OuterProductGradient(left=gradient, right=inputs)
    elif "weight" in trained:
        held["weight"] = DenseGradient(rows=torch.bmm(gradient.flatten(1, -2).transpose(1, 2), inputs.flatten(1, -2)))
    if "bias" in trained:
        held["bias"] = DenseGradient(rows=gradient if inputs.ndim == 2 else gradient.flatten(1, -2).sum(dim=1))
    return held


def convolution(layer: nn.Conv2d, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """The weight's gradients are formed once, where they are needed, and kept."""
    held: dict[str, LayerGradient] = {}
    if "weight" in trained:
        held["weight"] = DenseGradient(rows=weight_gradients(layer, inputs, gradient))
    if "bias" in trained:
        held["bias"] = DenseGradient(rows=gradient.sum(dim=(2, 3)))
    return held


def standardized_convolution(
    layer: WeightStandardConv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Each example's gradient by the standardized weight, pulled back through what made it: a map that all share."""
    weight, gain = pulled_back(layer.weight, layer.gain, weight_gradients(layer, inputs, gradient))
    found = {"weight": weight, "gain": gain, "bias": gradient.sum(dim=(2, 3))}
    return {name: DenseGradient(rows=found[name]) for name in trained}


def group_norm(layer: nn.GroupNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """By channel, summed over positions: gradient times normalized input, and gradient."""
    by_channel = (*gradient.shape[:2], -1)
    products = gradient * functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return _chosen(trained, products.reshape(by_channel).sum(dim=2), gradient.reshape(by_channel).sum(dim=2))


def layer_norm(layer: nn.LayerNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """By coordinate, summed over positions: gradient times normalized input, and gradient."""
    products = gradient * functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    positions = tuple(range(1, inputs.ndim - len(layer.normalized_shape)))
    if positions:
        products, gradient = products.sum(dim=positions), gradient.sum(dim=positions)
    return _chosen(trained, products, gradient)


def embedding(layer: nn.Embedding, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """For each example and each of its words the sum over where the word stands; none for the padding."""
    words = inputs.flatten(1)
    examples, positions = words.shape
    places = torch.arange(examples, device=words.device)[:, None] * layer.num_embeddings + words
    distinct, which = torch.unique(places, return_inverse=True)
    values = gradient.reshape(examples * positions, -1)
    summed = values.new_zeros(len(distinct), values.shape[1]).index_add_(0, which.flatten(), values)
    rows = distinct % layer.num_embeddings
    if layer.padding_idx is not None:
        summed[rows == layer.padding_idx] = 0
    owners = distinct // layer.num_embeddings
    return {"weight": SparseGradient(values=summed, rows=rows, owners=owners, examples=examples)}


def _chosen(trained: Trained, weight: Tensor, bias: Tensor) -> dict[str, LayerGradient]:
    return {name: DenseGradient(rows=rows) for name, rows in (("weight", weight), ("bias", bias)) if name in trained}


LAYERS: Mapping[type[nn.Module], Callable[..., dict[str, LayerGradient]]] = MappingProxyType(
    {
        nn.Linear: linear,
        nn.Conv2d: convolution,
        WeightStandardConv2d: standardized_convolution,
        nn.GroupNorm: group_norm,
        nn.LayerNorm: layer_norm,
        nn.Embedding: embedding,
    }
)
