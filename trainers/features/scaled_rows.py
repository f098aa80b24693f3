"""Features whose every row has the same, public Euclidean norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class ScaledRows(nn.Module):
    """A frozen module, in evaluation mode, whose rows of outputs [n, size] are scaled to norm `norm`, in float32.

    A row that is zero or not finite becomes zero: no record may raise. `rows` computes the outputs by the network, if
    they are not its own.
    """

    def __init__(self, network: nn.Module, norm: float, rows: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.network, self.norm, self._rows = network.eval().requires_grad_(False), norm, rows

    def forward(self, inputs: Tensor) -> Tensor:
        """The scaled rows."""
        rows: Tensor = self.network(inputs) if self._rows is None else self._rows(inputs)
        if not isinstance(rows, Tensor) or rows.ndim != 2:
            raise ValueError(f"Expected {type(self.network).__name__} to give a tensor [n, size].")
        rows = torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0).double()
        norms = rows.norm(dim=1, keepdim=True)
        factors = torch.where(norms > 0, self.norm / norms.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
        return (rows * factors).float()
