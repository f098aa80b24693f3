"""How long rows of numbers are: never shorter than the truth, whatever rounding did to the sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_MOST_TERMS = 1024
_FEW_NUMBERS = 64  # of a row that is as quickly summed in float64
_UNIT = 2.0**-24
_UNDERFLOWN = 2.0**-51


def norms_along(values: Tensor, dim: int) -> Tensor:
    """The norms of `values` along one dimension, in its dtype: short of the truth by one rounding at most.

    Too long by less than 2**-13; both for the reasons of `row_norms`.
    """
    terms = values.shape[dim]
    if terms == 1:
        return values.squeeze(dim).abs()

    def exact() -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(values, dim=dim, dtype=torch.float64)
        return norms.to(values.dtype)

    if values.dtype == torch.float32 and terms <= _MOST_TERMS:
        norms: Tensor = torch.linalg.vector_norm(values, dim=dim)
        return _each_safely(norms, terms, terms, exact)
    return exact()


def row_norms(rows: Tensor) -> Tensor:
    """The norms [n] of rows [n, ...] in float64; those of float32 rows may be said too long, by less than 2**-13.

    On a CPU float32 squares add up several times faster in float32. What that may lose is bounded: in whatever order m
    squares are added, the sum is at least (1 - u)**m of the truth for u = 2**-24, so its rounded root, by blocks or at
    once, is at least 1 - (m / 2 + 1) * u of it; and (m + 2) * u is added. What underflows is less than 2**-126 for each
    square, so less than u of a norm above 2**-51 * sqrt(squares). What is shorter, or overflows, is summed in float64.
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
        return _each_safely(norms.double(), terms, numbers, exact)
    return exact()


def _each_safely(norms: Tensor, terms: int, numbers: int, exact: Callable[[], Tensor]) -> Tensor:
    """Norms of so many numbers made longer by what adding so many terms may lose; exact ones where that is not known.

    Which of the two it is depends on the row alone: a record must not change the norms of others.
    """
    known = (norms > _UNDERFLOWN * math.sqrt(numbers)) & (norms < math.inf)
    longer = norms * (1 + (terms + 2) * _UNIT)
    return longer if bool(known.all()) else longer.where(known, exact())
