"""What ran, computed again: sums of bounded gradients, batches, noise and scores, compared with what was declared.

*Sums.* The model is trained on generated records by the loop, engine, sampler and method of every run. In drawn steps
each sum is compared with a loop that takes one unit after another, in float64, by automatic differentiation alone, and
bounds its gradient by the formula of the method's paper; and the engine sums again with a unit added, removed or
replaced, which may move the sum by the declared bound. Both also with clipping at the median length of these gradients.

*Noise.* The reader sees the noisy means. Each, times the declared batch size, minus the exact sum, over the declared
standard deviation is collected for the tests of `dpsweep.accounting.audit.noise_law`; two runs are trained
together, so that what they share is seen. *Batches* are compared with the law of the declared sampler.

*Scores.* The released counts are compared with those of a loop over single records, without their noise, and their
noise is collected too.

This module uses the loop's and the engines' interfaces, and none of their computations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from dpsweep.accounting.audit.noise_law import ReleasedNoise
from dpsweep.accounting.audit.record import Compared
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.split import Split
from dpsweep.trainers.declarations.batch_sampling import CyclicPoisson
from dpsweep.trainers.declarations.clip_schedules import noise_multiplier_factor_at_step
from dpsweep.trainers.declarations.losses import CrossEntropy, Loss
from dpsweep.trainers.declarations.scores import Score, evaluation_mode
from dpsweep.trainers.engines.interface import trainable_parameters
from dpsweep.trainers.methods.transforms import Clip, GradientTransform, Normalize
from dpsweep.trainers.randomness import Streams, lattice_spacing
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import Sum, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

ROUNDING = 2e-3
"""The share of the bound by which a bounded gradient may differ from the loop's.

Half of it is what transforms take off the bound for rounding, and half is for float32.
"""

GRADIENTS = 400
"""About so many gradients of each method are computed one by one, and no more than twice as many."""

LARGEST = 1e30
"""What stands for a length that is not finite."""

RESOLVED = 1e3
"""Noise is compared where the sum is below so many of its standard deviations: float32 rounds that by 1e-4 of one."""

MOST_CELLS, OFF = 2**15, 0.02
"""Numbers of fewer cells of the lattice are checked; float32 rounds them by less than `OFF` cells."""


def declared_bound(transform: GradientTransform) -> float:
    """The longest bounded gradient, by the papers' formulas; a transform of the user's own declares it."""
    if isinstance(transform, Clip):
        return float(transform.clip_norm)
    return 1.0 if isinstance(transform, Normalize) else transform.norm_bound


def declared_std(run: Run, step: int) -> float:
    """The standard deviation of the noise in a step's mean gradient, by the declared multiplier, bound and schedule."""
    if not run.noise_multiplier:
        return 0.0
    factor = run.bounds.factor(step, run.steps) * noise_multiplier_factor_at_step(run.bounds, step, run.steps)
    return run.noise_multiplier * declared_bound(run.trainer.transform) * factor / run.sampler.batch_size


