"""Canaries that are gradients: each along a coordinate of its own, and far longer than the bound.

They take the place of a model's gradients, so that one step on neighbours is as far apart as the law allows: the
strongest attack there is on sampler, transform, noise, divisor and loop. The weights have the model's own tensors, and
the canaries' coordinates lie in every one of them. The engine, which computes gradients of a model, is not run:
`dpsweep.trainers.auditing.record_canaries` attacks it.

Every exact sum is known here, so every noisy one gives its noise away, in all coordinates: it is collected for the
tests of `dpsweep.accounting.lower_bounds.noise_law`.

Source: Nasr et al. 2023 (Tight Auditing of Differentially Private Machine Learning); Steinke, Nasr, Jagielski 2023, who
call them Dirac canaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.lower_bounds.noise_law import ReleasedNoise, TensorLayout
from dpsweep.trainers.auditing.observed_training import train_observed
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.clip_schedules import noise_factor
from dpsweep.trainers.engines.gradients.parameters import trainable
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.noise import spacing
from dpsweep.trainers.randomness import Streams
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum
from dpsweep.trainers.training.run import Run

MOST_CELLS, OFF = 2**15, 0.02
"""Numbers of fewer cells of the lattice are checked; float32 rounds them by less than `OFF` cells."""

LARGEST = 32.0
"""Noise is compared where the sum is at most so many of its standard deviations: float32 rounds no more than 2e-6."""

LENGTH = 1000.0
"""The length of a canary's gradient before the transform, in multiples of the bound."""


def layout_of(model: nn.Module) -> TensorLayout:
    """The trainable tensors of a model, in the order in which they are flattened."""
    chosen = {id(parameter) for parameter in trainable(model)}
    named = [(name, one.numel()) for name, one in model.named_parameters() if id(one) in chosen]
    return TensorLayout(names=tuple(name for name, _ in named), sizes=tuple(size for _, size in named))


class _FreeNumbers(nn.Module):
    """Tensors of these sizes, all 0, in place of a model; no gradient of it is ever computed."""

    def __init__(self, layout: TensorLayout) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in layout.sizes])

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs * self.tensors[0][:1].sum()
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryGradients:
    """Sums of the gradients of canaries alone: unit i has a gradient along coordinate `coordinates[i]`.

    Its sign is `signs[i]`; a unit with sign 0 has a gradient of 0. `latest` has each run's last sum [P].
    """

    coordinates: Tensor
    signs: Tensor
    latest: dict[int, Tensor] = field(default_factory=dict)

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
            self.latest.update({run: vector.clone() for run, vector in zip(rows, sums, strict=True)})
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
    """An observer of the run at `place`: the first two moments of the canaries' coordinates so far, and all noise.

    All are in standard deviations of the noise as the run declares it, whatever the loop that is audited took.
    """

    run: Run
    place: int
    sums: CanaryGradients
    seen: Tensor
    noise: ReleasedNoise
    total: Tensor
    squares: Tensor
    steps: int = 0
    numbers: int = 0
    off_lattice: int = 0

    def __call__(self, weights: Tensor, gradient: Tensor, noise_std: float) -> None:
        declared = declared_std(self.run, self.steps)
        released = gradient.double().cpu() / (declared or 1.0)
        values = released[self.seen]
        self.total += values
        self.squares += values.square()
        self.steps += 1
        if declared:
            std = declared * self.run.sampler.batch_size
            cells = released * (std / spacing(std))
            cells = cells[cells.abs() < MOST_CELLS]
            self.numbers += len(cells)
            self.off_lattice += int(((cells - cells.round()).abs() > OFF).sum())
            exact = self.sums.latest[self.place].cpu() / std
            self.noise.add((released - exact).numpy(), (exact.abs() <= LARGEST).numpy())

    def scores(self) -> GradientScores:
        steps = max(1, self.steps)
        variation = self.squares / steps - (self.total / steps).square()
        return GradientScores(
            total=self.total.numpy(),
            variation=variation.numpy(),
            numbers=self.numbers,
            off_lattice=self.off_lattice,
        )


def declared_std(run: Run, step: int) -> float:
    """The standard deviation of the noise in a step's mean gradient, by the declared multiplier, bound and schedule."""
    if not run.noise_multiplier:
        return 0.0
    scale = run.bounds.factor(step, run.steps) * noise_factor(run.bounds, step, run.steps)
    return run.noise_multiplier * run.trainer.transform.bound * scale / run.sampler.batch_size


def train_on_gradients(
    runs: Sequence[Run],
    coins: NDArray[np.bool_],
    adjacency: Adjacency,
    streams: Sequence[Streams],
    noise: ReleasedNoise,
    *,
    share: bool = False,
) -> tuple[GradientScores, ...]:
    """The scores of canaries with these coins [m] after each of these runs, which are trained together.

    The weights have the layout of `noise`, to which all noise of the runs is added. Where a record is added or removed,
    the canaries that are absent are not there. Where one is replaced, an absent canary is another record in its place,
    with the opposite gradient; all other records have gradients of 0.
    """
    layout = noise.layout
    if len(coins) > layout.numbers:
        raise ValueError(f"Expected audit.canaries={len(coins)} <= {layout.numbers}, the numbers that are trained.")
    seen = torch.from_numpy(layout.spaced(len(coins)))
    sums = _canaries(coins, seen, adjacency, runs[0].train_records)
    records = Records(features=torch.zeros(len(sums.signs), 1), labels=torch.zeros(len(sums.signs), dtype=torch.int64))
    models = [_FreeNumbers(layout) for _ in runs]
    observers = [
        _Coordinates(
            run=run,
            place=place,
            sums=sums,
            seen=seen,
            noise=noise,
            total=_zeros(len(coins)),
            squares=_zeros(len(coins)),
        )
        for place, run in enumerate(runs)
    ]
    train_observed(runs, models, sums, records, streams, observers, device="cpu", share=share)
    return tuple(one.scores() for one in observers)


def _canaries(coins: NDArray[np.bool_], places: Tensor, adjacency: Adjacency, records: int) -> CanaryGradients:
    if Adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
        present = places[torch.from_numpy(coins)]
        return CanaryGradients(coordinates=present, signs=torch.ones(len(present), dtype=torch.float64))
    if len(coins) > records:
        raise ValueError(f"Expected audit.canaries={len(coins)} <= {records}, the records that one may replace.")
    coordinates, signs = torch.zeros(records, dtype=torch.int64), torch.zeros(records, dtype=torch.float64)
    coordinates[: len(coins)] = places
    signs[: len(coins)] = torch.from_numpy(np.where(coins, 1.0, -1.0))
    return CanaryGradients(coordinates=coordinates, signs=signs)


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64)
