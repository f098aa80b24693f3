"""Random examples, never data, with which a model is tried out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def draw_probes(model: nn.Module, generator: torch.Generator, *shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    """Numbers in float64; words in int64 where `kind` is no floating-point one, or the model looks inputs up in tables.

    Every table of the model has them all.
    """
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)]
    if not kind.is_floating_point or (tables and not takes_quantities(model, shape[1:])):
        return torch.randint(min(tables, default=2), shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def takes_quantities(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the model's outputs can be differentiated by inputs of this shape: its tables are of something else."""
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), torch.zeros(()))
    inputs = torch.full((1, *shape), 0.5, dtype=like.dtype, device=like.device, requires_grad=True)
    try:
        with torch.enable_grad():
            (reached,) = torch.autograd.grad(model(inputs).sum(), inputs, allow_unused=True)
    except Exception:  # noqa: BLE001 - the user's own code may raise anything, a table for what is no whole number
        return False
    return reached is not None
