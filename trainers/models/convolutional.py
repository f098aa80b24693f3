"""Convolutional networks for images: small ones, ResNet-20, and wide residual networks.

GroupNorm stands in place of BatchNorm, because BatchNorm mixes examples; convolutions with standardized weights replace
batch statistics too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from dpsweep.accounting.codec import positive_int
from dpsweep.trainers.models.fully_connected import make_activation


def require_image_shape(shape: tuple[int, ...], smallest: int) -> None:
    """Raises ValueError unless `shape` is (channels, height, width), at least `smallest` pixels high and wide."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"Expected shape={list(shape)} to be (channels, height, width), "
            f"at least {smallest} high and wide; model=logistic and model=mlp take any shape."
        )


_LEAST = 1e-4


class WeightStandardConv2d(nn.Conv2d):
    """A convolution whose weight is standardized per output channel to mean 0 and norm 1, then multiplied by a gain.

    Shapes: those of Conv2d; `gain` [out].
    Source: Qiao, Wang, Liu, Shen, Yuille 2019 (weight standardization); Brock, De, Smith 2021 (divided by the fan in,
    with a gain); De, Berrada, Hayes, Smith, Balle 2022 (with privacy).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gain = nn.Parameter(torch.ones(self.out_channels))

    def forward(self, images: Tensor) -> Tensor:
        """The convolution with the standardized weight."""
        outputs: Tensor = self._conv_forward(images, standardize_weight(self.weight, self.gain), self.bias)
        return outputs


def standardize_weight(weight: Tensor, gain: Tensor) -> Tensor:
    """Each weight[o] minus its mean, divided by the norm of this difference (at least 0.01), times gain[o]."""
    unit, _, _ = _unit_rows_and_inverse_norms(weight)
    return (unit * gain[:, None]).view_as(weight)


def gradients_by_weight_and_gain(weight: Tensor, gain: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients [n, *weight] and [n, out] by weight and gain, from gradients `rows` by the standardized weight.

    The map is linear and the same for all rows: it subtracts the mean and the component along the weight, which the
    norm removes. `rows` [n, *weight] is overwritten, because copying millions of numbers costs more than the map.
    """
    unit, inverse, varies = _unit_rows_and_inverse_norms(weight)
    flat = rows.flatten(2)
    along = (flat * unit).sum(dim=2)
    flat -= flat.mean(dim=2, keepdim=True)
    flat.addcmul_(unit * varies, along[:, :, None], value=-1).mul_(inverse * gain[:, None])
    return flat.view_as(rows), along


