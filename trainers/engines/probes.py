"""Random examples, never data, with which a model is tried out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def draw_probes(model: nn.Module, generator: torch.Generator, *shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    """Numbers in float64; words in int64 where `kind` is no floating-point one, or the model looks words up in tables.

    Every table of the model has them all.
    """
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)]
    if tables or not kind.is_floating_point:
        return torch.randint(min(tables, default=2), shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
