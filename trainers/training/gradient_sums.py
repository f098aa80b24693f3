"""Sums of bounded gradients for runs that take their steps together: one model by any engine, or several stacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.augmentation import Augmentation
from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.gradients.parameters import require_exact_products, trainable
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task
from dpsweep.trainers.engines.stacked import Examples, Stack
from dpsweep.trainers.methods.transforms import GradientTransform, side_by_side
from dpsweep.trainers.training.batch_and_noise import Batch

if TYPE_CHECKING:
    from dpsweep.trainers.data.units import Index

_FLOATS = 2**18
"""Numbers that a stack has in work at a time for each layer: they should stay in a core's cache."""

_GATHERED = 2**24
"""Numbers of a batch that all runs have which are gathered at a time."""

_PATIENCE = 16
"""Numbers that are made of records that nobody asked for, in the time that it takes to gather one record."""

_PIECES = 4
"""Passes that all records are looked at in where most are left out, if there are as many as were declared."""

_GLANCE = 4096
"""Records that are looked at together to find their lengths."""


class Sum(Protocol):
    """Sums of a step, for some of the models and their transforms."""

    def __call__(self, weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
        """The sums [K, P] in float64 at weights [K, P], of gradients transformed to `shrink` times their bounds."""
        ...


class Sums(Protocol):
    """Knows the records, and sums what K models say of them.

    *Guarantee*: each unit of a run's batch contributes to that run's sum as an engine would have it, and to no other.
    The shapes that are computed with depend on declared numbers alone; only how many passes there are is drawn.
    """

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """A function of weights [K, P] and a batch that gives the sums [K, P], each row by its own transform.

        `rows` are the models that the weights are those of, by their places.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineSums:
    """The sums of any models by an engine, one model after another.

    With an augmentation, a unit's gradient is the mean over all copies of all of its examples; `draws` has a generator
    for each model.
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
        """The engine's weighted sums; from the first on, the models' parameters are views of the weights."""

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            found, last = [], 0
            for row, vector, size, transform in zip(rows, weights, batch.sizes, transforms, strict=True):
                first, last = (0, len(batch.units)) if batch.common else (last, last + int(size))
                vector_to_parameters(vector, trainable(self.models[row]))
                copies = 1 if self.augmentation is None else self.augmentation.multiplicity
                block = batch.block * copies
                task = Task(transform=transform.shrunk(shrink), loss=self.loss, chunk=self.chunk, block=block)
                total, _ = self.engine.weighted_sum(
                    self.models[row], self._examples(batch.ordered(slice(first, last)), row), task
                )
                found.append(total)
            return torch.stack(found)

        return total

    def _examples(self, units: NDArray[np.int64], row: int) -> Minibatch:
        """The examples of these units, or their copies: by size, as engines pack them.

        A unit that joins changes the places of units of its own size alone: of one other, as orders are random.
        """
        index, sizes = self.records.members(self.records.by_size(units))
        inputs, targets = self.records.inputs(index, self.device), self.records.targets(index, self.device)
        if self.augmentation is None:
            return Minibatch(inputs, targets, sizes)
        copies = self.augmentation.multiplicity
        single = sizes is None and copies == 1
        return Minibatch(
            self.augmentation.copies(inputs, self.draws[row]),
            targets.repeat_interleave(copies),
            None if single else [copies * size for size in sizes or (1,) * len(units)],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StackedSums:
    """The sums of models of one architecture, by products of matrices that have one more dimension.

    *Guarantee*: the same sums as those of an engine, up to rounding. Every record is a unit of its own. Of a batch that
    all runs have, at most `chunk` examples are in work at a time.
    """

    stack: Stack
    records: Records
    device: torch.device | str
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.records.units is not None:
            raise ValueError("Expected units of one record each where models are stacked.")

    @cached_property
    def _lengths(self) -> Tensor:
        """What is to be known of every record's inputs [N], once for all steps."""
        starts = range(0, len(self.records), _GLANCE)
        found = [self.stack.lengths(self._inputs(slice(first, first + _GLANCE))) for first in starts]
        return torch.cat([torch.zeros(0, device=self.device), *found])

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """Few enough runs at a time that what is in work stays in the cache."""
        require_exact_products()
        slices: list[slice] = []
        everybody: list[NDArray[np.int64]] = []
        joined: dict[float, list[GradientTransform]] = {}

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            if not slices:
                slices.extend(_parts(len(weights), self._at_once(batch)))
            if shrink not in joined:
                shrunk = [one.shrunk(shrink) for one in transforms]
                joined.clear()
                joined[shrink] = [side_by_side(shrunk[part], weights) for part in slices]
            parts = [*zip(slices, joined[shrink], strict=True)]
            sums = torch.zeros_like(weights, dtype=torch.float64)
            if not len(batch.units):
                return sums
            if batch.common or self._crowded(batch):
                if not batch.common and not everybody:
                    everybody.append(batch.everybody(len(self.records)))
                units = batch.ordered(slice(None)) if batch.common else everybody[0]
                size, chosen = self._pass(batch), None if batch.common else self._chosen(batch, everybody[0], weights)
                for first in range(0, len(units), size):
                    examples, filled = self._filled(units[first : first + size], size, weights)
                    for part, transform in parts:
                        there = filled if chosen is None else chosen[part, first : first + size]
                        self.stack.add(sums[part], weights[part], examples, there, transform)
                return sums
            last = 0
            for part, transform in parts:
                first, last = last, last + int(batch.sizes[part].sum())
                for examples, there in self._padded(batch, slice(first, last), batch.sizes[part], weights):
                    self.stack.add(sums[part], weights[part], examples, there, transform)
            return sums

        return total

    def _crowded(self, batch: Batch) -> bool:
        """Whether to look at all records and leave most out takes less than to gather those of each run."""
        few = batch.nominal * self.stack.widest_output <= _PATIENCE * batch.block
        return few and batch.nominal * self.stack.inputs <= _GATHERED and not batch.common

    def _pass(self, batch: Batch) -> int:
        """How many examples of a run are in work at a time: a block, or the least equal parts of what there is."""
        if self._crowded(batch):
            return -(-batch.nominal // _PIECES)
        most = self.chunk or max(1, _GATHERED // self.stack.inputs)
        return -(-batch.block // -(-batch.block // most))

    def _at_once(self, batch: Batch) -> int:
        """How many runs, from what one of them needs in such a batch."""
        gathered = 0 if self._crowded(batch) or batch.common else self.stack.inputs
        return _FLOATS // (max(gathered, self.stack.widest_output) * self._pass(batch))

    def _inputs(self, index: Index) -> Tensor:
        return self.records.inputs(index, self.device).flatten(1)

    def _gathered(self, units: NDArray[np.int64], like: Tensor) -> Examples:
        """These records."""
        lengths = self._lengths.index_select(0, torch.from_numpy(units).to(self._lengths.device)).to(like.dtype)
        targets = self.records.targets(units, self.device)
        return Examples(inputs=self._inputs(units).to(like.dtype), targets=targets, lengths=lengths)

    def _filled(self, units: NDArray[np.int64], size: int, like: Tensor) -> tuple[Examples, Tensor | None]:
        """So many examples, which begin with these; and which of them those are [size], None where all are."""
        missing = size - len(units)
        examples = self._gathered(np.pad(units, (0, missing), mode="edge"), like)
        return examples, (torch.arange(size) < len(units)).to(like) if missing else None

    def _padded(
        self, batch: Batch, units: slice, sizes: NDArray[np.int64], like: Tensor
    ) -> Iterator[tuple[Examples, Tensor]]:
        """Each run's own batch, so many examples at a time, and who is there [k, size]: some runs have fewer."""
        size = self._pass(batch)
        there = np.arange(-(-sizes.max() // size) * size) < sizes[:, None]
        index = np.zeros(there.shape, dtype=np.int64)
        index[there] = batch.units[units]
        index = batch.reordered(index, there)
        for first in range(0, there.shape[1], size):
            part = index[:, first : first + size]
            flat, shape = self._gathered(part.reshape(-1), like), part.shape
            inputs = flat.inputs.view(*shape, self.stack.inputs)
            own = Examples(inputs=inputs, targets=flat.targets.view(shape), lengths=flat.lengths.view(shape))
            yield own, torch.from_numpy(there[:, first : first + size]).to(inputs.device)

    def _chosen(self, batch: Batch, everybody: NDArray[np.int64], like: Tensor) -> Tensor:
        """Who of all records, in this order and whole passes, is in each run's batch, as ones and zeros [K, n]."""
        size = self._pass(batch)
        chosen = like.new_zeros(len(batch.sizes), -(-len(self.records) // size) * size)
        runs = np.repeat(np.arange(len(batch.sizes)), batch.sizes)
        places = np.argsort(everybody)[batch.units] + chosen.shape[1] * runs
        chosen.view(-1)[torch.from_numpy(places).to(chosen.device)] = 1
        return chosen


def _parts(rows: int, at_once: int) -> list[slice]:
    """All rows in their order, at most so many at a time, and at least one."""
    step = max(1, at_once)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
