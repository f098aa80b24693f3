"""Per-example gradients of each supported layer, from its inputs and the gradient by its outputs.

A layer is supported if its exact type is in `LAYERS`: a subclass may use its parameters in another way. Each function
takes the layer, the names of its trainable parameters, its inputs [n, ...] and the gradient by its outputs [n, ...],
one row for each example. It returns the per-example gradients by parameter name.
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
    """One outer product for each example, or the sum of one outer product per position."""
    gradients: dict[str, LayerGradient] = {}
    if "weight" in trained and inputs.ndim == 2:
        gradients["weight"] = OuterProductGradient(left=gradient, right=inputs)
    elif "weight" in trained:
        gradients["weight"] = DenseGradient(
            rows=torch.bmm(gradient.flatten(1, -2).transpose(1, 2), inputs.flatten(1, -2))
        )
    if "bias" in trained:
        gradients["bias"] = DenseGradient(rows=gradient if inputs.ndim == 2 else gradient.flatten(1, -2).sum(dim=1))
    return gradients


def convolution(layer: nn.Conv2d, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """Explicit per-example gradients of the weight, and sums over positions for the bias."""
    gradients: dict[str, LayerGradient] = {}
    if "weight" in trained:
        gradients["weight"] = DenseGradient(rows=weight_gradients(layer, inputs, gradient))
    if "bias" in trained:
        gradients["bias"] = DenseGradient(rows=gradient.sum(dim=(2, 3)))
    return gradients


def standardized_convolution(
    layer: WeightStandardConv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Gradients by the standardized weight, mapped back to weight and gain by a linear map that all examples share."""
    weight, gain = pulled_back(layer.weight, layer.gain, weight_gradients(layer, inputs, gradient))
    rows = {"weight": weight, "gain": gain, "bias": gradient.sum(dim=(2, 3))}
    return {name: DenseGradient(rows=rows[name]) for name in trained}


def group_norm(layer: nn.GroupNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """Per channel, summed over positions: output gradient times normalized input, and output gradient."""
    by_channel = (*gradient.shape[:2], -1)
    products = gradient * functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return _weight_and_bias(trained, products.reshape(by_channel).sum(dim=2), gradient.reshape(by_channel).sum(dim=2))


def layer_norm(layer: nn.LayerNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """Per coordinate, summed over positions: output gradient times normalized input, and output gradient."""
    products = gradient * functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    positions = tuple(range(1, inputs.ndim - len(layer.normalized_shape)))
    if positions:
        products, gradient = products.sum(dim=positions), gradient.sum(dim=positions)
    return _weight_and_bias(trained, products, gradient)


def embedding(layer: nn.Embedding, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """For each example and each of its words, the sum over the positions of the word; zero for padding."""
    words = inputs.flatten(1)
    examples, positions = words.shape
    places = torch.arange(examples, device=words.device)[:, None] * layer.num_embeddings + words
    distinct, inverse = torch.unique(places, return_inverse=True)
    values = gradient.reshape(examples * positions, -1)
    sums = values.new_zeros(len(distinct), values.shape[1]).index_add_(0, inverse.flatten(), values)
    rows = distinct % layer.num_embeddings
    if layer.padding_idx is not None:
        sums[rows == layer.padding_idx] = 0
    owners = distinct // layer.num_embeddings
    return {"weight": SparseGradient(values=sums, rows=rows, owners=owners, examples=examples)}


def _weight_and_bias(trained: Trained, weight: Tensor, bias: Tensor) -> dict[str, LayerGradient]:
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
