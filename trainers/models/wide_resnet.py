"""Wide residual networks for private training on small images, with GroupNorm and weight standardization."""

from __future__ import annotations

from torch import Tensor, nn

from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.models.checks.image_inputs import require_image
from dpsweep.trainers.models.weight_standardization import WeightStandardConv2d

_WIDTHS = (16, 32, 64)
_SMALLEST = 8


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
    require_image(shape, _SMALLEST)
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
        self.shortcut = _convolution(before, width, groups, kernel=1, stride=stride) if new else nn.Identity()
        self.residual = nn.Sequential(
            _convolution(before, width, groups, kernel=3, stride=stride),
            _convolution(width, width, groups, kernel=3, stride=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The sum of residual branch and shortcut."""
        total: Tensor = self.residual(images) + self.shortcut(images)
        return total


def _convolution(before: int, after: int, groups: int, *, kernel: int, stride: int) -> nn.Sequential:
    """ReLU, then GroupNorm, then the convolution, in the order of the code that De et al. published."""
    convolution = WeightStandardConv2d(before, after, kernel_size=kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(nn.ReLU(), nn.GroupNorm(groups, before), convolution)
