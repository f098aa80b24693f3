"""What one backward pass leaves behind of each parameter: enough for the examples' norms and their weighted sum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from dpsweep.trainers.engines.gradients.safe_norms import row_norms

_WIDENED = 2**16
"""Numbers that are made float64 at a time."""


class LayerGradient(Protocol):
    """The gradients of one parameter by each of n examples, in whatever form is cheapest.

    *Guarantee*: `norms` are never shorter than what `add_to` sums, and not finite where any number that enters it is
    not.
    """

    def norms(self) -> Tensor:
        """The norm of each example's gradient: [n] in float64."""
        ...

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Adds sum_i factors_i * gradient_i to `total`, which has the parameter's shape and is float64, as the sum is.

        What an example adds is a function of its own numbers: only the float64 sum rounds as others let it.
        """
        ...

    def without(self, broken: Tensor) -> LayerGradient:
        """The same with zero for the examples that are marked in `broken` [n]."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseGradient:
    """Gradients as they are, one row [n, *shape] for each example."""

    rows: Tensor

    def norms(self) -> Tensor:
        """The rows' norms."""
        return row_norms(self.rows)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Products of a matrix and a vector, of few examples at a time so that what is widened stays in the cache."""
        rows, flat, wide = self.rows.flatten(1), total.view(-1), factors.double()
        few = max(1, _WIDENED // max(1, rows.shape[1]))
        for part, own in zip(torch.split(rows, few), torch.split(wide, few), strict=True):
            flat.addmv_(part.double().t(), own)

    def without(self, broken: Tensor) -> DenseGradient:
        """The other examples' rows."""
        return DenseGradient(rows=_zeroed(self.rows, broken))


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterProductGradient:
    """Gradients that are outer products of vectors `left` [n, a] and `right` [n, b], and are never formed.

    Source: Goodfellow 2015, Efficient Per-Example Gradient Computations.
    """

    left: Tensor
    right: Tensor

    def norms(self) -> Tensor:
        """The norm of an outer product is the product of the norms."""
        return row_norms(self.left) * row_norms(self.right)

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """One product of two matrices, as in a step without privacy.

        A factor times a subnormal number may round up to twice what it is, and a huge right vector would make that
        break the bound: such products are lowered to zero.
        """
        scaled = hardshrink(factors[:, None] * self.left, torch.finfo(self.left.dtype).tiny)
        total.addmm_(scaled.double().t(), self.right.double())

    def without(self, broken: Tensor) -> OuterProductGradient:
        """The other examples' vectors."""
        return OuterProductGradient(left=_zeroed(self.left, broken), right=_zeroed(self.right, broken))


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseGradient:
    """Gradients that are zero but for some rows of a table: `values` [k, *rest], the table's rows and their owners [k].

    An example owns each row of the table at most once, so that its norm is that of its values.
    """

    values: Tensor
    rows: Tensor
    owners: Tensor
    examples: int

    def norms(self) -> Tensor:
        """The norms of each example's values together."""
        squares = row_norms(self.values).square()
        return squares.new_zeros(self.examples).index_add_(0, self.owners, squares).sqrt()

    def add_to(self, total: Tensor, factors: Tensor) -> None:
        """Every value goes to its row."""
        total.index_add_(0, self.rows, (self.values * factors[self.owners, None]).double())

    def without(self, broken: Tensor) -> SparseGradient:
        """The other examples' values."""
        values = _zeroed(self.values, broken[self.owners])
        return SparseGradient(values=values, rows=self.rows, owners=self.owners, examples=self.examples)


def joint_norms(held: Iterable[LayerGradient]) -> Tensor:
    """The norms [n] in float64 of the examples' gradients by all of these parameters together."""
    norms: Tensor = torch.linalg.vector_norm(torch.stack([each.norms() for each in held], dim=1), dim=1)
    return norms


def _zeroed(rows: Tensor, broken: Tensor) -> Tensor:
    return rows.masked_fill(broken.view(-1, *[1] * (rows.ndim - 1)), 0)
