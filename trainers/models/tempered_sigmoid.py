"""Tempered sigmoids: bounded activations, which keep gradients smaller so that clipping removes less of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpsweep.accounting.numbers import number, positive


class TemperedSigmoid(nn.Module):
    """scale * sigmoid(temperature * x) - offset, elementwise; the defaults give tanh.

    Source: Papernot, Thakurta, Song, Chien, Erlingsson 2021, Tempered Sigmoid Activations for Deep Learning with
    Differential Privacy, Section 3.
    """

    def __init__(self, scale: float = 2.0, temperature: float = 2.0, offset: float = 1.0) -> None:
        super().__init__()
        positive("scale", scale)
        positive("temperature", temperature)
        number("offset", offset)
        self.scale, self.temperature, self.offset = scale, temperature, offset

    def forward(self, values: Tensor) -> Tensor:
        """Numbers of the same shape, between -offset and scale - offset."""
        return self.scale * torch.sigmoid(self.temperature * values) - self.offset