def _unit_rows_and_inverse_norms(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The centred weights [out, rest] over their norms, the inverse norms, and whether norms exceed 0.01 [out, 1]."""
    centred = weight.flatten(1) - weight.flatten(1).mean(dim=1, keepdim=True)
    squares = centred.square().sum(dim=1, keepdim=True)
    inverse = squares.clamp(min=_LEAST).rsqrt()
    return centred * inverse, inverse, squares >= _LEAST


_SMALLEST_CNN = 16


def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    activation: str = "relu",
    tempering: Mapping[str, float] | None = None,
) -> nn.Module:
    """Two 5x5 convolutions of 10 and 20 channels, each pooled 2x2 and activated, then 50 units, then the
    classes.

    Shapes: images (channels, height, width), at least 16 high and wide. 21840 parameters for 1x28x28 and 10
    classes.
    Source: Yu, Zhang, Chen 2018, Section 3 (MNIST, ReLU).
    """
    require_image_shape(shape, _SMALLEST_CNN)
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    return nn.Sequential(
        nn.Conv2d(shape[0], 10, kernel_size=5),
        nn.MaxPool2d(2),
        make_activation(activation, tempering),
        nn.Conv2d(10, 20, kernel_size=5),
        nn.MaxPool2d(2),
        make_activation(activation, tempering),
        nn.Flatten(),
        nn.Linear(20 * height * width, 50),
        make_activation(activation, tempering),
        nn.Linear(50, classes),
    )


def strided_cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    activation: str = "tanh",
    tempering: Mapping[str, float] | None = None,
) -> nn.Module:
    """16 filters of 8x8 and 32 of 4x4, both with stride 2, each activated and pooled 2x2 with stride 1, then 32
    units, then the classes.

    Shapes: images (channels, height, width), at least 16 high and wide. 26010 parameters for 1x28x28 and 10
    classes.
    Source: Papernot, Thakurta, Song, Chien, Erlingsson 2021; padding: Tramèr & Boneh 2021.
    """
    require_image_shape(shape, _SMALLEST_CNN)
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, kernel_size=8, stride=2, padding=2),
        make_activation(activation, tempering),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        make_activation(activation, tempering),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * height * width, 32),
        make_activation(activation, tempering),
        nn.Linear(32, classes),
    )


_VGG_WIDTHS = (32, 64, 128)


def vgg(
    shape: tuple[int, ...],
    classes: int,
    *,
    activation: str = "tanh",
    tempering: Mapping[str, float] | None = None,
) -> nn.Module:
    """Three pairs of 3x3 convolutions of 32, 64 and 128 channels, each activated, each pair pooled 2x2, then 128 units,
    then the classes.

    Shapes: images (channels, height, width), at least 16 high and wide. 550570 parameters for 3x32x32 and 10 classes.
    Source: Papernot, Thakurta, Song, Chien, Erlingsson 2021 (CIFAR-10); Tramèr & Boneh 2021.
    """
    require_image_shape(shape, _SMALLEST_CNN)
    layers: list[nn.Module] = []
    before = shape[0]
    for width in _VGG_WIDTHS:
        for channels in (before, width):
            layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), make_activation(activation, tempering)]
        layers.append(nn.MaxPool2d(2))
        before = width
    height, width = (side // 8 for side in shape[1:])
    hidden = nn.Linear(before * height * width, before)
    return nn.Sequential(
        *layers, nn.Flatten(), hidden, make_activation(activation, tempering), nn.Linear(before, classes)
    )


_WIDTHS = (16, 32, 64)
_BLOCKS_PER_STAGE = 3
_SMALLEST = 8


def resnet20(shape: tuple[int, ...], classes: int, *, groups: int = 16) -> nn.Module:
    """A 3x3 convolution, three stages of three residual blocks of 16, 32 and 64 channels, global average,
    classes.

    Shapes: images (channels, height, width), at least 8 high and wide. 269722 parameters for 3x32x32 and 10
    classes.
    Source: He, Zhang, Ren, Sun 2016, Section 4.2, with parameter-free shortcuts (option A); Wu & He 2018
    (GroupNorm); 16 groups as in De, Berrada, Hayes, Smith, Balle 2022.
    """
    require_image_shape(shape, _SMALLEST)
    positive_int("groups", groups)
    if _WIDTHS[0] % groups:
        raise ValueError(f"Expected groups={groups} to divide {_WIDTHS[0]}.")
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], _WIDTHS[0], kernel_size=3, padding=1, bias=False),
        nn.GroupNorm(groups, _WIDTHS[0]),
        nn.ReLU(),
    ]
    before = _WIDTHS[0]
    for width in _WIDTHS:
        for _ in range(_BLOCKS_PER_STAGE):
            layers.append(ResidualBlock(before, width, groups))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut; if the number of channels grows, height and width are halved.

    Shapes: [n, before, h, w] -> [n, width, h', w'].
    """

    def __init__(self, before: int, width: int, groups: int) -> None:
        super().__init__()
        self.new_channels = width - before
        self.stride = 1 if width == before else 2
        self.residual = nn.Sequential(
            nn.Conv2d(before, width, kernel_size=3, stride=self.stride, padding=1, bias=False),
            nn.GroupNorm(groups, width),
            nn.ReLU(),
            nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(groups, width),
        )

    def forward(self, images: Tensor) -> Tensor:
        """ReLU of the sum of residual branch and shortcut; new channels of the shortcut are zero."""
        shortcut = images[:, :, :: self.stride, :: self.stride]
        shortcut = pad(shortcut, (0, 0, 0, 0, self.new_channels // 2, self.new_channels - self.new_channels // 2))
        return relu(self.residual(images) + shortcut)


def wide_resnet(
    shape: tuple[int, ...], classes: int, *, depth: int = 16, widening: int = 4, groups: int = 16
) -> nn.Module:
    """A 3x3 convolution, three stages of (depth - 4) / 6 residual blocks of 16, 32 and 64 channels times `widening`,
    global average, classes.

    Shapes: images (channels, height, width), at least 8 high and wide. 2753818 parameters for WRN-16-4, 3x32x32 and 10
    classes.
    Source: Zagoruyko, Komodakis 2016; De, Berrada, Hayes, Smith, Balle 2022, Section 3 and the code published with it:
    activation before normalization, weight standardization, 16 groups.
    """
    require_image_shape(shape, _SMALLEST)
    for name, value in (("depth", depth), ("widening", widening), ("groups", groups)):
        positive_int(name, value)
    if depth < 10 or depth % 6 != 4:
        raise ValueError(f"Expected depth={depth} to be 10, 16, 22, ...: 4 more than a multiple of 6.")
    if _WIDTHS[0] % groups:
        raise ValueError(f"Expected groups={groups} to divide {_WIDTHS[0]}.")
    before = _WIDTHS[0]
    layers: list[nn.Module] = [WeightStandardConv2d(shape[0], before, kernel_size=3, padding=1)]
    for stage, narrow in enumerate(_WIDTHS):
        for block in range((depth - 4) // 6):
            width, halves = widening * narrow, stage > 0 and block == 0
            layers.append(WideBlock(before, width, groups, new=block == 0, stride=2 if halves else 1))
            before = width
    average = [nn.ReLU(), nn.GroupNorm(groups, before), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *average, nn.Linear(before, classes))


class WideBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut; in the first block of a stage the shortcut is a 1x1 convolution.

    Shapes: [n, before, h, w] -> [n, width, h / stride, w / stride], rounded up.
    """

    def __init__(self, before: int, width: int, groups: int, *, stride: int, new: bool) -> None:
        super().__init__()
        self.shortcut = (
            _relu_group_norm_convolution(before, width, groups, kernel=1, stride=stride) if new else nn.Identity()
        )
        self.residual = nn.Sequential(
            _relu_group_norm_convolution(before, width, groups, kernel=3, stride=stride),
            _relu_group_norm_convolution(width, width, groups, kernel=3, stride=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The sum of residual branch and shortcut."""
        total: Tensor = self.residual(images) + self.shortcut(images)
        return total


def _relu_group_norm_convolution(before: int, after: int, groups: int, *, kernel: int, stride: int) -> nn.Sequential:
    """ReLU, then GroupNorm, then the convolution, in the order of the code that De et al. published."""
    convolution = WeightStandardConv2d(before, after, kernel_size=kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(nn.ReLU(), nn.GroupNorm(groups, before), convolution)
