"""A model of one's own: two layers from a file or at random, which stay frozen, and a head that is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Numbers [n, columns] to outputs [n, classes]; `width` is a setting of one's own, `weights` a file of the body."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16, weights: str | None = None) -> None:
        super().__init__()
        self.first, self.hidden = nn.Linear(shape[0], width), nn.Linear(width, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        for layer in (self.first, self.hidden):
            layer.requires_grad_(False)
        if weights is not None:
            self.load_state_dict(torch.load(weights), strict=False)

    def forward(self, values: Tensor) -> Tensor:
        """The outputs, each from its own row alone."""
        body = torch.tanh(self.hidden(torch.tanh(self.first(values))))
        outputs: Tensor = self.head(self.norm(body))
        return outputs
