"""ResNet-20 for small images, with GroupNorm instead of BatchNorm, because BatchNorm mixes examples."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from dpsweep.accounting.numbers import positive_int
from dpsweep.trainers.models.checks.image_inputs import require_image

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
    require_image(shape, _SMALLEST)
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
