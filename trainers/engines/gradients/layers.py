"""Per-example gradients of each layer with a rule, from its inputs and the gradient by its outputs.

A layer has a rule if its exact type is in `LAYERS`: a subclass may use its parameters in another way. Each function
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
    ConsecutiveGradients,
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


def convolution(
    layer: nn.Conv1d | nn.Conv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Explicit per-example gradients of the weight, and sums over positions for the bias."""
    gradients: dict[str, LayerGradient] = {}
    if "weight" in trained:
        parts = weight_gradients(layer, inputs, gradient)
        gradients["weight"] = ConsecutiveGradients(parts=tuple(DenseGradient(rows=part) for part in parts))
    if "bias" in trained:
        gradients["bias"] = DenseGradient(rows=gradient.flatten(2).sum(dim=2))
    return gradients


def standardized_convolution(
    layer: WeightStandardConv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Gradients by the standardized weight, mapped back to weight and gain by a linear map that all examples share."""
    by_standardized = torch.cat(weight_gradients(layer, inputs, gradient))
    weight, gain = pulled_back(layer.weight, layer.gain, by_standardized)
    rows = {"weight": weight, "gain": gain, "bias": gradient.sum(dim=(2, 3))}
    return {name: DenseGradient(rows=rows[name]) for name in trained}


def layer_norm(layer: nn.LayerNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """Per coordinate, summed over positions: output gradient times normalized input, and output gradient."""
    products = gradient * functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    last = inputs.ndim - len(layer.normalized_shape)
    return _weight_and_bias(trained, _summed(products, last), _summed(gradient, last))


def embedding(layer: nn.Embedding, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """For each example and each of its words, the sum over the positions of the word; zero for padding."""
    return _of_words(layer, inputs, gradient)


def _of_words(layer: nn.Embedding | nn.EmbeddingBag, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """The gradient of a table from that of each position [n, ..., width]."""
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


def embedding_bag(
    layer: nn.EmbeddingBag, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """The gradient of an embedding whose words all have the gradient of their bag, divided by their number in means."""
    counts = torch.ones_like(inputs) if layer.padding_idx is None else (inputs != layer.padding_idx).long()
    shares = counts.to(gradient.dtype)
    if layer.mode == "mean":
        shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1)
    return _of_words(layer, inputs, shares[:, :, None] * gradient[:, None, :])


def rms_norm(layer: nn.RMSNorm, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
    """Per coordinate, summed over positions: output gradient times normalized input."""
    products = gradient * functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
    return {"weight": DenseGradient(rows=_summed(products, inputs.ndim - len(layer.normalized_shape)))}


def _summed(values: Tensor, last: int) -> Tensor:
    """The sums over the positions, which are the dimensions from 1 to before `last`."""
    return values.sum(dim=tuple(range(1, last))) if last > 1 else values


def _weight_and_bias(trained: Trained, weight: Tensor, bias: Tensor) -> dict[str, LayerGradient]:
    return {name: DenseGradient(rows=rows) for name, rows in (("weight", weight), ("bias", bias)) if name in trained}


LAYERS: Mapping[type[nn.Module], Callable[..., dict[str, LayerGradient]]] = MappingProxyType(
    {
        nn.Linear: linear,
        nn.Conv1d: convolution,
        nn.Conv2d: convolution,
        WeightStandardConv2d: standardized_convolution,
        nn.LayerNorm: layer_norm,
        nn.RMSNorm: rms_norm,
        nn.Embedding: embedding,
        nn.EmbeddingBag: embedding_bag,
    }
)


def has_rule(layer: nn.Module) -> bool:
    """Whether the function of a layer in `LAYERS` computes what this layer, with its options, does."""
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        plain = layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    if isinstance(layer, nn.EmbeddingBag):
        return layer.mode in ("sum", "mean")
    return layer._parameters.keys() <= {"weight", "bias", "gain"}
