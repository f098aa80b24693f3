"""Batches and noise for runs that are trained together: each run draws from its own random streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsweep.accounting.events.build import as_gaussian_step
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.places import draw_rows_of_places, number_of_places
from dpsweep.trainers.declarations.correlated_noise import row_stds
from dpsweep.trainers.randomness import Lattices, Streams, standard_normal
from dpsweep.trainers.training.run import Drawn, Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The units of one step, run after run [n], and the number of units in each run's batch [K].

    With `common`, all runs have the same units, and `units` holds them once. The law of `places`, the places of a
    batch, and `most`, the most units that all steps together draw from, depend on declared numbers alone. The
    computation of sums may depend on these two alone, never on the drawn units, because float32 kernels of another
    shape may round other records differently.
    """

    units: NDArray[np.int64]
    sizes: NDArray[np.int64]
    common: bool
    places: int
    most: int
    order: np.random.Generator | None = None

    def draw_unit_places(self) -> NDArray[np.int64]:
        """The units of each batch at newly drawn places, `BLANK` at the others: [K, places], or [1, places] if common.

        Without a generator units take the first places, in their order.
        """
        return draw_rows_of_places(self.order, self.units, self.sizes[:1] if self.common else self.sizes, self.places)


class Tally:
    """Statistics of the batch sizes that K runs have drawn."""

    def __init__(self, runs: int) -> None:
        self.steps = 0
        self._units, self._largest = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
        self._smallest = np.full(runs, np.iinfo(np.int64).max)

    def add_batch_sizes(self, sizes: NDArray[np.int64]) -> None:
        """Adds a step with batches of these sizes [K]."""
        self.steps += 1
        self._units += sizes
        np.minimum(self._smallest, sizes, out=self._smallest)
        np.maximum(self._largest, sizes, out=self._largest)

    def statistics_of_each_run(self) -> list[Drawn]:
        """The statistics of each run; at least one step is required."""
        columns = zip(self._units.tolist(), self._smallest.tolist(), self._largest.tolist(), strict=True)
        return [Drawn(steps=self.steps, units=u, smallest=low, largest=high) for u, low, high in columns]


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchAndNoise:
    """The source of batches and noise of K runs: `streams`, each with the number of consecutive runs that use it.

    `parts` has the numbers of the units of each part that the sampler takes in turn: one part if it draws from all.
    """

    streams: tuple[tuple[Streams, int], ...]
    run: Run
    parts: tuple[NDArray[np.int64], ...]
    common: bool

    @classmethod
    def from_streams(
        cls, streams: Sequence[Streams], run: Run, parts: tuple[NDArray[np.int64], ...], *, share: bool
    ) -> BatchAndNoise:
        """For runs with these streams and the sampler of `run`; adjacent runs may have the same streams."""
        owners = tuple((stream, len(list(rows))) for stream, rows in groupby(streams))
        step = as_gaussian_step(run.sampler.event_per_period(records=run.train_records, noise_multiplier=1.0))
        full_batch = step is not None and step[0] == 1.0 and run.steps_per_period == 1
        # full batches are equal in all runs, without sharing any randomness
        common = share or full_batch or len(streams) == 1
        return cls(streams=owners, run=run, parts=parts, common=common)

    def batches_of_all_steps(self) -> Iterator[Batch]:
        """The batches of one step after another, drawn per run or once for all runs, one period at a time."""
        most, order = self.run.most_train_units * len(self.parts), self.streams[0][0].order
        batch = partial(Batch, common=self.common, most=most, order=order)
        while True:
            if self.common:
                for units, sizes, joining in self._draw_period(self.streams[0][0], 1):
                    all_sizes = np.repeat(sizes, sum(rows for _, rows in self.streams))
                    yield batch(units=units, sizes=all_sizes, places=number_of_places(joining))
            else:
                for step in zip(*(self._draw_period(streams, rows) for streams, rows in self.streams), strict=True):
                    all_units, every_size, all_joining = zip(*step, strict=True)
                    units, sizes = map(_concatenate_parts, (all_units, every_size))
                    yield batch(units=units, sizes=sizes, places=number_of_places(max(all_joining)))

    def draw_standard_normal_noise(self, like: Tensor) -> Tensor:
        """Independent standard normal noise [K, P] in float64, drawn on the CPU."""
        noise = [standard_normal(streams.noise, (rows, like.shape[1])) for streams, rows in self.streams]
        return torch.from_numpy(noise[0] if len(noise) == 1 else np.concatenate(noise)).to(like.device)

    def _draw_period(self, streams: Streams, rows: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
        """Of each step of a period: its units, the batch sizes [rows], and the most slots that join in a row.

        The empty slots of a part draw like its units, so the law of the third does not depend on the number of these.
        """
        sampler, records = self.run.sampler, self.run.train_records
        for part in self.parts:
            units, sizes = sampler.draw_batch_indices(rows, len(part), records, streams.subsampling)
            joining = sizes
            if not self.run.public and self.run.adjacency is Adjacency.ADD_OR_REMOVE_ONE:  # the number is private
                empty = self.run.most_train_units - len(part)
                joining = sizes + sampler.draw_batch_indices(rows, empty, records, streams.order)[1]
            by_step = sizes.reshape(-1, rows)
            most = joining.reshape(-1, rows).max(axis=1)
            yield from zip(
                np.split(part[units], by_step.sum(axis=1).cumsum()[:-1]), by_step, most.tolist(), strict=True
            )


class NoiseRows:
    """The noise of K runs over the steps of this job: independent, or correlated by a banded Toeplitz matrix.

    Row t of correlated noise is (Z_t - sum_j c_j row_(t-j)) / c_0 for independent draws Z. What is released is the sum
    c_0 S_t + Z_t on the lattice of Z, minus public numbers, divided by c_0, where the row of an earlier step is what
    was released then minus its exact sum, rounding included. So each step is one noisy sum on a lattice, given those
    before it. `history` has each run's last rows, the newest first: no more than bands - 1, and in memory alone. A job
    begins with none: a resumed run has a new, independent matrix.
    """

    def __init__(
        self, coefficients: Sequence[float], history: Sequence[Sequence[Tensor]], first: int, steps: int
    ) -> None:
        self._first, *self._others = coefficients
        self._rows = deque((torch.stack(rows) for rows in zip(*history, strict=True)), maxlen=len(self._others))
        self._std_factors: Iterator[float] = iter(row_stds(tuple(coefficients), steps)[first:].tolist())

    def add_noise_to_sums(self, sums: Tensor, noise: Tensor, lattices: Lattices) -> Tensor:
        """Sums [K, P] plus the next row, given standard normal noise [K, P], which this call overwrites."""
        if not self._others:
            return lattices.add_noise_to_sums(sums, noise)
        exact = sums.double()
        shifted = self._first * exact
        for coefficient, row in zip(self._others, self._rows, strict=False):
            shifted.sub_(row, alpha=coefficient)
        noisy = lattices.add_noise_to_sums(shifted, noise).div_(self._first)
        self._rows.appendleft(noisy - exact)
        return noisy

    def next_std_factor(self) -> float:
        """The standard deviation of the next row, in units of that of the independent draws."""
        return next(self._std_factors)

    def history_of_each_run(self) -> list[list[Tensor]]:
        """The last rows of each run, the newest first."""
        return [list(rows) for rows in zip(*self._rows, strict=True)]


def _concatenate_parts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
