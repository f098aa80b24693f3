"""Per-example gradients of one parameter in several forms, with their norms and their weighted sum.

Norms of rows are never smaller than the exact norms, in spite of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from dpsweep.trainers.engines.interface import numbers_at_a_time
from dpsweep.trainers.methods.transforms import EXAMPLES_PER_BLOCK

_MOST_TERMS = 1024
_FEW_NUMBERS = 64  # a row shorter than this is summed as fast in float64
_UNIT = 2.0**-24
_UNDERFLOW = 2.0**-51


def norms_along_dimension(values: Tensor, dim: int) -> Tensor:
    """The norms of `values` along one dimension, in its dtype: too small by at most one rounding.

    Squares of float32 numbers are exact in float64, and their sum in float64 is rounded to float32 once, so a record's
    norm is hardly ever rounded differently at another position. Along a dimension that is not the last one, torch's
    own norm takes several times as long.
    """
    if values.shape[dim] == 1:
        return values.squeeze(dim).abs()
    return values.to(torch.float64, copy=True).square_().sum(dim=dim).sqrt_().to(values.dtype)


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

    def exact_row_norms() -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
        return norms

    numbers = blocks.shape[1:].numel()
    narrow = rows.dtype == torch.float32 and rows.device.type == "cpu"
    if narrow and numbers >= _FEW_NUMBERS and terms <= _MOST_TERMS:
        norms: Tensor = torch.linalg.vector_norm(blocks, dim=-1)
        if blocks.ndim > 2:
            norms = torch.linalg.vector_norm(norms, dim=1, dtype=torch.float64)
        return _norms_enlarged_by_rounding_error(norms.double(), terms, numbers, exact_row_norms)
    return exact_row_norms()


def _norms_enlarged_by_rounding_error(norms: Tensor, terms: int, numbers: int, exact: Callable[[], Tensor]) -> Tensor:
    """Norms of rows of `numbers`, enlarged by the largest loss of a sum of `terms`; exact norms where none is proven.

    The choice depends on the row alone: a record must not change the norms of others.
    """
    bounded = (norms > _UNDERFLOW * math.sqrt(numbers)) & (norms < math.inf)
    enlarged = norms * (1 + (terms + 2) * _UNIT)
    return enlarged if bool(bounded.all()) else enlarged.where(bounded, exact())


_WIDENED = 2**16
"""The number of entries converted to float64 at a time on a CPU."""


_RESULTS = 2**16
"""The entries of products that a CPU forms, and adds up, at a time; large products are formed one by one."""


def add_products_of_blocks(sums: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left [..., a, n] times right [..., n, b] to `sums` in float64: a product for each block of the n examples.

    `sums` has the shape of the product, or another shape of as many entries. A block's product depends on the block's
    own examples alone; `dpsweep.trainers.methods.transforms` bounds its distance from the exact product.
    """
    examples, size = left.shape[-1], EXAMPLES_PER_BLOCK
    most = numbers_at_a_time(sums.device, cached=_RESULTS)
    joined = examples - examples % size if 4 * sums.numel() <= most else 0
    step = size * max(1, most // max(1, sums.numel()))
    for first in range(0, joined, step):
        some = slice(first, min(first + step, joined))
        columns = left[..., some].view(*left.shape[:-1], -1, size).transpose(-3, -2)
        rows = right[..., some, :].view(*right.shape[:-2], -1, size, right.shape[-1])
        sums.add_((columns @ rows).sum(dim=-3, dtype=torch.float64).view(sums.shape))
    for first in range(joined, examples, size):
        sums.add_((left[..., first : first + size] @ right[..., first : first + size, :]).view(sums.shape))


class LayerGradient(Protocol):
    """The per-example gradients of one parameter for n examples, in the cheapest form.

    *Guarantee*: `norms` are never smaller than the norms of the gradients that `add_weighted_sum_to` sums. The norm of
    a gradient with a non-finite number is not finite.
    """

    @property
    def stored_numbers_per_example(self) -> int:
        """The numbers that are kept for an example until the sum, where they need much memory; else 0."""

    def per_example_norms(self) -> Tensor:
        """The norm of each example's gradient: [n] in float64."""

    def add_weighted_sum_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds sum_i factors_i * gradient_i to `total`, which has the parameter's shape and is in float64.

        The sum is in float64 too, of summands that are functions of their own example or of their own block alone.
        """

    def to_dtype(self, dtype: torch.dtype) -> LayerGradient:
        """The same gradients in this dtype, for dtypes that have all of their numbers."""

    def with_marked_examples_zeroed(self, non_finite: Tensor) -> LayerGradient:
        """The same gradients with zero for the examples that are marked in `non_finite` [n]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseGradient:
    """Explicit gradients, one row [n, *shape] for each example."""

    rows: Tensor

    @property
    def stored_numbers_per_example(self) -> int:
        """The numbers of a row, if a parameter has more than one dimension."""
        return self.rows[0].numel() if self.rows.ndim > 2 else 0

    def per_example_norms(self) -> Tensor:
        """The rows' norms."""
        return row_norms(self.rows)

    def add_weighted_sum_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds matrix-vector products, as many examples at a time as have float64 copies that fit."""
        rows, flat, wide = self.rows.flatten(1), total.view(-1), factors.double()
        few = max(1, numbers_at_a_time(rows.device, cached=_WIDENED) // max(1, rows.shape[1]))
        for part, part_factors in zip(torch.split(rows, few), torch.split(wide, few), strict=True):
            if part_factors.any():  # where rows are long, many of them are alone and blank
                flat.addmv_(part.double().t(), part_factors)

    def to_dtype(self, dtype: torch.dtype) -> DenseGradient:
        """The rows in this dtype."""
        return DenseGradient(rows=self.rows.to(dtype))

    def with_marked_examples_zeroed(self, non_finite: Tensor) -> DenseGradient:
        """The rows, with zero for marked examples."""
        return DenseGradient(rows=_zero_masked_rows(self.rows, non_finite))


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsecutiveGradients:
    """Explicit gradients of consecutive groups of examples, each where it was computed: nothing is copied together."""

    parts: tuple[DenseGradient, ...]

    @property
    def stored_numbers_per_example(self) -> int:
        """As of each part."""
        return self.parts[0].stored_numbers_per_example

    def per_example_norms(self) -> Tensor:
        """The norms of all parts."""
        return torch.cat([part.per_example_norms() for part in self.parts])

    def add_weighted_sum_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds one part after another."""
        for part, part_factors in zip(self.parts, self._split_by_part(factors), strict=True):
            part.add_weighted_sum_to(total, part_factors)

    def to_dtype(self, dtype: torch.dtype) -> ConsecutiveGradients:
        """All parts in this dtype."""
        return ConsecutiveGradients(parts=tuple(part.to_dtype(dtype) for part in self.parts))

    def with_marked_examples_zeroed(self, non_finite: Tensor) -> ConsecutiveGradients:
        """All parts, with zero for marked examples."""
        pairs = zip(self.parts, self._split_by_part(non_finite), strict=True)
        return ConsecutiveGradients(parts=tuple(part.with_marked_examples_zeroed(marked) for part, marked in pairs))

    def _split_by_part(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, [len(part.rows) for part in self.parts])


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterProductGradient:
    """Gradients that are outer products of vectors `left` [n, a] and `right` [n, b]; the products are never formed.

    Source: Goodfellow 2015, Efficient Per-Example Gradient Computations.
    """

    left: Tensor
    right: Tensor

    @property
    def stored_numbers_per_example(self) -> int:
        """0: both vectors are there anyway."""
        return 0

    def per_example_norms(self) -> Tensor:
        """The norm of an outer product is the product of the norms."""
        return row_norms(self.left) * row_norms(self.right)

    def add_weighted_sum_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds one matrix product for each block.

        A factor times a subnormal number may be rounded up to twice its value, and a huge right vector would turn this
        error into a violation of the bound. So subnormal products are set to zero.
        """
        scaled = hardshrink(factors[:, None] * self.left, torch.finfo(self.left.dtype).tiny)
        add_products_of_blocks(total, scaled.t(), self.right)

    def to_dtype(self, dtype: torch.dtype) -> OuterProductGradient:
        """The vectors in this dtype."""
        return OuterProductGradient(left=self.left.to(dtype), right=self.right.to(dtype))

    def with_marked_examples_zeroed(self, non_finite: Tensor) -> OuterProductGradient:
        """The vectors, with zero for marked examples."""
        return OuterProductGradient(
            left=_zero_masked_rows(self.left, non_finite), right=_zero_masked_rows(self.right, non_finite)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseGradient:
    """Gradients of a table with few nonzero rows: `values` [k, *rest], their row numbers [k] and their examples [k].

    `owners` are the examples. Each pair of example and row occurs at most once, so an example's norm is the norm of its
    values.
    """

    values: Tensor
    rows: Tensor
    owners: Tensor
    examples: int

    @property
    def stored_numbers_per_example(self) -> int:
        """0: as many values as the layer's outputs have."""
        return 0

    def per_example_norms(self) -> Tensor:
        """The norm of all values of each example."""
        squares = row_norms(self.values).square()
        return squares.new_zeros(self.examples).index_add_(0, self.owners, squares).sqrt()

    def add_weighted_sum_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds every value to its row."""
        total.index_add_(0, self.rows, (self.values * factors[self.owners, None]).double())

    def to_dtype(self, dtype: torch.dtype) -> SparseGradient:
        """The values in this dtype."""
        return replace(self, values=self.values.to(dtype))

    def with_marked_examples_zeroed(self, non_finite: Tensor) -> SparseGradient:
        """The values, with zero for marked examples."""
        values = _zero_masked_rows(self.values, non_finite[self.owners])
        return replace(self, values=values)


def joint_norms(gradients: Iterable[LayerGradient]) -> Tensor:
    """The norms [n] in float64 of the per-example gradients by all of these parameters together."""
    by_parameter = torch.stack([gradient.per_example_norms() for gradient in gradients], dim=1)
    norms: Tensor = torch.linalg.vector_norm(by_parameter, dim=1)
    return norms


def _zero_masked_rows(rows: Tensor, mask: Tensor) -> Tensor:
    return rows.masked_fill(mask.view(-1, *[1] * (rows.ndim - 1)), 0)
