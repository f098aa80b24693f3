"""What models are trained on: the loss of each example, summed, and its gradient.

Outputs have their classes, or their one number, in the second dimension, whatever comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional


class Loss(Protocol):
    """The sum of the examples' losses, each of which depends on its own outputs and target alone."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A single number, of outputs [n, c, ...] and targets [n, ...]."""
        ...

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Its gradient with respect to the outputs, of their shape; targets may lack leading dimensions."""
        ...


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """The cross-entropy of outputs [n, classes, ...] as logits and targets [n, ...] of int64."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        return functional.cross_entropy(outputs, targets, reduction="sum")

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the model says of each class, less one for the right one."""
        probabilities = functional.softmax(outputs, dim=1)
        right = targets.expand(len(outputs), *outputs.shape[2:])[:, None]
        return probabilities.scatter_add_(1, right, probabilities.new_full((), -1.0).expand(right.shape))


@dataclass(frozen=True, kw_only=True)
class SquaredError:
    """Half the squared differences of outputs [n, 1, ...] and targets [n, ...]."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Summed over all examples."""
        return functional.mse_loss(outputs.squeeze(1), targets.to(outputs.dtype), reduction="sum") / 2

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The differences."""
        return outputs - targets.expand(len(outputs), *outputs.shape[2:])[:, None].to(outputs.dtype)
