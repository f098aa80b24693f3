"""Per-example gradients, whatever engine computed them: for which parameters, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_PIECE = 4096
_KINDS = frozenset({torch.float32, torch.float64})


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes, in the order in which they are flattened.

    Errors: ValueError if there are none, or if they are not all float32 or all float64: what rounding may do to a bound
    is known for these.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"Expected model={type(model).__name__} to have trainable parameters.")
    kinds = {parameter.dtype for parameter in parameters}
    if len(kinds) > 1 or not kinds <= _KINDS:
        found = ", ".join(sorted(map(str, kinds)))
        raise ValueError(
            f"Expected model={type(model).__name__} to be all torch.float32 or torch.float64, got {found}."
        )
    return parameters


def require_exact_products() -> None:
    """Raises ValueError where torch may shorten the factors of float32 products: sums could exceed their bound."""
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        raise ValueError(f"Expected float32_matmul_precision={precision} to be highest.")


def in_places(parameters: Sequence[nn.Parameter], flat: Tensor) -> dict[nn.Parameter, Tensor]:
    """Where in a flat vector [P] each parameter's share stands, as views of the parameters' shapes."""
    parts = flat.split_with_sizes([parameter.numel() for parameter in parameters])
    return {parameter: part.view(parameter.shape) for parameter, part in zip(parameters, parts, strict=True)}


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norms [n] of per-example gradients, given as one tensor [n, ...] for each parameter.

    Squares are summed in float64: a float32 sum of a million can be wrong in the fourth digit, and on the
    unsafe side. They are summed in pieces that stay in the cache while they are widened.
    """
    pieces = [piece for gradient in gradients for piece in torch.split(as_rows(gradient), _PIECE, dim=1)]
    norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in pieces]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms, dim=1), dim=1)
    return total.to(gradients[0].dtype)


def as_rows(gradient: Tensor) -> Tensor:
    """The gradients [n, numbers] of a parameter of any shape, also of a single number."""
    return gradient.flatten(1) if gradient.ndim > 1 else gradient[:, None]
