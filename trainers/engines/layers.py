"""Per-example gradients of each layer with a rule, from its inputs and the gradient by its outputs.

A layer has a rule if its exact type is in `LAYERS`: a subclass may use its parameters in another way. Each function
takes the layer, the names of its trainable parameters, its inputs [n, ...] and the gradient by its outputs [n, ...],
one row for each example. It returns the per-example gradients by parameter name.

The gradients of a convolution's weight are computed by the fastest of three algorithms for its shape. The choice
depends on the layer's shape alone, not on measured times: the algorithms differ in rounding, and a run with a seed
should give the same numbers twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import pad
from torch.nn.grad import conv2d_weight

from dpsweep.trainers.engines.layer_gradients import (
    ConsecutiveGradients,
    DenseGradient,
    LayerGradient,
    OuterProductGradient,
    SparseGradient,
)
from dpsweep.trainers.models.convolutional import WeightStandardConv2d, gradients_by_weight_and_gain

_PIECE = 16
_FEW_CHANNELS = 4
_MANY_CHANNELS = 16


def is_channels_last_faster(model: nn.Module) -> bool:
    """Whether the layout with channels last is faster for this model.

    On a CPU, torch's pooling is several times faster in this layout, and its GroupNorm is slower.
    """
    kinds = {type(module) for module in model.modules()}
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    return on_cpu and {nn.Conv2d, nn.MaxPool2d} <= kinds and nn.GroupNorm not in kinds


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The numbers of a convolution in two dimensions, without groups or dilation."""

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @classmethod
    def from_layer(cls, layer: nn.Conv1d | nn.Conv2d) -> Geometry:
        """The geometry of a layer; sequences are images of height 1."""
        if isinstance(layer.padding, str):
            raise TypeError(f"Expected padding={layer.padding} to be numbers.")
        high = isinstance(layer, nn.Conv1d)

        def height_and_width(numbers: tuple[int, ...], missing: int) -> tuple[int, int]:
            first, last = (missing, *numbers) if high else numbers
            return first, last

        return cls(
            in_channels=layer.in_channels,
            out_channels=layer.out_channels,
            kernel_size=height_and_width(layer.kernel_size, 1),
            stride=height_and_width(layer.stride, 1),
            padding=height_and_width(layer.padding, 0),
        )

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """The shape of the weight."""
        return self.out_channels, self.in_channels, *self.kernel_size


