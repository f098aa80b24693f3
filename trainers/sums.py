"""Sums of bounded gradients for runs that take their steps together: one model by any engine, or several stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from trainers.augmentation import Augmentation
from trainers.chance import Batch
from trainers.data.records import Records
from trainers.engines.engine import Engine, Minibatch, Task
from trainers.engines.gradients import require_exact_products, trainable
from trainers.engines.stacked import Examples, Stack
from trainers.losses import CROSS_ENTROPY, Loss
from trainers.transforms import GradientTransform, side_by_side

if TYPE_CHECKING:
    from trainers.data.units import Index

_FLOATS = 2**18
"""Numbers that a stack has in work at a time for each layer: they should stay in a core's cache."""

_GATHERED = 2**24
"""Numbers of a batch that all runs have which are gathered at a time."""

_PATIENCE = 16
"""Numbers that are made of records that nobody asked for, in the time that it takes to gather one record."""

_GLANCE = 4096
"""Records that are looked at together to find their lengths."""


class Sum(Protocol):
    """Sums of a step, for some of the models and their transforms."""

    def __call__(self, weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
        """The sums [K, P] at weights [K, P], of gradients transformed to `shrink` times their bounds."""
        ...


class Sums(Protocol):
    """Knows the records, and sums what K models say of them.

    *Guarantee*: each unit of a run's batch contributes to that run's sum as an engine would have it, and to no other.
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
                task = Task(transform=transform.shrunk(shrink), loss=self.loss, chunk=self.chunk)
                total, _ = self.engine.weighted_sum(
                    self.models[row], self._examples(batch.units[first:last], row), task
                )
                found.append(total)
            return torch.stack(found)

        return total

    def _examples(self, units: NDArray[np.int64], row: int) -> Minibatch:
        """The examples of these units, or their copies."""
        index, sizes = self.records.members(units)
        inputs, targets = self.records.inputs(index, self.device), self.records.targets(index, self.device)
        if self.augmentation is None:
            return Minibatch(inputs, targets, sizes)
        copies = self.augmentation.multiplicity
        return Minibatch(
            self.augmentation.copies(inputs, self.draws[row]),
            targets.repeat_interleave(copies),
            [copies * size for size in sizes or (1,) * len(units)],
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
        joined: dict[float, list[GradientTransform]] = {}

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            slices.extend([] if slices else _parts(len(weights), self._at_once(batch)))
            if shrink not in joined:
                shrunk = [one.shrunk(shrink) for one in transforms]
                joined.clear()
                joined[shrink] = [side_by_side(shrunk[part], weights) for part in slices]
            parts = [*zip(slices, joined[shrink], strict=True)]
            found, last = torch.zeros_like(weights), 0
            if batch.common:
                most = self.chunk or max(1, _GATHERED // self.stack.inputs)
                for first in range(0, len(batch.units), most):
                    examples = self._gathered(batch.units[first : first + most], weights)
                    for part, transform in parts:
                        self.stack.add(found[part], weights[part], examples, None, transform)
                return found
            everybody = self._gathered(np.arange(len(self.records)), weights) if self._crowded(batch) else None
            for part, transform in parts:
                first, last = last, last + int(batch.sizes[part].sum())
                drawn = batch.units[first:last], batch.sizes[part], weights
                examples, there = (everybody, self._chosen(*drawn)) if everybody else self._padded(*drawn)
                self.stack.add(found[part], weights[part], examples, there, transform)
            return found

        return total

    def _crowded(self, batch: Batch) -> bool:
        """Whether to look at all records and leave most out takes less than to gather those of each run."""
        records, drawn = len(self.records), int(batch.sizes.max())
        few = records * self.stack.widest_output <= _PATIENCE * drawn and records * self.stack.inputs <= _GATHERED
        return few and not batch.common

    def _at_once(self, batch: Batch) -> int:
        """How many runs, from what one of them needs in such a batch."""
        crowded = self._crowded(batch)
        gathered = 0 if crowded or batch.common else self.stack.inputs
        examples = len(self.records) if crowded else int(batch.sizes.max())
        return _FLOATS // (max(gathered, self.stack.widest_output) * max(1, examples))

    def _inputs(self, index: Index) -> Tensor:
        return self.records.inputs(index, self.device).flatten(1)

    def _gathered(self, units: NDArray[np.int64], like: Tensor) -> Examples:
        """These records."""
        lengths = self._lengths.index_select(0, torch.from_numpy(units).to(self._lengths.device)).to(like.dtype)
        targets = self.records.targets(units, self.device)
        return Examples(inputs=self._inputs(units).to(like.dtype), targets=targets, lengths=lengths)

    def _padded(self, units: NDArray[np.int64], sizes: NDArray[np.int64], like: Tensor) -> tuple[Examples, Tensor]:
        """Each run's own batch, filled up to the size of the largest, and who is there [k, n]."""
        there = np.arange(sizes.max()) < sizes[:, None]
        index = np.zeros(there.shape, dtype=np.int64)
        index[there] = units
        flat, shape = self._gathered(index.reshape(-1), like), there.shape
        inputs = flat.inputs.view(*shape, self.stack.inputs)
        own = Examples(inputs=inputs, targets=flat.targets.view(shape), lengths=flat.lengths.view(shape))
        return own, torch.from_numpy(there).to(inputs.device)

    def _chosen(self, units: NDArray[np.int64], sizes: NDArray[np.int64], like: Tensor) -> Tensor:
        """Who of all records is in each run's batch, as ones and zeros [k, N]."""
        chosen = like.new_zeros(len(sizes), len(self.records))
        places = units + len(self.records) * np.repeat(np.arange(len(sizes)), sizes)
        chosen.view(-1)[torch.from_numpy(places).to(chosen.device)] = 1
        return chosen


def _parts(rows: int, at_once: int) -> list[slice]:
    """All rows in their order, at most so many at a time, and at least one."""
    step = max(1, at_once)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
