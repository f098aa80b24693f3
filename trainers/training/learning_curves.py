"""Learning curves: scores of a model at regular steps of its training, on public records alone, hence free.

A curve point reads the weights after a noisy step. The price of the step assumes that these weights are published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.declarations.scores import evaluation_mode, records_per_forward_pass
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task
from dpsweep.trainers.methods.transforms import LENGTH_SHARE

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.methods.transforms import GradientTransform

MOST = 10_000
"""The number of test or training records that are scored, the first ones: a curve should cost less than training."""

FEW = 256
"""The number of training records whose gradients are measured."""

NORM_QUANTILES = {"gradient_norm_q10": 0.1, "gradient_norm_q50": 0.5, "gradient_norm_q90": 0.9}
"""The quantiles of the norms of their gradients that a curve point has, by name."""

_CHUNK = 1024
_ROUNDING = 1.1 * (1 - LENGTH_SHARE)
"""A little more than the relative amount by which transforms shorten gradients because of rounding alone."""

CurvePoint = Mapping[str, float | None]
"""Means by name; None if a mean is not finite."""


@dataclass(frozen=True, kw_only=True)
class CurveRecorder:
    """Measures a curve point every `every` steps and after the last one, from the model and its gradient transform."""

    every: int
    look: Callable[[nn.Module, GradientTransform], CurvePoint]

    def steps_to_next_point(self, step: int) -> int:
        """The number of steps from `step` to the next curve point."""
        return self.every - step % self.every

    def is_point_due(self, step: int, steps: int) -> bool:
        """Whether a curve point is due after `step` of all `steps`."""
        return step % self.every == 0 or step == steps


def measure_curve_point(
    model: nn.Module,
    transform: GradientTransform,
    *,
    data: Split,
    public: bool,
    engine: Engine,
    device: torch.device | str,
    loss: Loss = CROSS_ENTROPY,
) -> CurvePoint:
    """Accuracy and mean loss on the public test records, and on the training records if they were declared `public`.

    For public training records it adds statistics of per-example gradients: `mean_factor`, the mean factor by which
    the transform multiplies them, `shortened`, the share that becomes shorter, and the `NORM_QUANTILES`.
    """
    point: dict[str, float | None] = {}
    for name, records in _public_records_by_name(data, public=public):
        quality, mean = _mean_quality_and_loss(model, records, device, loss)
        point |= {f"{name}_accuracy": quality, f"{name}_loss": mean}
    return point | (
        _gradient_bounding_statistics(model, data.train, engine, Task(transform=transform, loss=loss), device)
        if public
        else {}
    )


def _public_records_by_name(data: Split, *, public: bool) -> Iterator[tuple[str, Records]]:
    if data.test is not None and len(data.test):
        yield "test", data.test
    if public:
        yield "training", data.train


def _gradient_bounding_statistics(
    model: nn.Module, records: Records, engine: Engine, task: Task, device: torch.device | str
) -> dict[str, float | None]:
    """Statistics of the gradients of the first records, and of what the transform does to them."""
    part = slice(0, min(FEW, len(records)))
    _, norms = engine.bounded_gradient_sum_and_norms(
        model, Minibatch(records.inputs(part, device), records.targets(part, device)), task
    )
    factors = task.transform.factors(norms)
    quantiles = torch.quantile(norms.double(), norms.new_tensor(list(NORM_QUANTILES.values()), dtype=torch.float64))
    return {
        **{name: _finite_or_none(value) for name, value in zip(NORM_QUANTILES, quantiles.tolist(), strict=True)},
        "mean_factor": float(factors.double().mean()),
        "shortened": float((factors * norms < norms * (1 - _ROUNDING)).double().mean()),
    }


def _mean_quality_and_loss(
    model: nn.Module, records: Records, device: torch.device | str, loss: Loss
) -> tuple[float | None, float | None]:
    """The mean quality and the mean loss of the first records."""
    count = min(MOST, len(records))
    size = records_per_forward_pass(model, records.input_shape, tuple(records.labels.shape[1:]), device, _CHUNK)
    totals = torch.zeros(2, dtype=torch.float64)
    with evaluation_mode(model):
        for start in range(0, count, size):
            part = slice(start, min(start + size, count))
            outputs, targets = model(records.inputs(part, device)), records.targets(part, device)
            sums = loss.quality(outputs, targets).sum(), loss(outputs, targets)
            totals += torch.stack([value.double().cpu() for value in sums])
    quality, mean = map(_finite_or_none, (totals / count).tolist())
    return quality, mean


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
