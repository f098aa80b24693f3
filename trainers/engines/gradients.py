"""Per-example gradients, whatever engine computed them: for which parameters, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_PIECE = 4096


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes, in the order in which they are flattened."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"Expected model={type(model).__name__} to have trainable parameters.")
    return parameters


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norms [n] of per-example gradients, given as one tensor [n, ...] for each parameter.

    Squares are summed in float64: a float32 sum of a million can be wrong in the fourth digit, and on the
    unsafe side. They are summed in pieces that stay in the cache while they are widened.
    """
    pieces = [piece for gradient in gradients for piece in torch.split(gradient.flatten(1), _PIECE, dim=1)]
    norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return total.to(gradients[0].dtype)
