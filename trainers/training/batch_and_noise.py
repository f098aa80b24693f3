"""Where the runs of a session take their batches and their noise from: each from streams of its own, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsweep.accounting.events.build import as_fixed_size_step, as_gaussian_step
from dpsweep.trainers.declarations.batch_sampling import Sampler
from dpsweep.trainers.noise import standard_normal
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.run import Drawn, Run

_SPREAD = 2
_KEY_BITS, _UNIT_BITS = 62, 28


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The units of one step: those of each run [n] after those of the one before, and how many each run has [K].

    With `common`, all runs have the same ones, and `units` holds them once. `block` and `nominal` are declared numbers:
    how many units a batch has, seldom more, and how many there are to draw from. How sums are computed may depend on
    these two alone, never on what was drawn: float32 kernels of other shapes round the other records otherwise.
    """

    units: NDArray[np.int64]
    sizes: NDArray[np.int64]
    common: bool
    block: int
    nominal: int
    order: np.random.Generator | None = None

    def ordered(self, part: slice) -> NDArray[np.int64]:
        """Some of the units in an order that is drawn anew, where there is a generator for it.

        Kernels may round a record otherwise in another place of the batch. In a random order one record more changes
        the place of one other at most: put the last one in its place, and the others have a random order again.
        """
        units = self.units[part]
        return units if self.order is None else self.order.permutation(units)

    def everybody(self, count: int) -> NDArray[np.int64]:
        """All of so many units, in an order that is drawn for many steps."""
        return np.arange(count) if self.order is None else self.order.permutation(count)

    def reordered(self, index: NDArray[np.int64], there: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The same for rows [k, n] of units, each with those first that are `there`."""
        if self.order is None or int(index.max(initial=0)) >= 1 << _UNIT_BITS:
            return index
        keys = self.order.integers(1 << (_KEY_BITS - _UNIT_BITS), size=index.shape) << _UNIT_BITS
        keys = np.where(there, keys | index, np.iinfo(np.int64).max)
        return np.where(there, np.sort(keys, axis=1) & ((1 << _UNIT_BITS) - 1), 0)


class Tally:
    """The sizes of the batches that K runs have drawn so far."""

    def __init__(self, runs: int) -> None:
        self.steps = 0
        self._units, self._largest = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
        self._smallest = np.full(runs, np.iinfo(np.int64).max)

    def add(self, sizes: NDArray[np.int64]) -> None:
        """Counts a step with batches of these sizes [K]."""
        self.steps += 1
        self._units += sizes
        np.minimum(self._smallest, sizes, out=self._smallest)
        np.maximum(self._largest, sizes, out=self._largest)

    def drawn(self) -> list[Drawn]:
        """Each run's own; there must have been a step."""
        columns = zip(self._units.tolist(), self._smallest.tolist(), self._largest.tolist(), strict=True)
        return [Drawn(steps=self.steps, units=u, smallest=low, largest=high) for u, low, high in columns]


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchAndNoise:
    """What K runs draw: `streams`, each with the number of runs in a row that draw from it."""

    streams: tuple[tuple[Streams, int], ...]
    run: Run
    available: int
    common: bool

    @classmethod
    def of(cls, streams: Sequence[Streams], run: Run, available: int, *, share: bool) -> BatchAndNoise:
        """For runs with these streams, of which neighbours may be the same, that sample as `run` does."""
        owners = tuple((one, len(list(rows))) for one, rows in groupby(streams))
        step = as_gaussian_step(run.sampler.event(records=run.train_records, noise_multiplier=1.0))
        alike = step is not None and step[0] == 1.0 and run.period == 1
        # whoever takes everything has the same, and shares nothing
        return cls(streams=owners, run=run, available=available, common=share or alike or len(streams) == 1)

    def batches(self) -> Iterator[Batch]:
        """The units of one step after another, drawn for every run by itself, or once for all, a period at a time."""
        nominal = self.run.train_records
        block, order = declared_block(self.run.sampler, nominal), self.streams[0][0].order
        batch = partial(Batch, block=block, nominal=nominal, order=order)
        while True:
            if self.common:
                for units, sizes in self._draw(self.streams[0][0], 1):
                    every = np.repeat(sizes, sum(rows for _, rows in self.streams))
                    yield batch(units=units, sizes=every, common=True)
            else:
                for drawn in zip(*(self._draw(streams, rows) for streams, rows in self.streams), strict=True):
                    units, sizes = map(_joined, zip(*drawn, strict=True))
                    yield batch(units=units, sizes=sizes, common=False)

    def noise(self, like: Tensor) -> Tensor:
        """Independent standard normal noise [K, P] in float64, drawn on the CPU."""
        drawn = [standard_normal(streams.noise, (rows, like.shape[1])) for streams, rows in self.streams]
        return torch.from_numpy(drawn[0] if len(drawn) == 1 else np.concatenate(drawn)).to(like.device)

    def _draw(self, streams: Streams, rows: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The units and sizes of each step of a period."""
        run = self.run
        units, sizes = run.sampler.draw(rows, self.available, run.train_records, streams.subsampling)
        by_step = sizes.reshape(run.period, rows)
        return [*zip(np.split(units, by_step.sum(axis=1).cumsum()[:-1]), by_step, strict=True)]


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def declared_block(sampler: Sampler, records: int) -> int:
    """How many units a batch has by what was declared: seldom more where their number varies.

    That is two standard deviations above the mean, of a batch in which each unit's part is a coin's.
    """
    event = sampler.event(records=records, noise_multiplier=1.0)
    sampled = as_gaussian_step(event)
    rate = 1.0 if as_fixed_size_step(event) else sampled[0] if sampled else 0.0
    return sampler.batch_size + math.ceil(_SPREAD * math.sqrt(sampler.batch_size * (1 - rate)))
