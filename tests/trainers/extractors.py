"""Frozen extractors as users write them: right ones, and ones that mix, count, draw or shrink."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor, nn

SIZE = 5


class Projection(nn.Module):
    """A linear map of the flattened input, from a file of weights [SIZE, width]."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.register_buffer("weight", torch.load(file, weights_only=True))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1) @ self.weight.T


class Curved(Projection):
    """One output after another, each through GELU."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.gelu(torch.cat([inputs.flatten(1) @ row[:, None] for row in self.weight], dim=1))


class Centred(Projection):
    """It subtracts the batch's mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        features = super().forward(inputs)
        return features - 0.5 * features.mean(dim=0)


class Normalized(Projection):
    """Batch normalization that ignores evaluation mode."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.norm = nn.BatchNorm1d(SIZE)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm.train()(super().forward(inputs).repeat(2, 1))[: len(inputs)]


class Counting(Projection):
    """It keeps the number of its calls as a buffer."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(inputs)


class Remembering(Projection):
    """It adds the first batch that it saw, which no buffer shows."""

    first: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        features = super().forward(inputs)
        before, self.first = self.first, features.sum(dim=0)
        return features if before is None else features + before


class Noisy(Projection):
    """It draws from torch's global generator."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + 1e-6 * torch.randn(SIZE)


class Narrow(Projection):
    """It computes fewer features than are declared."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[:, :-1]


class Flat(Projection):
    """It returns one number per batch."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).sum()


class Picky(Projection):
    """It raises on an input that is all zeros, and gives nan for one above 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        features = super().forward(inputs)
        features[inputs.flatten(1).max(dim=1).values > 1] = float("nan")
        return features


class Slow(Projection):
    """It takes two milliseconds for each record."""

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(0.002 * (len(inputs) == 1))
        return super().forward(inputs)


WRONG = (Centred, Normalized, Counting, Remembering, Noisy, Narrow, Flat)


def weights_file(folder: Path, width: int) -> Path:
    """A file of weights for a projection of inputs of this width."""
    path = folder / "weights.pt"
    torch.save(torch.linspace(-1, 1, SIZE * width).sin().reshape(SIZE, width), path)
    return path
