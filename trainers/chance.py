"""Where the runs of a session take their batches and their noise from: each from streams of its own, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from accounting.events import as_gaussian_step
from trainers.entropy import Streams
from trainers.noise import standard_normal
from trainers.run import Drawn, Run


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The units of one step: those of each run [n] after those of the one before, and how many each run has [K].

    With `common`, all runs have the same ones, and `units` holds them once.
    """

    units: NDArray[np.int64]
    sizes: NDArray[np.int64]
    common: bool


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
class Chance:
    """What K runs draw: `streams`, each with the number of runs in a row that draw from it."""

    streams: tuple[tuple[Streams, int], ...]
    run: Run
    available: int
    common: bool

    @classmethod
    def of(cls, streams: Sequence[Streams], run: Run, available: int, *, share: bool) -> Chance:
        """For runs with these streams, of which neighbours may be the same, that sample as `run` does."""
        owners = tuple((one, len(list(rows))) for one, rows in groupby(streams))
        step = as_gaussian_step(run.sampler.event(records=run.train_records, noise_multiplier=1.0))
        alike = step is not None and step[0] == 1.0 and run.period == 1
        # whoever takes everything has the same, and shares nothing
        return cls(streams=owners, run=run, available=available, common=share or alike or len(streams) == 1)

    def batches(self) -> Iterator[Batch]:
        """The units of one step after another, drawn for every run by itself, or once for all, a period at a time."""
        while True:
            if self.common:
                for units, sizes in self._draw(self.streams[0][0], 1):
                    every = np.repeat(sizes, sum(rows for _, rows in self.streams))
                    yield Batch(units=units, sizes=every, common=True)
            else:
                for drawn in zip(*(self._draw(streams, rows) for streams, rows in self.streams), strict=True):
                    units, sizes = map(_joined, zip(*drawn, strict=True))
                    yield Batch(units=units, sizes=sizes, common=False)

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
