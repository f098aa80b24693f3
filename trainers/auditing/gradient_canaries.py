"""Canaries that are gradients: each along a coordinate of its own, and far longer than the bound.

They take the place of a model's gradients, so that one step on neighbours is as far apart as the law allows: the
strongest attack there is on sampler, transform, noise, divisor and loop. The model is replaced by as many free numbers
as there are canaries, and the engine, which computes gradients of a model, is not run:
`dpsweep.trainers.auditing.record_canaries` attacks it.

Source: Nasr et al. 2023 (Tight Auditing of Differentially Private Machine Learning); Steinke, Nasr, Jagielski 2023, who
call them Dirac canaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.auditing.observed_training import train_observed
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.noise import spacing
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum
from dpsweep.trainers.training.run import Run

MOST_CELLS, OFF = 2**15, 0.02
"""Numbers of fewer cells of the lattice are checked; float32 rounds them by less than `OFF` cells."""

LENGTH = 1000.0
"""The length of a canary's gradient before the transform, in multiples of the bound."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryGradients:
    """Sums of the gradients of canaries alone: unit i has a gradient along coordinate `coordinates[i]`.

    Its sign is `signs[i]`; a unit with sign 0 has a gradient of 0.
    """

    coordinates: Tensor
    signs: Tensor

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sums of bounded gradients."""

        def total(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            sums, last = torch.zeros_like(weights, dtype=torch.float64), 0
            for row, (size, transform) in enumerate(zip(batch.sizes, transforms, strict=True)):
                first, last = (0, len(batch.units)) if batch.common else (last, last + int(size))
                units = torch.from_numpy(batch.units[first:last]).to(weights.device)
                bounded = transform.shrunk(shrink)
                norms = weights.new_full((len(units),), LENGTH * (bounded.bound if bounded.bound < torch.inf else 1.0))
                values = (norms * bounded.factors(norms)).double() * self.signs[units]
                sums[row].index_add_(0, self.coordinates[units], values)
            return sums

        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientScores:
    """What the noisy steps say of each canary [m]: the sum of its coordinate, and its variance over the steps.

    Of `numbers` noisy numbers, `off_lattice` were no multiple of the spacing of their noise: such a number depends on
    the sum that the noise was added to (Mironov 2012).
    """

    total: NDArray[np.float64]
    variation: NDArray[np.float64]
    numbers: int
    off_lattice: int


@dataclass(kw_only=True, eq=False)
class _Coordinates:
    """An observer: the first two moments of the canaries' coordinates so far, in standard deviations of the noise."""

    batch_size: int
    total: Tensor
    squares: Tensor
    steps: int = 0
    numbers: int = 0
    off_lattice: int = 0

    def __call__(self, weights: Tensor, gradient: Tensor, noise_std: float) -> None:
        values = gradient.double().cpu() / (noise_std or 1.0)
        self.total += values
        self.squares += values.square()
        self.steps += 1
        if noise_std:
            std = noise_std * self.batch_size
            cells = values * (std / spacing(std))
            cells = cells[cells.abs() < MOST_CELLS]
            self.numbers += len(cells)
            self.off_lattice += int(((cells - cells.round()).abs() > OFF).sum())

    def scores(self) -> GradientScores:
        steps = max(1, self.steps)
        variation = self.squares / steps - (self.total / steps).square()
        return GradientScores(
            total=self.total.numpy(),
            variation=variation.numpy(),
            numbers=self.numbers,
            off_lattice=self.off_lattice,
        )


def train_on_gradients(
    runs: Sequence[Run],
    coins: NDArray[np.bool_],
    adjacency: Adjacency,
    streams: Sequence[Streams],
    *,
    share: bool = False,
) -> tuple[GradientScores, ...]:
    """The scores of canaries with these coins [m] after each of these runs, which are trained together.

    Where a record is added or removed, the canaries that are absent are not there. Where one is replaced, an absent
    canary is another record in its place, with the opposite gradient; all other records have gradients of 0.
    """
    sums = _canaries(coins, adjacency, runs[0].train_records)
    records = Records(
        features=torch.zeros(1, 1).expand(len(sums.signs), len(coins)),
        labels=torch.zeros(len(sums.signs), dtype=torch.int64),
    )
    models = [nn.Linear(len(coins), 1, bias=False) for _ in runs]
    for model in models:
        nn.init.zeros_(model.weight)
    seen = [
        _Coordinates(batch_size=run.sampler.batch_size, total=_zeros(len(coins)), squares=_zeros(len(coins)))
        for run in runs
    ]
    train_observed(runs, models, sums, records, streams, seen, device="cpu", share=share)
    return tuple(one.scores() for one in seen)


def _canaries(coins: NDArray[np.bool_], adjacency: Adjacency, records: int) -> CanaryGradients:
    if Adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
        present = torch.from_numpy(np.flatnonzero(coins))
        return CanaryGradients(coordinates=present, signs=torch.ones(len(present), dtype=torch.float64))
    if len(coins) > records:
        raise ValueError(f"Expected audit.canaries={len(coins)} <= {records}, the records that one may replace.")
    coordinates, signs = torch.zeros(records, dtype=torch.int64), torch.zeros(records, dtype=torch.float64)
    coordinates[: len(coins)] = torch.arange(len(coins))
    signs[: len(coins)] = torch.from_numpy(np.where(coins, 1.0, -1.0))
    return CanaryGradients(coordinates=coordinates, signs=signs)


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64)