def bounded_length(length: float, transform: GradientTransform, shrink: float) -> float:
    """The length after the transform, at `shrink` times its bound, of a gradient of this length.

    Source: Abadi et al. 2016, Algorithm 1 (clipping); Yang et al. 2022, Algorithm 1 (normalization).
    """
    if not np.isfinite(length):
        return 0.0
    if isinstance(transform, Clip):
        return min(length, transform.clip_norm * shrink)
    if isinstance(transform, Normalize):
        return length / (transform.regularizer + length)
    factor = transform.with_smaller_bound(shrink).factors(torch.tensor([length], dtype=torch.float64))
    return length * float(factor[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Loop:
    """Gradients and predictions of one unit after another, by a copy of the model, in float64 if it can."""

    model: nn.Module
    records: Records
    loss: Loss
    device: torch.device | str

    @classmethod
    def copying(cls, model: nn.Module, records: Records, loss: Loss, device: torch.device | str) -> Loop:
        """A loop over these records; the model stays as it is."""
        exact = copy.deepcopy(model).to(device=device, dtype=torch.float64)
        try:
            exact(records.inputs(slice(0, 1), device).double())
        except RuntimeError:  # a model of the user's own may hold float32 numbers
            exact = copy.deepcopy(model).to(device)
        return cls(model=exact, records=records, loss=loss, device=device)

    def rows(self, unit: int) -> NDArray[np.int64]:
        """The records of a unit."""
        units = self.records.units
        return np.array([unit]) if units is None else np.flatnonzero(units.of == unit)

    def outputs(self, row: int) -> tuple[Tensor, Tensor]:
        """The model's outputs for one record, and its target."""
        index = np.array([row])
        dtype = trainable_parameters(self.model)[0].dtype
        return self.model(self.records.inputs(index, self.device).to(dtype)), self.records.targets(index, self.device)

    def gradients(self, weights: Tensor, units: NDArray[np.int64]) -> Iterator[tuple[Tensor, float]]:
        """The gradient [P] of each unit, the mean over its records, and what its bounded gradient is multiplied by."""
        parameters = trainable_parameters(self.model)
        vector_to_parameters(weights.detach().to(parameters[0].dtype, copy=True), parameters)
        shares = self.loss.class_weights if isinstance(self.loss, CrossEntropy) else None
        loss = replace(self.loss, class_weights=None) if isinstance(self.loss, CrossEntropy) else self.loss
        for unit in units:
            total, factors = torch.zeros(len(weights), dtype=torch.float64, device=weights.device), []
            for row in self.rows(unit):
                outputs, target = self.outputs(row)
                parts = torch.autograd.grad(loss(outputs, target), parameters, allow_unused=True)
                grown = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, parameters, strict=True)]
                total += torch.cat([one.flatten() for one in grown]).double()
                factors.append(1.0 if shares is None else shares[int(target)] / max(shares))
            yield total / len(factors), float(np.mean(factors))

    def qualities(self, function: Any) -> NDArray[np.float64]:
        """The value of `function` on each record's outputs and target, one record alone at a time."""
        with evaluation_mode(self.model):
            return np.array([float(function(*self.outputs(row))[0]) for row in range(len(self.records))])


