"""Sums of bounded gradients for runs that are trained together: by an engine for each model, or for stacked models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.augmentation import Augmentation
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss, unit_weights
from dpsweep.trainers.engines.interface import (
    Engine,
    Minibatch,
    Task,
    numbers_at_a_time,
    require_exact_float32_products,
    trainable_parameters,
)
from dpsweep.trainers.engines.stacked import Examples, SparseRecords, SparseRows, Stack
from dpsweep.trainers.methods.transforms import GradientTransform, join_transforms_of_runs
from dpsweep.trainers.training.batch_and_noise import Batch

if TYPE_CHECKING:
    from dpsweep.trainers.data.records import Index

_FLOATS = 2**18
"""Floats that a stack computes at a time for each layer on a CPU, so that they fit the cache of a core."""

_OWN_FLOATS = 2**21
"""Floats of the runs' own batches that are gathered at a time on a CPU: each is read by two products alone."""

_SPARSE_FLOATS = 2**17
"""Weights of runs that are trained on sparse batches at a time, so that they and their sums fit the cache of a core."""

_GATHERED = 2**24
"""Floats of a common batch that are gathered at a time."""

_HELD = 2**26
"""Floats of scaled inputs that a CPU holds for all steps (256 MiB); more are scaled anew in each step."""

_GATHER_COST = 16
"""Floats of unneeded forward compute that cost as much as gathering one record."""

_PASSES = 4
"""Passes over all records when the mask leaves most of them out, for the declared number of records."""

_LENGTH_CHUNK = 4096
"""Records at a time whose lengths are computed."""


