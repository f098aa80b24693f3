"""Per-example gradients of one parameter in several forms, with their norms and their weighted sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from dpsweep.trainers.engines.gradients.safe_norms import row_norms

_WIDENED = 2**16
"""The number of entries converted to float64 at a time."""


class LayerGradient(Protocol):
    """The per-example gradients of one parameter for n examples, in the cheapest form.

    *Guarantee*: `norms` are never smaller than the norms of the gradients that `add_to` sums. The norm of a gradient
    with a non-finite number is not finite.
    """

    @property
    def stored(self) -> int:
        """The numbers that are kept for an example until the sum, where they need much memory; else 0."""
        ...

    def norms(self) -> Tensor:
        """The norm of each example's gradient: [n] in float64."""
        ...

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds sum_i factors_i * gradient_i to `total`, in float64; `total` has the parameter's shape.

        The summand of an example is a function of its own numbers; only the float64 sum depends on other examples.
        """
        ...

    def to(self, dtype: torch.dtype) -> LayerGradient:
        """The same gradients in this dtype, for dtypes that have all of their numbers."""
        ...

    def without(self, non_finite: Tensor) -> LayerGradient:
        """The same gradients with zero for the examples that are marked in `non_finite` [n]."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseGradient:
    """Explicit gradients, one row [n, *shape] for each example."""

    rows: Tensor

    @property
    def stored(self) -> int:
        """The numbers of a row, if a parameter has more than one dimension."""
        return self.rows[0].numel() if self.rows.ndim > 2 else 0

    def norms(self) -> Tensor:
        """The rows' norms."""
        return row_norms(self.rows)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds matrix-vector products, a few examples at a time so that their float64 copies fit the cache."""
        rows, flat, wide = self.rows.flatten(1), total.view(-1), factors.double()
        few = max(1, _WIDENED // max(1, rows.shape[1]))
        for part, part_factors in zip(torch.split(rows, few), torch.split(wide, few), strict=True):
            flat.addmv_(part.double().t(), part_factors)

    def to(self, dtype: torch.dtype) -> DenseGradient:
        """The rows in this dtype."""
        return DenseGradient(rows=self.rows.to(dtype))

    def without(self, non_finite: Tensor) -> DenseGradient:
        """The rows, with zero for marked examples."""
        return DenseGradient(rows=_zeroed(self.rows, non_finite))


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsecutiveGradients:
    """Explicit gradients of consecutive groups of examples, each where it was computed: nothing is copied together."""

    parts: tuple[DenseGradient, ...]

    @property
    def stored(self) -> int:
        """As of each part."""
        return self.parts[0].stored

    def norms(self) -> Tensor:
        """The norms of all parts."""
        return torch.cat([part.norms() for part in self.parts])

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds one part after another."""
        for part, part_factors in zip(self.parts, self._split(factors), strict=True):
            part.add_to(total, part_factors)

    def to(self, dtype: torch.dtype) -> ConsecutiveGradients:
        """All parts in this dtype."""
        return ConsecutiveGradients(parts=tuple(part.to(dtype) for part in self.parts))

    def without(self, non_finite: Tensor) -> ConsecutiveGradients:
        """All parts, with zero for marked examples."""
        pairs = zip(self.parts, self._split(non_finite), strict=True)
        return ConsecutiveGradients(parts=tuple(part.without(marked) for part, marked in pairs))

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, [len(part.rows) for part in self.parts])


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterProductGradient:
    """Gradients that are outer products of vectors `left` [n, a] and `right` [n, b]; the products are never formed.

    Source: Goodfellow 2015, Efficient Per-Example Gradient Computations.
    """

    left: Tensor
    right: Tensor

    @property
    def stored(self) -> int:
        """0: both vectors are there anyway."""
        return 0

    def norms(self) -> Tensor:
        """The norm of an outer product is the product of the norms."""
        return row_norms(self.left) * row_norms(self.right)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds one matrix product, as in a step without privacy.

        A factor times a subnormal number may be rounded up to twice its value, and a huge right vector would turn this
        error into a violation of the bound. So subnormal products are set to zero.
        """
        scaled = hardshrink(factors[:, None] * self.left, torch.finfo(self.left.dtype).tiny)
        total.addmm_(scaled.double().t(), self.right.double())

    def to(self, dtype: torch.dtype) -> OuterProductGradient:
        """The vectors in this dtype."""
        return OuterProductGradient(left=self.left.to(dtype), right=self.right.to(dtype))

    def without(self, non_finite: Tensor) -> OuterProductGradient:
        """The vectors, with zero for marked examples."""
        return OuterProductGradient(left=_zeroed(self.left, non_finite), right=_zeroed(self.right, non_finite))


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
    def stored(self) -> int:
        """0: as many values as the layer's outputs have."""
        return 0

    def norms(self) -> Tensor:
        """The norm of all values of each example."""
        squares = row_norms(self.values).square()
        return squares.new_zeros(self.examples).index_add_(0, self.owners, squares).sqrt()

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds every value to its row."""
        total.index_add_(0, self.rows, (self.values * factors[self.owners, None]).double())

    def to(self, dtype: torch.dtype) -> SparseGradient:
        """The values in this dtype."""
        return replace(self, values=self.values.to(dtype))

    def without(self, non_finite: Tensor) -> SparseGradient:
        """The values, with zero for marked examples."""
        values = _zeroed(self.values, non_finite[self.owners])
        return replace(self, values=values)


def joint_norms(gradients: Iterable[LayerGradient]) -> Tensor:
    """The norms [n] in float64 of the per-example gradients by all of these parameters together."""
    by_parameter = torch.stack([gradient.norms() for gradient in gradients], dim=1)
    norms: Tensor = torch.linalg.vector_norm(by_parameter, dim=1)
    return norms


def _zeroed(rows: Tensor, mask: Tensor) -> Tensor:
    return rows.masked_fill(mask.view(-1, *[1] * (rows.ndim - 1)), 0)
