"""Small convolutional networks for images."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from dpsweep.trainers.models.activations import make_activation
from dpsweep.trainers.models.checks.image_inputs import require_image

_SMALLEST = 16


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
    require_image(shape, _SMALLEST)
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
    require_image(shape, _SMALLEST)
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
