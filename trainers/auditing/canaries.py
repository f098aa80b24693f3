"""Canaries that are gradients: the strongest attack there is on sampler, bound, noise, divisor and loop of a run.

Each canary has a gradient along a coordinate of its own, far longer than the bound, and is there by a secret fair coin.
Canaries take the place of a model's gradients in the loop of every run, so that one step on neighbours is as far apart
as the law allows. The attacker is the reader whom the price assumes: it sees each noisy mean of gradients, and adds up
each canary's coordinate.

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
from dpsweep.trainers.auditing.recompute import declared_std
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

LENGTH = 1000.0
"""The length of a canary's gradient before the transform, in multiples of the bound."""


class _Zeros(nn.Module):
    """So many weights, all 0, in place of a model; no gradient of it is ever computed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs * self.weights[:1]
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class CanarySums:
    """Sums of the gradients of canaries alone: unit i has one of sign `signs[i]` along coordinate `coordinates[i]`."""

    coordinates: Tensor
    signs: Tensor

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sum of the one run's bounded gradients."""

        def add_canaries(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            bounded, units = transforms[0].with_smaller_bound(shrink), torch.from_numpy(batch.units)
            norms = weights.new_full((len(units),), LENGTH * min(bounded.norm_bound, 1e30))
            values = (norms * bounded.factors(norms)).double() * self.signs[units]
            return torch.zeros_like(weights, dtype=torch.float64).index_add_(
                1, self.coordinates[units], values[None].expand(len(weights), -1)
            )

        return add_canaries


def canary_scores(
    run: Run, size: int, coins: NDArray[np.bool_], adjacency: Adjacency, streams: Streams
) -> NDArray[np.float64]:
    """What a training of this run with `size` weights says of canaries with these coins [m]: high where one is there.

    Where a record is added or removed, absent canaries are not there. Where one is replaced, an absent canary is
    another record in its place, with the opposite gradient; all other records have gradients of 0.
    """
    if len(coins) > size:
        raise ValueError(f"Expected canaries={len(coins)} <= {size}, the numbers that are trained.")
    places = torch.from_numpy(np.linspace(0, size - 1, len(coins)).round().astype(np.int64))
    if Adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
        coordinates = places[torch.from_numpy(coins)]
        signs = torch.ones(len(coordinates), dtype=torch.float64)
    else:
        if len(coins) > run.train_records:
            raise ValueError(f"Expected canaries={len(coins)} <= {run.train_records}, the records that they replace.")
        rest = run.train_records - len(coins)
        coordinates = torch.cat([places, places.new_zeros(rest)])
        signs = torch.from_numpy(np.concatenate([np.where(coins, 1.0, -1.0), np.zeros(rest)]))
    total = torch.zeros(size, dtype=torch.float64)

    def observe(rows: Sequence[int], step: int, means: Tensor) -> None:
        total.add_(means[0].double().cpu() / (declared_std(run, step) or 1.0))

    numbers = torch.arange(len(signs))
    records = Records(features=numbers[:, None].float(), labels=torch.zeros_like(numbers))
    sums = CanarySums(coordinates=coordinates, signs=signs)
    train_together([run], [_Zeros(size)], sums, records, [streams], device="cpu", observe=observe)
    return total[places].numpy()
