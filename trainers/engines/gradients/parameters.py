"""Trainable parameters, their positions in a flat vector, and the norms of their per-example gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_PIECE = 4096
_DTYPES = frozenset({torch.float32, torch.float64})


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters, in the order in which they are flattened.

    Errors: ValueError if there are none, or if they are not all float32 or all float64: only for these dtypes is the
    effect of rounding on a bound known.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"Expected model={type(model).__name__} to have trainable parameters.")
    dtypes = {parameter.dtype for parameter in parameters}
    if len(dtypes) > 1 or not dtypes <= _DTYPES:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(
            f"Expected model={type(model).__name__} to be all torch.float32 or torch.float64, got {names}."
        )
    return parameters


def require_exact_products() -> None:
    """Raises ValueError if torch may truncate the factors of float32 products: sums could then exceed their bound."""
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        raise ValueError(f"Expected float32_matmul_precision={precision} to be highest.")


def in_places(parameters: Sequence[nn.Parameter], flat: Tensor) -> dict[nn.Parameter, Tensor]:
    """The part of a flat vector [P] for each parameter, as a view with the parameter's shape."""
    parts = flat.split_with_sizes([parameter.numel() for parameter in parameters])
    return {parameter: part.view(parameter.shape) for parameter, part in zip(parameters, parts, strict=True)}


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norms [n] of per-example gradients, given as one tensor [n, ...] for each parameter.

    Squares are summed in float64: a float32 sum of a million terms can be wrong in the fourth digit, and too small,
    which is unsafe. They are summed in pieces whose float64 copies fit the cache.
    """
    pieces = [piece for gradient in gradients for piece in torch.split(as_rows(gradient), _PIECE, dim=1)]
    norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms, dim=1), dim=1)
    return total.to(gradients[0].dtype)


def as_rows(gradient: Tensor) -> Tensor:
    """The gradients of a parameter of any shape as rows [n, numbers]; a scalar parameter has rows of one number."""
    return gradient.flatten(1) if gradient.ndim > 1 else gradient[:, None]
