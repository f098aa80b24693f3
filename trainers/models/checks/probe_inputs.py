"""Random examples that probe a model instead of data."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class TokenReader(Protocol):
    """A module that reads token numbers from 0 to `token_count` - 1, of which `padding_token` stands for no word."""

    token_count: int
    padding_token: int


def draw_probes(model: nn.Module, generator: torch.Generator, *shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    """Random float64 inputs, or int64 token numbers if `kind` is an integer type or the model takes token numbers.

    The token numbers are valid for the module that reads them; where it does not say, for every embedding.
    """
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
    if not kind.is_floating_point or (tables and not takes_quantities(model, shape[1:])):
        counts = [module.token_count for module in model.modules() if isinstance(module, TokenReader)] or tables
        return torch.randint(min(counts, default=2), shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def takes_quantities(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the model's outputs can be differentiated by inputs of this shape, so that inputs are not tokens."""
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), torch.zeros(()))
    inputs = torch.full((1, *shape), 0.5, dtype=like.dtype, device=like.device, requires_grad=True)
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, allow_unused=True)
    except Exception:  # noqa: BLE001 - the user's own code may raise anything, and an embedding refuses fractions
        return False
    return gradient is not None
