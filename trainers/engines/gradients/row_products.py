"""Products of a matrix with the rows of a batch, by oneDNN where that pays.

torch multiplies float32 matrices on a CPU by MKL, which has no AVX-512 kernels for processors that are not Intel's.
oneDNN, which torch uses for convolutions, has them: on an AMD EPYC a large product takes half the time. Both sum in
float32; the choice depends on shapes alone.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

_LARGE = 2**22
"""Multiplications from which oneDNN's start costs less than it saves."""


def suits_one_dnn(outputs: int, rows: Tensor) -> bool:
    """Whether `one_dnn_product` is quicker for a matrix [outputs, d] and rows [n, d]."""
    is_float32_on_cpu = rows.dtype == torch.float32 and rows.device.type == "cpu"
    return outputs * rows.numel() >= _LARGE and is_float32_on_cpu and _has_operator()


def one_dnn_product(matrix: Tensor, rows: Tensor) -> Tensor:
    """matrix [m, d] times the transpose of rows [n, d]: [m, n], by the operator that torch.compile uses."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise.default(
        matrix.contiguous(), rows.contiguous(), None, "none", [], ""
    )
    return product


@cache
def _has_operator() -> bool:
    """Whether this torch has the operator, with these arguments."""
    probe = torch.ones(1, 1)
    try:
        return one_dnn_product(probe, probe).item() == 1
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
