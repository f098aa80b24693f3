"""Convolutions whose weights are standardized, which stand in for the statistics of a batch that privacy forbids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LEAST = 1e-4


class WeightStandardConv2d(nn.Conv2d):
    """A convolution with the weight of each output channel moved to mean 0 and norm 1, then multiplied by its gain.

    Shapes: those of Conv2d; `gain` [out].
    Source: Qiao, Wang, Liu, Shen, Yuille 2019 (weight standardization); Brock, De, Smith 2021 (divided by the fan in,
    with a gain); De, Berrada, Hayes, Smith, Balle 2022 (with privacy).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gain = nn.Parameter(torch.ones(self.out_channels))

    def forward(self, images: Tensor) -> Tensor:
        """The convolution with the standardized weight."""
        found: Tensor = self._conv_forward(images, standardized(self.weight, self.gain), self.bias)
        return found


def standardized(weight: Tensor, gain: Tensor) -> Tensor:
    """Each weight[o] less its mean, divided by its norm then (by 0.01 if that is shorter), times gain[o]."""
    unit, _, _ = _units(weight)
    return (unit * gain[:, None]).view_as(weight)


def pulled_back(weight: Tensor, gain: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients [n, *weight] and [n, out] by weight and gain, of `rows` [n, *weight] by the standardized weight.

    The map is linear and the same for all rows: less the mean and what lies along the weight, which its norm takes out.
    The rows are overwritten, since copies of millions of numbers cost more than the map.
    """
    unit, inverse, varies = _units(weight)
    flat = rows.flatten(2)
    along = (flat * unit).sum(dim=2)
    flat -= flat.mean(dim=2, keepdim=True)
    flat.addcmul_(unit * varies, along[:, :, None], value=-1).mul_(inverse * gain[:, None])
    return flat.view_as(rows), along


def _units(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights [out, rest] less their means, over their norms; one over those; and whether they vary [out, 1]."""
    centred = weight.flatten(1) - weight.flatten(1).mean(dim=1, keepdim=True)
    squares = centred.square().sum(dim=1, keepdim=True)
    inverse = squares.clamp(min=_LEAST).rsqrt()
    return centred * inverse, inverse, squares >= _LEAST