class Sum(Protocol):
    """Computes the sums of a step, for some of the models and their transforms."""

    def __call__(self, weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
        """The sums [K, P] in float64 at weights [K, P], of gradients transformed to `shrink` times their bounds."""


class Sums(Protocol):
    """Holds the records and sums the bounded gradients of K models on them.

    *Guarantee*: each unit of a run's batch contributes to that run's sum as the `Engine` interface states, and to no
    other sum. Tensor shapes depend on declared numbers alone; only the number of passes depends on the draw.
    """

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """A function from weights [K, P] and a batch to the sums [K, P], each row with its own transform.

        `rows` are the indices of the models that the rows of weights belong to.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineSums:
    """The sums for any models, computed by an engine, one model after another.

    With an augmentation, a unit's gradient is the mean over all copies of its examples; `draws` has one random
    generator per model.
    """

    models: Sequence[nn.Module]
    engine: Engine
    records: Records
    device: torch.device | str
    chunk: int | None
    loss: Loss = CROSS_ENTROPY
    augmentation: Augmentation | None = None
    draws: Sequence[np.random.Generator] = ()

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The engine's weighted sums; the first call turns the models' parameters into views of the weights."""

        def sum_gradients_by_engine(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            sums, last = [], 0
            for row, vector, size, transform in zip(rows, weights, batch.sizes, transforms, strict=True):
                first, last = (0, len(batch.units)) if batch.common else (last, last + int(size))
                vector_to_parameters(vector, trainable_parameters(self.models[row]))
                copies = 1 if self.augmentation is None else self.augmentation.multiplicity
                block = batch.block * copies
                task = Task(
                    transform=transform.with_smaller_bound(shrink), loss=self.loss, chunk=self.chunk, block=block
                )
                sum_gradients_by_engine, _ = self.engine.bounded_gradient_sum_and_norms(
                    self.models[row],
                    self._minibatch_of_units(batch.units_of_slice_in_random_order(slice(first, last)), row),
                    task,
                )
                sums.append(sum_gradients_by_engine)
            return torch.stack(sums)

        return sum_gradients_by_engine

    def _minibatch_of_units(self, units: NDArray[np.int64], row: int) -> Minibatch:
        """The examples of these units, or their copies, sorted by unit size as engines process them.

        An added unit changes only the positions of units of its own size: of at most one, because orders are random.
        """
        index, sizes = self.records.records_and_sizes_of_drawn_units(self.records.units_sorted_by_size(units))
        inputs, targets = self.records.inputs(index, self.device), self.records.targets(index, self.device)
        weights = unit_weights(self.loss, targets, sizes)
        if self.augmentation is None:
            return Minibatch(inputs, targets, sizes, weights)
        copies = self.augmentation.multiplicity
        single = sizes is None and copies == 1
        return Minibatch(
            self.augmentation.augmented_copies(inputs, self.draws[row]),
            targets.repeat_interleave(copies, dim=0),
            None if single else [copies * size for size in sizes or (1,) * len(units)],
            weights,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StackedSums:
    """The sums for models of one architecture, by batched matrix products.

    *Guarantee*: the same sums as an engine's, up to rounding. Every record is its own unit. At most `chunk` examples of
    a common batch are processed at a time.
    """

    stack: Stack
    records: Records
    device: torch.device | str
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.records.units is not None:
            raise ValueError("Expected units of one record each where models are stacked.")

    @cached_property
    def _input_norms_of_all_records(self) -> Tensor:
        """The `Stack.lengths` of every record's inputs [N], computed once for all steps."""
        starts = range(0, len(self.records), _LENGTH_CHUNK)
        lengths = [
            self.stack.first_layer_input_norms_with_bias(
                self._scaled_inputs_at_index(slice(first, first + _LENGTH_CHUNK))
            )
            for first in starts
        ]
        return torch.cat([torch.zeros(0, device=self.device), *lengths])

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sums for groups of runs that are small enough for the cache."""
        require_exact_float32_products()
        slices: list[slice] = []
        all_units: list[NDArray[np.int64]] = []
        joined = _JoinedTransforms(transforms=transforms)

        def sum_gradients_of_stack(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            if not slices:
                slices.extend(_equal_slices_of_rows(len(weights), self._runs_at_once(batch)))
            sums = torch.zeros_like(weights, dtype=torch.float64)
            if not len(batch.units):
                return sums
            if batch.common or self._is_mask_cheaper(batch):
                if not batch.common and not all_units:
                    all_units.append(batch.permutation_of_all_unit_numbers(len(self.records)))
                units = batch.units_of_slice_in_random_order(slice(None)) if batch.common else all_units[0]
                size, run_mask = (
                    self._examples_per_pass(batch),
                    None if batch.common else self._batch_membership_mask(batch, all_units[0], weights),
                )
                for first in range(0, len(units), size):
                    examples, padding_mask = self._padded_examples_and_mask(units[first : first + size], size, weights)
                    examples = replace(examples, keep_places=run_mask is not None)
                    for part in slices:
                        mask = padding_mask if run_mask is None else run_mask[part, first : first + size]
                        mask = self._weighted_mask(mask, examples)
                        transform = joined.over(part, shrink, weights)
                        self.stack.add_bounded_gradient_sums(sums[part], weights[part], examples, mask, transform)
                return sums
            last = 0
            for part in slices:
                first, last = last, last + int(batch.sizes[part].sum())
                for own, examples, mask in self._padded_passes_over_run_batches(
                    batch, slice(first, last), part, weights
                ):
                    self.stack.add_bounded_gradient_sums(
                        sums[own],
                        weights[own],
                        examples,
                        self._weighted_mask(mask, examples),
                        joined.over(own, shrink, weights),
                    )
            return sums

        return sum_gradients_of_stack

    def _weighted_mask(self, mask: Tensor | None, examples: Examples) -> Tensor | None:
        """The mask, times the weights of these examples if the loss declares some."""
        weights = unit_weights(self.stack.loss, examples.targets)
        if weights is None:
            return mask
        return weights.to(examples.lengths) if mask is None else mask * weights.to(examples.lengths)

    def _is_mask_cheaper(self, batch: Batch) -> bool:
        """Whether passing over all records with a mask is cheaper than gathering each run's batch."""
        if self._sparse_inputs is not None:
            return False
        cheap = batch.nominal * self.stack.widest_output <= _GATHER_COST * batch.block
        return cheap and batch.nominal * self.stack.number_of_inputs <= _GATHERED and not batch.common

    def _examples_per_pass(self, batch: Batch) -> int:
        """The number of examples of a run in one pass: a block, or one of the fewest equal parts."""
        if self._is_mask_cheaper(batch):
            return -(-batch.nominal // _PASSES)
        most = self.chunk or max(1, _GATHERED // self.stack.number_of_inputs)
        return -(-batch.block // -(-batch.block // most))

    def _runs_at_once(self, batch: Batch) -> int:
        """The number of runs at a time, from the memory of one run."""
        computed = numbers_at_a_time(self.device, cached=_FLOATS) // (
            self.stack.widest_output * self._examples_per_pass(batch)
        )
        if self._is_mask_cheaper(batch) or batch.common:
            return computed
        if self._sparse_inputs is not None:
            return min(computed, _SPARSE_FLOATS // (self.stack.number_of_inputs * self.stack.widest_output))
        gathered = numbers_at_a_time(self.device, cached=_OWN_FLOATS)
        return min(computed, gathered // (self.stack.number_of_inputs * self._examples_per_pass(batch)))

    @cached_property
    def _scaled_inputs_in_memory(self) -> Tensor | None:
        """The inputs [N, d] of all records, scaled once for all steps; None if they are too many to be held."""
        if math.prod(self.records.features.shape) > numbers_at_a_time(self.device, cached=_HELD):
            return None
        return self.records.inputs(slice(None), self.device).flatten(1)

    @cached_property
    def _sparse_inputs(self) -> SparseRecords | None:
        """The inputs of all records, compressed; None unless the data set declares that most of them are 0."""
        declared = self.records.nonzero is not None and self.stack.can_read_sparse_inputs
        return SparseRecords.from_records(self.records) if declared and str(self.device) == "cpu" else None

    def _scaled_inputs_at_index(self, index: Index) -> Tensor:
        if self._scaled_inputs_in_memory is None:
            return self.records.inputs(index, self.device).flatten(1)
        if isinstance(index, slice):
            return self._scaled_inputs_in_memory[index]
        return self._scaled_inputs_in_memory.index_select(
            0, torch.from_numpy(index).to(self._scaled_inputs_in_memory.device)
        )

    def _padded_examples_and_mask(
        self, units: NDArray[np.int64], size: int, like: Tensor
    ) -> tuple[Examples, Tensor | None]:
        """The examples of `units`, padded to `size`, and a mask of the true ones [size]; None without padding."""
        missing = size - len(units)
        padded = np.pad(units, (0, missing), mode="edge")
        examples = self._examples_at_index(padded, self._scaled_inputs_at_index(padded).to(like.dtype), like)
        return examples, (torch.arange(size) < len(units)).to(like) if missing else None

    def _padded_passes_over_run_batches(
        self, batch: Batch, units: slice, part: slice, like: Tensor
    ) -> Iterator[tuple[slice, Examples, Tensor]]:
        """The own batches of some of the runs, one pass at a time, with a mask [k, size] of the true examples.

        Passes over a block have all of these runs. The few runs with more examples than that go on one by one.
        """
        size, sizes = self._examples_per_pass(batch), batch.sizes[part]
        mask = np.arange(-(-sizes.max() // size) * size) < sizes[:, None]
        index = np.zeros(mask.shape, dtype=np.int64)
        index[mask] = batch.units[units]
        index = batch.shuffle_rows_with_masked_units_first(index, mask)
        all_have = -(-batch.block // size) * size
        for first in range(0, mask.shape[1], size):
            columns = slice(first, first + size)
            if first < all_have:
                yield part, *self._examples_and_mask_of_each_run(index[:, columns], mask[:, columns], like)
                continue
            for row in np.flatnonzero(sizes > first).tolist():
                alone = slice(row, row + 1)
                run = slice(part.start + row, part.start + row + 1)
                yield run, *self._examples_and_mask_of_each_run(index[alone, columns], mask[alone, columns], like)

    def _examples_and_mask_of_each_run(
        self, index: NDArray[np.int64], mask: NDArray[np.bool_], like: Tensor
    ) -> tuple[Examples, Tensor]:
        """The examples of each run at these indices [k, n], and the mask of the true ones."""
        inputs: Tensor | SparseRows
        if self._sparse_inputs is None:
            inputs = (
                self._scaled_inputs_at_index(index.reshape(-1))
                .to(like.dtype)
                .view(*index.shape, self.stack.number_of_inputs)
            )
        else:
            inputs = self._sparse_inputs.rows_at_indices(index)
        return self._examples_at_index(index, inputs, like), torch.from_numpy(mask).to(like.device)

    def _examples_at_index(self, index: NDArray[np.int64], inputs: Tensor | SparseRows, like: Tensor) -> Examples:
        """The examples at this index [n] or [K, n], which have these inputs."""
        targets = self.records.targets(index.reshape(-1), self.device).view(index.shape)
        return Examples(inputs=inputs, targets=targets, lengths=self._input_norms_at_index(index, inputs, like))

    def _input_norms_at_index(self, index: NDArray[np.int64], inputs: Tensor | SparseRows, like: Tensor) -> Tensor:
        """The `Stack.lengths` of these inputs, computed for all records at once, or from the inputs read from disk."""
        if self.records.is_on_disk and isinstance(inputs, Tensor):
            return self.stack.first_layer_input_norms_with_bias(inputs)
        all_norms = self._input_norms_of_all_records
        places = torch.from_numpy(index.reshape(-1)).to(all_norms.device)
        return all_norms.index_select(0, places).to(like.dtype).view(index.shape)

    def _batch_membership_mask(self, batch: Batch, all_units: NDArray[np.int64], like: Tensor) -> Tensor:
        """A mask [K, n] of all records, in the order of `all_units`: 1 if a record is in the run's batch, else 0."""
        size = self._examples_per_pass(batch)
        mask = like.new_zeros(len(batch.sizes), -(-len(self.records) // size) * size)
        runs = np.repeat(np.arange(len(batch.sizes)), batch.sizes)
        places = np.argsort(all_units)[batch.units] + mask.shape[1] * runs
        mask.view(-1)[torch.from_numpy(places).to(mask.device)] = 1
        return mask


@dataclass(kw_only=True, eq=False)
class _JoinedTransforms:
    """The transforms of some of the runs as one, kept until the bounds change."""

    transforms: Sequence[GradientTransform]
    _shrink: float = 1.0
    _kept: dict[tuple[int, int], GradientTransform] = field(default_factory=dict)

    def over(self, rows: slice, shrink: float, like: Tensor) -> GradientTransform:
        """The transforms of these rows of all weights, at `shrink` times their bounds."""
        if shrink != self._shrink:
            self._shrink = shrink
            self._kept.clear()
        key = rows.start, rows.stop
        if key not in self._kept:
            self._kept[key] = join_transforms_of_runs(
                [one.with_smaller_bound(shrink) for one in self.transforms[rows]], like
            )
        return self._kept[key]


def _equal_slices_of_rows(rows: int, at_once: int) -> list[slice]:
    """All rows in their order, in the fewest slices of nearly equal length that have at most `at_once` rows, or one."""
    count = -(-rows // max(1, at_once))
    return [slice(rows * part // count, rows * (part + 1) // count) for part in range(count)]