@dataclass(kw_only=True, eq=False)
class Watch:
    """Watches trainings of runs that are trained together: their sums, which pass through it, and their noisy means.

    In the steps `compared`, counted over all trainings, sums are compared with a loop.
    """

    runs: Sequence[Run]
    loops: Sequence[Loop]
    compared: frozenset[int]
    noise: ReleasedNoise
    share: bool
    seen: int = 0
    gradients: int = 0
    sums: int = 0
    farthest: float = 0.0
    moved: float = 0.0
    moves: int = 0
    numbers: int = 0
    off_lattice: int = 0
    unresolved: int = 0
    batches: list[list[list[NDArray[np.int64]]]] = field(default_factory=list)
    dither: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _over: Callable[..., Sum] = field(init=False)
    _exact: dict[int, Tensor] = field(default_factory=dict)
    _history: dict[int, list[NDArray[np.float64]]] = field(default_factory=dict)

    def train(
        self, models: Sequence[nn.Module], sums: Sums, records: Records, streams: Sequence[Streams], steps: int
    ) -> None:
        """Trains the models for about so many steps, and watches."""
        self._over, begin, device = sums.over, self.seen, self.loops[0].device
        self._history = {row: [] for row in range(len(self.runs))}
        self.batches.append([[] for _ in self.runs])
        train_together(
            *(self.runs, models, self, records, streams),
            device=device,
            share=self.share,
            observe=self._observe,
            should_stop=lambda: self.seen - begin >= steps,
        )

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The inner sums over these runs."""
        inner = self._over(rows, transforms)

        def watched(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            sums: Tensor = inner(weights, batch, shrink)
            self._exact = dict(zip(rows, sums.detach().clone(), strict=True))
            for row, one in zip(rows, _units_of_runs(batch), strict=True):
                self.batches[-1][row].append(one)
            if self.seen in self.compared and self.gradients < 2 * GRADIENTS:
                self._compare(rows, weights.clone(), batch, (inner, transforms, shrink))
            self.seen += 1
            return sums

        return watched

    def _compare(self, rows: Sequence[int], weights: Tensor, batch: Batch, given: tuple[Any, ...]) -> None:
        """Compares a step's sums with a loop, and with those of a batch of which one unit differs."""
        units, replaces = _units_of_runs(batch), self.runs[0].adjacency is Adjacency.REPLACE_ONE
        gradients = [list(self.loops[row].gradients(weights[k], units[k])) for k, row in enumerate(rows)]
        self.gradients += sum(map(len, units))
        lengths = np.array([float(one.norm()) for each in gradients for one, _ in each])
        middle = float(np.median(lengths[np.isfinite(lengths)])) if np.isfinite(lengths).any() else 1.0
        probe = [Clip(clip_norm=min(max(middle, 2.0**-20), 2.0**20))] * len(rows)
        free = np.setdiff1d(np.arange(self.loops[0].records.number_of_units), np.concatenate(units))[:1]
        others = [[one[:-1] for one in units]]
        others += [[np.append(one[:-1] if replaces else one, free) for one in units]] if len(free) else []
        for inner, transforms, shrink in (given, (self._over(rows, probe), probe, 1.0)):
            sums = inner(weights, batch, shrink).double()
            for k, transform in enumerate(transforms):
                exact = torch.zeros_like(sums[k])
                for gradient, factor in gradients[k]:
                    length = float(gradient.norm())
                    bounded = bounded_length(length, transform, shrink)
                    exact += gradient * (factor * bounded / length) if bounded else 0.0
                bound = declared_bound(transform) * shrink if declared_bound(transform) < np.inf else max(1.0, middle)
                far = _finite((sums[k] - exact).norm()) / (bound * max(1, len(units[k])))
                self.sums, self.farthest = self.sums + 1, max(self.farthest, far)
            for other in others:
                moves = (inner(weights, _batch_of(batch, other), shrink).double() - sums).norm(dim=1)
                for k, transform in enumerate(transforms):
                    most = declared_bound(transform) * shrink * (2 if len(other[k]) == len(units[k]) else 1)
                    self.moves, self.moved = self.moves + 1, max(self.moved, _finite(moves[k]) / most)

    def _observe(self, rows: Sequence[int], step: int, means: Tensor) -> None:
        """Collects the noise in these means."""
        drawn: dict[str, NDArray[np.float64]] = {}
        for row, mean in zip(rows, means, strict=True):
            run, std = self.runs[row], declared_std(self.runs[row], step) * self.runs[row].sampler.batch_size
            if not std:
                continue
            released, coefficients = mean.double().cpu().numpy() * run.sampler.batch_size / std, run.noise_coefficients
            exact = self._exact[row].double().cpu().numpy() / std
            cells = coefficients[0] * released * (std / lattice_spacing(std))
            cells = cells[np.abs(cells) < MOST_CELLS]
            self.numbers += len(cells)
            self.off_lattice += int((np.abs(cells - np.rint(cells)) > OFF).sum())
            self._history[row] = [released - exact, *self._history[row]][: len(coefficients)]
            noise = np.array(coefficients[: len(self._history[row])]) @ np.array(self._history[row])
            # a uniform number for each cell makes the law continuous, and adds as much variance as rounding does
            cell = lattice_spacing(std) / std
            noise = (noise + cell * self.dither.uniform(-0.5, 0.5, len(noise))) / np.sqrt(1 + cell**2 / 6)
            if np.abs(exact).max(initial=0.0) > RESOLVED:
                self.unresolved += 1
                continue
            self.noise.add(noise, {"the sums": exact, **drawn})
            drawn = {"another run's noise": noise}

    def comparisons(self) -> Iterator[Compared]:
        """What was seen."""
        if self.sums:
            yield Compared(
                name="sums against a float64 loop",
                compared=self.sums,
                value=self.farthest,
                expected=f"<= {ROUNDING:g}",
                holds=self.farthest <= ROUNDING,
            )
            yield Compared(
                name="sums with another unit",
                compared=self.moves,
                value=self.moved,
                expected="<= 1",
                holds=self.moved <= 1,
            )
        yield self._batch_law()
        if self.numbers:
            yield Compared(
                name="noise on its lattice",
                compared=self.numbers,
                value=float(self.off_lattice),
                expected="0",
                holds=not self.off_lattice,
            )
        yield from self.noise.tests()

    def _batch_law(self) -> Compared:
        """How often units take part, in all and each alone, and in how many steps of one period and the next one.

        In a period each unit takes part at most once, by a coin of its own: of probability 1 where every unit takes
        part in a drawn step. Binomial tails hold for batches of fixed size too, whose counts vary less.
        """
        run, available = self.runs[0], self.loops[0].records.number_of_units
        period = run.steps_per_period
        cyclic = isinstance(run.sampler, CyclicPoisson)
        rate = min(1.0, period * run.sampler.batch_size / run.train_records) if period == 1 or cyclic else 1.0
        again = rate**2 if period == 1 or cyclic else 1 / period
        trainings = [runs[:1] if self.share else runs for runs in self.batches]
        streams = [batches for runs in trainings for batches in runs]
        each = np.bincount(np.concatenate([one for batches in streams for one in batches]), minlength=available)
        periods = sum(len(batches) // period for batches in streams)
        later = [pair for batches in streams for pair in zip(batches, batches[period:], strict=False)]
        others = [pair for runs in trainings for both in pairwise(runs) for pair in zip(*both, strict=True)]
        common, between = (sum(len(np.intersect1d(*pair)) for pair in pairs) for pairs in (later, others))
        once = all(
            len(np.unique(part)) == len(part)
            for batches in streams
            for part in (np.concatenate(batches[at : at + period]) for at in range(0, len(batches), period))
        )
        tested = {
            "participations of all units": (each.sum(), periods * available, rate),
            **{f"participations of unit {unit}": (count, periods, rate) for unit, count in enumerate(each)},
            "units in a step and one period later": (common, len(later) * available // period, again),
            "units in a step of two runs": (between, len(others) * available // period, again),
        }
        p_values = {
            name: 2 * min(binom.cdf(count, trials, chance), binom.sf(count - 1, trials, chance))
            for name, (count, trials, chance) in tested.items()
        }
        worst = min(p_values, key=lambda name: p_values[name])
        count, trials, chance = tested[worst]
        return Compared(
            name="batches",
            compared=len(tested),
            value=float(count),
            expected=f"{trials * chance:.4g}",
            place=worst if once else f"{worst}, and some unit comes twice",
            p_value=min(1.0, len(tested) * float(p_values[worst])) if once else 0.0,
        )


def _finite(length: Tensor) -> float:
    return float(length.nan_to_num(nan=LARGEST, posinf=LARGEST))


def _units_of_runs(batch: Batch) -> list[NDArray[np.int64]]:
    """The units of each run's batch."""
    if batch.common:
        return [batch.units] * len(batch.sizes)
    return np.split(batch.units, np.cumsum(batch.sizes)[:-1])


def _batch_of(batch: Batch, units: Sequence[NDArray[np.int64]]) -> Batch:
    """The same batch with these units of each run."""
    joined = units[0] if batch.common else np.concatenate(units)
    return replace(batch, units=joined, sizes=np.array([len(one) for one in units]))


class Silent(np.random.Generator):
    """A generator without normal noise: what a score releases then is exact."""

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        """Zeros."""
        return np.zeros(size)


def compare_scores(
    score: Score, model: nn.Module, data: Split, loop: Loop, std: float | None, streams: Streams, times: int
) -> Iterator[Compared]:
    """Measures a model `times`, and compares what is released with a loop over the records of `loop`.

    Those are the ones that the score was charged for, or that were declared public. `std` is the noise of each count
    that was charged, None where the score is free and exact.
    """
    metric, records, device = score.measured, loop.records, loop.device
    released = slice(1, None) if std is not None else slice(1)

    def measured(split: Split, rng: np.random.Generator) -> NDArray[np.float64]:
        estimate = score.measure(model, split, rng, device, loop.loss)
        return np.array([estimate.value, *estimate.counts])

    weights = records.weight_of_each_record_in_unit if std is not None else np.ones(len(records))
    if metric is None:
        shares = loop.qualities(loop.loss.quality)
        exact = np.array([weights @ shares, weights @ (1 - shares)])
        value = exact[0] / len(records)
    else:
        size = metric.number_of_cells(int(loop.outputs(0)[0].shape[1]))
        cells = loop.qualities(metric.cell_indices).astype(np.int64)
        exact = np.bincount(cells, weights=weights, minlength=size).astype(np.float64)
        value = metric.estimate(exact, 0.0).value
    exact = exact if std is not None else np.array([value])
    quiet, slack = measured(data, Silent(np.random.Philox(0))), 1e-4 * len(records) + lattice_spacing(std or 0.0)
    alike = quiet[released].shape == exact.shape
    far = float(np.abs(quiet[released] - exact).max()) if alike else float(len(records))
    yield Compared(
        name="score against a loop",
        compared=len(exact),
        value=far,
        expected=f"<= {slack:.2g}",
        holds=far <= slack,
    )
    if records is not data.train:
        other = replace(data, train=data.train.select(slice(0, 0)))
        far = float(np.abs(measured(other, Silent(np.random.Philox(0))) - quiet).max())
        yield Compared(
            name="score without training records",
            compared=len(quiet),
            value=far,
            expected="0",
            holds=far == 0,
        )
    if std is not None and alike:
        noise = ReleasedNoise(kind="score noise", names=("count",), sizes=(len(exact),))
        for _ in range(times):
            noise.add((measured(data, streams.score)[released] - exact) / std, {"the counts": exact})
        yield from noise.tests()
