"""Norms of rows that are never smaller than the exact norms, in spite of rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_MOST_TERMS = 1024
_FEW_NUMBERS = 64  # a row shorter than this is summed as fast in float64
_UNIT = 2.0**-24
_UNDERFLOW = 2.0**-51


def norms_along(values: Tensor, dim: int) -> Tensor:
    """The norms of `values` along one dimension, in its dtype: too small by at most one rounding.

    Squares of float32 numbers are exact in float64, and their sum in float64 is rounded to float32 once, so a record's
    norm is hardly ever rounded differently at another position. Along a dimension that is not the last one, torch's
    own norm takes several times as long.
    """
    if values.shape[dim] == 1:
        return values.squeeze(dim).abs()
    return values.double().square().sum(dim=dim).sqrt_().to(values.dtype)


def row_norms(rows: Tensor) -> Tensor:
    """The norms [n] of rows [n, ...] in float64; for float32 rows they may be too large, by less than 2**-13.

    On a CPU, float32 squares are summed several times faster in float32. The loss is bounded. For every order of
    summation, the sum of m squares is at least (1 - u)**m times the exact sum, for u = 2**-24. Its rounded root, by
    blocks or at once, is at least 1 - (m / 2 + 1) * u times the exact root; so the code adds (m + 2) * u. Underflow
    loses less than 2**-126 per square, which is less than u of a norm above 2**-51 * sqrt(number of squares). Smaller
    norms, and norms that overflow, are computed in float64.
    """
    blocks = rows.flatten(2) if rows.ndim > 2 else rows
    terms = blocks.shape[-1]

    def exact() -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
        return norms

    numbers = blocks.shape[1:].numel()
    narrow = rows.dtype == torch.float32 and rows.device.type == "cpu"
    if narrow and numbers >= _FEW_NUMBERS and terms <= _MOST_TERMS:
        norms: Tensor = torch.linalg.vector_norm(blocks, dim=-1)
        if blocks.ndim > 2:
            norms = torch.linalg.vector_norm(norms, dim=1, dtype=torch.float64)
        return _safe(norms.double(), terms, numbers, exact)
    return exact()


def _safe(norms: Tensor, terms: int, numbers: int, exact: Callable[[], Tensor]) -> Tensor:
    """Norms of rows of `numbers`, enlarged by the largest loss of a sum of `terms`; exact norms where none is proven.

    The choice depends on the row alone: a record must not change the norms of others.
    """
    bounded = (norms > _UNDERFLOW * math.sqrt(numbers)) & (norms < math.inf)
    enlarged = norms * (1 + (terms + 2) * _UNIT)
    return enlarged if bool(bounded.all()) else enlarged.where(bounded, exact())