def convolution_weight_gradients(layer: nn.Conv1d | nn.Conv2d, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients [n, *weight's shape] of groups of examples, in the examples' order."""
    geometry = Geometry.from_layer(layer)
    if isinstance(layer, nn.Conv1d):
        parts = _image_convolution_weight_gradients(geometry, inputs.unsqueeze(2), gradient.unsqueeze(2))
        return tuple(part.squeeze(3) for part in parts)
    return _image_convolution_weight_gradients(geometry, inputs, gradient)


def _image_convolution_weight_gradients(layer: Geometry, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients [n, out, in, height, width]: large ones in groups, where a copy would cost more than more calls.

    A CPU with many channels: one grouped convolution, which is fast in float32 only. Else windows unfolded to columns,
    with positions or channels innermost. A GPU takes all examples at once, with positions innermost.
    """
    if inputs.device.type != "cpu":
        return (_weight_gradients_by_position_windows(layer, inputs, gradient),)
    if layer.in_channels >= _MANY_CHANNELS and inputs.dtype == torch.float32:
        algorithm = _weight_gradients_by_grouped_convolution
    else:
        algorithm = (
            _weight_gradients_by_channel_windows
            if layer.in_channels >= _FEW_CHANNELS
            else _weight_gradients_by_position_windows
        )
    parts = zip(torch.split(inputs, _PIECE), torch.split(gradient, _PIECE), strict=True)
    rows = tuple(algorithm(layer, *part) for part in parts)
    return rows if algorithm is _weight_gradients_by_grouped_convolution or len(rows) == 1 else (torch.cat(rows),)


def _weight_gradients_by_grouped_convolution(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
    """One convolution in which each example is a group."""
    examples = len(inputs)
    shape = (examples * layer.out_channels, layer.in_channels, *layer.kernel_size)
    rows: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        inputs.reshape(1, -1, *inputs.shape[2:]),
        shape,
        gradient.reshape(1, -1, *gradient.shape[2:]),
        stride=layer.stride,
        padding=layer.padding,
        groups=examples,
    )
    return rows.view(examples, *layer.weight_shape)


def _weight_gradients_by_position_windows(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Windows as [n, in * height * width, positions]."""
    padded = _pad_inputs(layer, inputs).contiguous()
    (n, c, h, w), (down, across) = padded.stride(), layer.stride
    shape = (len(inputs), layer.in_channels, *layer.kernel_size, *gradient.shape[2:])
    windows = padded.as_strided(shape, (n, c, h, w, h * down, w * across)).reshape(
        len(inputs), -1, _output_area(gradient)
    )
    return torch.bmm(gradient.flatten(2), windows.transpose(1, 2)).view(len(inputs), *layer.weight_shape)


def _weight_gradients_by_channel_windows(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Windows as [n, positions, height * width * in]."""
    padded = _pad_inputs(layer, inputs).permute(0, 2, 3, 1).contiguous()
    (n, h, w, c), (down, across) = padded.stride(), layer.stride
    shape = (len(inputs), *gradient.shape[2:], *layer.kernel_size, layer.in_channels)
    windows = padded.as_strided(shape, (n, h * down, w * across, h, w, c)).reshape(
        len(inputs), _output_area(gradient), -1
    )
    rows = torch.bmm(gradient.flatten(2), windows)
    return rows.view(len(inputs), layer.out_channels, *layer.kernel_size, -1).permute(0, 1, 4, 2, 3)


def _pad_inputs(layer: Geometry, inputs: Tensor) -> Tensor:
    high, wide = layer.padding
    return pad(inputs, (wide, wide, high, high)) if high or wide else inputs


def _output_area(gradient: Tensor) -> int:
    return gradient.shape[2] * gradient.shape[3]


Trained = Collection[str]


def linear_gradients(layer: nn.Linear, trained: Trained, inputs: Tensor, gradient: Tensor) -> dict[str, LayerGradient]:
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


def convolution_gradients(
    layer: nn.Conv1d | nn.Conv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Explicit per-example gradients of the weight, and sums over positions for the bias."""
    gradients: dict[str, LayerGradient] = {}
    if "weight" in trained:
        parts = convolution_weight_gradients(layer, inputs, gradient)
        gradients["weight"] = ConsecutiveGradients(parts=tuple(DenseGradient(rows=part) for part in parts))
    if "bias" in trained:
        gradients["bias"] = DenseGradient(rows=gradient.flatten(2).sum(dim=2))
    return gradients


def standardized_convolution_gradients(
    layer: WeightStandardConv2d, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Gradients by the standardized weight, mapped back to weight and gain by a linear map that all examples share."""
    by_standardized = torch.cat(convolution_weight_gradients(layer, inputs, gradient))
    weight, gain = gradients_by_weight_and_gain(layer.weight, layer.gain, by_standardized)
    rows = {"weight": weight, "gain": gain, "bias": gradient.sum(dim=(2, 3))}
    return {name: DenseGradient(rows=rows[name]) for name in trained}


def layer_norm_gradients(
    layer: nn.LayerNorm, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Per coordinate, summed over positions: output gradient times normalized input, and output gradient."""
    products = gradient * functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    last = inputs.ndim - len(layer.normalized_shape)
    return _weight_and_bias_gradients(trained, _sum_over_positions(products, last), _sum_over_positions(gradient, last))


def embedding_gradients(
    layer: nn.Embedding, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """For each example and each of its words, the sum over the positions of the word; zero for padding."""
    return _embedding_table_gradients(layer, inputs, gradient)


def _embedding_table_gradients(
    layer: nn.Embedding | nn.EmbeddingBag, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
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


def embedding_bag_gradients(
    layer: nn.EmbeddingBag, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """The gradient of an embedding whose words all have the gradient of their bag, divided by their number in means."""
    counts = torch.ones_like(inputs) if layer.padding_idx is None else (inputs != layer.padding_idx).long()
    shares = counts.to(gradient.dtype)
    if layer.mode == "mean":
        shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1)
    return _embedding_table_gradients(layer, inputs, shares[:, :, None] * gradient[:, None, :])


def rms_norm_gradients(
    layer: nn.RMSNorm, trained: Trained, inputs: Tensor, gradient: Tensor
) -> dict[str, LayerGradient]:
    """Per coordinate, summed over positions: output gradient times normalized input."""
    products = gradient * functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
    return {"weight": DenseGradient(rows=_sum_over_positions(products, inputs.ndim - len(layer.normalized_shape)))}


def _sum_over_positions(values: Tensor, last: int) -> Tensor:
    """The sums over the positions, which are the dimensions from 1 to before `last`."""
    return values.sum(dim=tuple(range(1, last))) if last > 1 else values


def _weight_and_bias_gradients(trained: Trained, weight: Tensor, bias: Tensor) -> dict[str, LayerGradient]:
    return {name: DenseGradient(rows=rows) for name, rows in (("weight", weight), ("bias", bias)) if name in trained}


LAYERS: Mapping[type[nn.Module], Callable[..., dict[str, LayerGradient]]] = MappingProxyType(
    {
        nn.Linear: linear_gradients,
        nn.Conv1d: convolution_gradients,
        nn.Conv2d: convolution_gradients,
        WeightStandardConv2d: standardized_convolution_gradients,
        nn.LayerNorm: layer_norm_gradients,
        nn.RMSNorm: rms_norm_gradients,
        nn.Embedding: embedding_gradients,
        nn.EmbeddingBag: embedding_bag_gradients,
    }
)


def has_gradient_rule(layer: nn.Module) -> bool:
    """Whether the function of a layer in `LAYERS` computes what this layer, with its options, does."""
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        plain = layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    if isinstance(layer, nn.EmbeddingBag):
        return layer.mode in ("sum", "mean")
    return layer._parameters.keys() <= {"weight", "bias", "gain"}
