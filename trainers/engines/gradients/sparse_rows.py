"""Products with rows of mostly zeros, which read the other numbers alone.

A mail uses some 170 of 3000 words, so a batch of dense rows is copied and multiplied at ten times the cost. scipy's
loops add a row's products up in the order of its own numbers, one after another. They have no blocks, so that no
row's rounding depends on other rows or on its position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsweep.trainers.data.records import Records

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_CHUNK = 4096
"""Records at a time that are compressed."""

_FEW_OUTPUTS = 4
"""Outputs up to which scipy's product with one vector for each is quicker than that with a matrix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRecords:
    """The scaled inputs of all records, float32 [N, d], of which only the numbers that are not 0 are stored."""

    rows: csr_array

    @classmethod
    def of(cls, records: Records) -> SparseRecords:
        """The inputs of these records, which need not be held densely."""
        from scipy.sparse import csr_array, vstack  # no job whose inputs are dense imports it

        chunks = (records.inputs(slice(first, first + _CHUNK), "cpu") for first in range(0, len(records), _CHUNK))
        return cls(rows=vstack([csr_array(chunk.flatten(1).numpy()) for chunk in chunks], format="csr"))

    def batches(self, index: NDArray[np.int64]) -> SparseRows:
        """The rows at these indices [K, n], those of each run beside its own columns."""
        from scipy.sparse import csr_array

        runs, size = index.shape
        width = self.rows.shape[1]
        rows = self.rows[index.reshape(-1)]
        ends = rows.indptr[size::size]
        counts = np.diff(ends, prepend=0)
        own = np.repeat(np.arange(runs, dtype=rows.indices.dtype) * width, counts)
        blocks = csr_array((rows.data, rows.indices + own, rows.indptr), shape=(runs * size, runs * width))
        return SparseRows(blocks=blocks, runs=runs, size=size)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRows:
    """Inputs [K, n, d] of K runs as the blocks of a matrix [K * n, K * d]."""

    blocks: csr_array
    runs: int
    size: int

    def products(self, matrices: Tensor) -> Tensor:
        """Each run's matrix [K, outputs, d] times its rows: [K, outputs, n], in float32."""
        outputs = matrices.shape[1]
        if outputs <= _FEW_OUTPUTS:
            columns = [self.blocks @ _flat(matrices[:, place]) for place in range(outputs)]
            return torch.stack([_runs(column, self.runs) for column in columns], dim=1)
        product = self.blocks @ matrices.transpose(1, 2).reshape(-1, outputs).numpy()
        return torch.from_numpy(product).view(self.runs, self.size, outputs).transpose(1, 2)

    def add_products(self, sums: Tensor, bounded: Tensor) -> None:
        """Adds each run's sum over its rows of outer products with `bounded` [K, outputs, n] to `sums`, in float64."""
        outputs, transposed = bounded.shape[1], self.blocks.T
        if outputs <= _FEW_OUTPUTS:
            for place in range(outputs):
                sums[:, place].add_(_runs(transposed @ _flat(bounded[:, place]), self.runs))
            return
        product = transposed @ bounded.transpose(1, 2).reshape(-1, outputs).numpy()
        sums.add_(torch.from_numpy(product).view(self.runs, -1, outputs).transpose(1, 2))


def _flat(values: Tensor) -> NDArray[np.floating]:
    flat: NDArray[np.floating] = values.reshape(-1).numpy()
    return flat


def _runs(values: NDArray[np.floating], runs: int) -> Tensor:
    return torch.from_numpy(values).view(runs, -1)
