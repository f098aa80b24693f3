"""Sums of bounded gradients for runs that are trained together: by an engine for each model, or for stacked models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils import vector_to_parameters

from dpsweep.trainers.data.places import BLANK, draw_places, spread_over_places
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.augmentation import Augmentation
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss, example_weights
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
"""Passes over all records when the mask leaves most of them out, for the largest number of records."""

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
            sums = torch.zeros_like(weights, dtype=torch.float64)
            if not len(batch.units):
                return sums
            places = batch.draw_unit_places()
            for row, vector, units, total, transform in zip(
                rows, weights, np.broadcast_to(places, (len(weights), places.shape[1])), sums, transforms, strict=True
            ):
                vector_to_parameters(vector, trainable_parameters(self.models[row]))
                task = Task(transform=transform.with_smaller_bound(shrink), loss=self.loss, chunk=self.chunk)
                minibatch = self._minibatch_at_places(units, row)
                total += self.engine.bounded_gradient_sum_and_norms(self.models[row], minibatch, task)[0]
            return sums

        return sum_gradients_by_engine

    def _minibatch_at_places(self, units: NDArray[np.int64], row: int) -> Minibatch:
        """The examples of these units, or their copies, at their places, slot after slot.

        Copies are drawn for blank places too, so that no unit has other draws because of another.
        """
        by_slot = self.records.records_at_places(units)
        filled = by_slot.reshape(-1)
        index = filled[filled != BLANK]
        inputs, targets = (
            spread_over_places(rows, filled)
            for rows in (self.records.inputs(index, self.device), self.records.targets(index, self.device))
        )
        used = torch.from_numpy(by_slot != BLANK).to(inputs.device, torch.float64)
        weights = (used * example_weights(self.loss, targets).view_as(used)).sum(dim=0) / used.sum(dim=0).clamp(min=1)
        copies = 1 if self.augmentation is None else self.augmentation.multiplicity
        if self.augmentation is not None:
            inputs = self.augmentation.augmented_copies(inputs, self.draws[row])
            inputs = inputs.view(-1, len(units), copies, *inputs.shape[1:]).transpose(1, 2).flatten(0, 2)
            targets = targets.view(-1, len(units), *targets.shape[1:]).repeat_interleave(copies, dim=0).flatten(0, 1)
        if self.records.units is None and copies == 1:
            return Minibatch(inputs, targets, weights)
        return Minibatch(inputs, targets, weights, used.bool().repeat_interleave(copies, dim=0))


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
        """The `Stack.lengths` of every record's inputs [N + 1], and of a blank place, computed once for all steps."""
        starts = range(0, len(self.records), _LENGTH_CHUNK)
        lengths = [
            self.stack.first_layer_input_norms_with_bias(
                self.records.inputs(slice(first, first + _LENGTH_CHUNK), self.device).flatten(1)
            )
            for first in starts
        ]
        blank = torch.zeros(1, self.stack.number_of_inputs, device=self.device)
        return torch.cat([*lengths, self.stack.first_layer_input_norms_with_bias(blank)])

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sums for groups of runs that are small enough for the cache."""
        require_exact_float32_products()
        slices: list[slice] = []
        all_records: list[_AllRecords] = []
        joined = _JoinedTransforms(transforms=transforms)

        def sum_gradients_of_stack(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            size = self._examples_per_pass(batch)
            if not slices:
                slices.extend(_equal_slices_of_rows(len(weights), self._runs_at_once(batch)))
            sums = torch.zeros_like(weights, dtype=torch.float64)

            def add_sums(part: slice, examples: Examples, mask: Tensor) -> None:
                transform = joined.over(part, shrink, weights)
                self.stack.add_bounded_gradient_sums(sums[part], weights[part], examples, mask, transform)

            if not len(batch.units):
                return sums
            if self._is_mask_cheaper(batch):
                if not all_records:
                    all_records.append(self._all_records_at_places(batch, size, weights))
                for examples, mask in all_records[0].passes_with_masks(batch):
                    for part in slices:
                        add_sums(part, examples, mask[part])
                return sums
            places = batch.draw_unit_places()
            places = np.pad(places, ((0, 0), (0, -places.shape[1] % size)), constant_values=BLANK)
            for units in np.split(places, places.shape[1] // size, axis=1):
                if batch.common:
                    examples, mask = self._examples_at_places(units[0], weights)
                for part in slices:
                    if not batch.common:
                        examples, mask = self._examples_at_places(units[part], weights)
                    add_sums(part, examples, mask)
            return sums

        return sum_gradients_of_stack

    def _is_mask_cheaper(self, batch: Batch) -> bool:
        """Whether passing over all records with a mask is cheaper than gathering each run's batch."""
        if batch.common or self._sparse_inputs is not None:
            return False
        cheap = batch.most * self.stack.widest_output <= _GATHER_COST * batch.places
        return cheap and batch.most * self.stack.number_of_inputs <= _GATHERED

    def _examples_per_pass(self, batch: Batch) -> int:
        """The number of examples of a run in one pass: all places of a batch, or one of the fewest equal parts."""
        if self._is_mask_cheaper(batch):
            return -(-batch.most // _PASSES)
        most = self.chunk or max(1, _GATHERED // self.stack.number_of_inputs)
        return -(-batch.places // -(-batch.places // most))

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
        """The inputs [N + 1, d] of all records, scaled once for all steps, and of a blank place as the last row.

        None if they are too many to be held.
        """
        if math.prod(self.records.features.shape) > numbers_at_a_time(self.device, cached=_HELD):
            return None
        return pad(self.records.inputs(slice(None), self.device).flatten(1), (0, 0, 0, 1))

    @cached_property
    def _targets(self) -> Tensor:
        """The targets [N + 1] of all records, and of a blank place."""
        return pad(self.records.targets(slice(None), self.device), (0, 1))

    @cached_property
    def _weights(self) -> Tensor:
        """The weights [N + 1] of all records, and 0 for a blank place."""
        return pad(example_weights(self.stack.loss, self._targets[:-1]), (0, 1))

    @cached_property
    def _sparse_inputs(self) -> SparseRecords | None:
        """The inputs of all records, compressed; None unless the data set declares that most of them are 0."""
        declared = self.records.nonzero is not None and self.stack.can_read_sparse_inputs
        return SparseRecords.from_records(self.records) if declared and str(self.device) == "cpu" else None

    def _all_records_at_places(self, batch: Batch, size: int, like: Tensor) -> _AllRecords:
        """All records at places that are drawn once for many steps, in passes of `size`."""
        units = draw_places(batch.order, np.arange(len(self.records)), -(-batch.most // size) * size)
        place_of_unit = np.empty(len(self.records), dtype=np.int64)
        place_of_unit[units[units != BLANK]] = np.flatnonzero(units != BLANK)
        passes = tuple(self._examples_at_places(part, like)[0] for part in np.split(units, len(units) // size))
        return _AllRecords(passes=passes, place_of_unit=place_of_unit, weights=self._weights.to(like))

    def _examples_at_places(self, units: NDArray[np.int64], like: Tensor) -> tuple[Examples, Tensor]:
        """The examples at places [n] or [K, n], and the mask of their weights."""
        places = units.reshape(-1)
        index = torch.from_numpy(places % (len(self.records) + 1)).to(self.device)  # blanks stand after all records
        inputs: Tensor | SparseRows
        if self._sparse_inputs is not None and units.ndim > 1:
            inputs = self._sparse_inputs.rows_at_indices(units % (len(self.records) + 1))
        elif self._scaled_inputs_in_memory is not None:
            inputs = self._scaled_inputs_in_memory.index_select(0, index).to(like.dtype).view(*units.shape, -1)
        else:
            read = self.records.inputs(places[places != BLANK], self.device).flatten(1)
            inputs = spread_over_places(read, places).to(like.dtype).view(*units.shape, -1)
        if self.records.is_on_disk and isinstance(inputs, Tensor):
            lengths = self.stack.first_layer_input_norms_with_bias(inputs)
        else:
            lengths = self._input_norms_of_all_records.index_select(0, index).to(like.dtype).view(units.shape)
        targets = self._targets.index_select(0, index).view(units.shape)
        mask = self._weights.index_select(0, index).to(like.dtype).view(units.shape)
        return Examples(inputs=inputs, targets=targets, lengths=lengths), mask


@dataclass(frozen=True, kw_only=True, eq=False)
class _AllRecords:
    """All records at their places, in passes of one size, for steps that leave most of them out by a mask."""

    passes: tuple[Examples, ...]
    place_of_unit: NDArray[np.int64]
    weights: Tensor

    def passes_with_masks(self, batch: Batch) -> Iterator[tuple[Examples, Tensor]]:
        """Each pass with its mask [K, size]: the weights of the units of a run's batch, else 0."""
        size = len(self.passes[0].targets)
        mask = self.passes[0].lengths.new_zeros(len(batch.sizes), len(self.passes) * size)
        runs = np.repeat(np.arange(len(batch.sizes)), batch.sizes)
        places = self.place_of_unit[batch.units] + mask.shape[1] * runs
        units = torch.from_numpy(batch.units).to(mask.device)
        mask.view(-1)[torch.from_numpy(places).to(mask.device)] = self.weights.index_select(0, units)
        yield from zip(self.passes, torch.split(mask, size, dim=1), strict=True)


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
