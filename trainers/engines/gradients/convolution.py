"""Per-example gradients of a convolution's weight, by the fastest of three algorithms for its shape.

The choice depends on the layer's shape alone, not on measured times: the algorithms differ in rounding, and a run with
a seed should give the same numbers twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.grad import conv2d_weight

_PIECE = 16
_FEW_CHANNELS = 4
_MANY_CHANNELS = 16


def suits_channels_last(model: nn.Module) -> bool:
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
    def of(cls, layer: nn.Conv1d | nn.Conv2d) -> Geometry:
        """The geometry of a layer; sequences are images of height 1."""
        if isinstance(layer.padding, str):
            raise TypeError(f"Expected padding={layer.padding} to be numbers.")
        high = isinstance(layer, nn.Conv1d)

        def both(numbers: tuple[int, ...], missing: int) -> tuple[int, int]:
            first, last = (missing, *numbers) if high else numbers
            return first, last

        return cls(
            in_channels=layer.in_channels,
            out_channels=layer.out_channels,
            kernel_size=both(layer.kernel_size, 1),
            stride=both(layer.stride, 1),
            padding=both(layer.padding, 0),
        )

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """The shape of the weight."""
        return self.out_channels, self.in_channels, *self.kernel_size


def weight_gradients(layer: nn.Conv1d | nn.Conv2d, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients [n, *weight's shape] of groups of examples that fit the cache, in the examples' order."""
    geometry = Geometry.of(layer)
    if isinstance(layer, nn.Conv1d):
        parts = _image_gradients(geometry, inputs.unsqueeze(2), gradient.unsqueeze(2))
        return tuple(part.squeeze(3) for part in parts)
    return _image_gradients(geometry, inputs, gradient)


def _image_gradients(layer: Geometry, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients [n, out, in, height, width]: large ones in groups, where a copy would cost more than more calls.

    Many channels: one grouped convolution, which on a CPU is fast in float32 only. Few channels: windows unfolded to
    columns, with positions or channels innermost.
    """
    if layer.in_channels >= _MANY_CHANNELS and (inputs.is_cuda or inputs.dtype == torch.float32):
        algorithm = _grouped
    else:
        algorithm = _by_channels if layer.in_channels >= _FEW_CHANNELS else _by_positions
    parts = zip(torch.split(inputs, _PIECE), torch.split(gradient, _PIECE), strict=True)
    rows = tuple(algorithm(layer, *part) for part in parts)
    return rows if algorithm is _grouped or len(rows) == 1 else (torch.cat(rows),)


def _grouped(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
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
    return rows.view(examples, *layer.weight)


def _by_positions(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Windows as [n, in * height * width, positions]."""
    padded = _padded(layer, inputs).contiguous()
    (n, c, h, w), (down, across) = padded.stride(), layer.stride
    shape = (len(inputs), layer.in_channels, *layer.kernel_size, *gradient.shape[2:])
    windows = padded.as_strided(shape, (n, c, h, w, h * down, w * across)).reshape(len(inputs), -1, _area(gradient))
    return torch.bmm(gradient.flatten(2), windows.transpose(1, 2)).view(len(inputs), *layer.weight)


def _by_channels(layer: Geometry, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Windows as [n, positions, height * width * in]."""
    padded = _padded(layer, inputs).permute(0, 2, 3, 1).contiguous()
    (n, h, w, c), (down, across) = padded.stride(), layer.stride
    shape = (len(inputs), *gradient.shape[2:], *layer.kernel_size, layer.in_channels)
    windows = padded.as_strided(shape, (n, h * down, w * across, h, w, c)).reshape(len(inputs), _area(gradient), -1)
    rows = torch.bmm(gradient.flatten(2), windows)
    return rows.view(len(inputs), layer.out_channels, *layer.kernel_size, -1).permute(0, 1, 4, 2, 3)


def _padded(layer: Geometry, inputs: Tensor) -> Tensor:
    high, wide = layer.padding
    return pad(inputs, (wide, wide, high, high)) if high or wide else inputs


def _area(gradient: Tensor) -> int:
    return gradient.shape[2] * gradient.shape[3]
