"""Convolutions with standardized weights, a replacement for batch statistics, which privacy forbids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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
        outputs: Tensor = self._conv_forward(images, standardized(self.weight, self.gain), self.bias)
        return outputs


def standardized(weight: Tensor, gain: Tensor) -> Tensor:
    """Each weight[o] minus its mean, divided by the norm of this difference (at least 0.01), times gain[o]."""
    unit, _, _ = _units(weight)
    return (unit * gain[:, None]).view_as(weight)


def pulled_back(weight: Tensor, gain: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients [n, *weight] and [n, out] by weight and gain, from gradients `rows` by the standardized weight.

    The map is linear and the same for all rows: it subtracts the mean and the component along the weight, which the
    norm removes. `rows` [n, *weight] is overwritten, because copying millions of numbers costs more than the map.
    """
    unit, inverse, varies = _units(weight)
    flat = rows.flatten(2)
    along = (flat * unit).sum(dim=2)
    flat -= flat.mean(dim=2, keepdim=True)
    flat.addcmul_(unit * varies, along[:, :, None], value=-1).mul_(inverse * gain[:, None])
    return flat.view_as(rows), along


def _units(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The centred weights [out, rest] over their norms, the inverse norms, and whether norms exceed 0.01 [out, 1]."""
    centred = weight.flatten(1) - weight.flatten(1).mean(dim=1, keepdim=True)
    squares = centred.square().sum(dim=1, keepdim=True)
    inverse = squares.clamp(min=_LEAST).rsqrt()
    return centred * inverse, inverse, squares >= _LEAST
