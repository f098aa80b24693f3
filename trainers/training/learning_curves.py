"""Learning curves: a look at a model every so many steps of its training, by public records alone, so free of charge.

What is looked at is the weights that the noisy steps led to, each of which is paid for as if it were published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.methods.transforms import GradientTransform

MOST = 10_000
"""Records of a kind that are looked at, the first ones: a curve should not take longer than the training."""

FEW = 256
"""Training records whose gradients are looked at."""

_CHUNK = 1024
_ROUNDING = 1e-5
"""By how much transforms shorten for the sake of rounding alone, and a little more."""

CurvePoint = Mapping[str, float | None]
"""Means by name, None where one is not finite."""


@dataclass(frozen=True, kw_only=True)
class CurveRecorder:
    """Looks every so many steps, and after the last one, at a model and what bounds its gradients there."""

    every: int
    look: Callable[[nn.Module, GradientTransform], CurvePoint]

    def ahead(self, step: int) -> int:
        """How many steps there are from here to the next look."""
        return self.every - step % self.every

    def due(self, step: int, steps: int) -> bool:
        """Whether to look after so many of all steps."""
        return step % self.every == 0 or step == steps


def look(
    model: nn.Module,
    transform: GradientTransform,
    *,
    data: Split,
    public: bool,
    engine: Engine,
    device: torch.device | str,
    loss: Loss = CROSS_ENTROPY,
) -> CurvePoint:
    """Accuracy and mean loss on the public test records, and on those trained on where they were declared `public`.

    Of these also what the transform does to their gradients, record by record: `mean_factor`, and `shortened`, the
    share of them that it makes shorter.
    """
    found: dict[str, float | None] = {}
    for name, records in _public_parts(data, public=public):
        quality, mean = _means(model, records, device, loss)
        found |= {f"{name}_accuracy": quality, f"{name}_loss": mean}
    return found | (
        _bounding(model, data.train, engine, Task(transform=transform, loss=loss), device) if public else {}
    )


def _public_parts(data: Split, *, public: bool) -> Iterator[tuple[str, Records]]:
    if data.test is not None and len(data.test):
        yield "test", data.test
    if public:
        yield "training", data.train


def _bounding(
    model: nn.Module, records: Records, engine: Engine, task: Task, device: torch.device | str
) -> dict[str, float | None]:
    """What becomes of the gradients of the first records."""
    part = slice(0, min(FEW, len(records)))
    _, norms = engine.weighted_sum(model, Minibatch(records.inputs(part, device), records.targets(part, device)), task)
    factors = task.transform.factors(norms)
    return {
        "mean_factor": float(factors.double().mean()),
        "shortened": float((factors * norms < norms * (1 - _ROUNDING)).double().mean()),
    }


def _means(
    model: nn.Module, records: Records, device: torch.device | str, loss: Loss
) -> tuple[float | None, float | None]:
    """The mean quality and the mean loss of the first records."""
    many, training = min(MOST, len(records)), model.training
    totals = torch.zeros(2, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for start in range(0, many, _CHUNK):
            part = slice(start, min(start + _CHUNK, many))
            outputs, targets = model(records.inputs(part, device)), records.targets(part, device)
            sums = loss.quality(outputs, targets).sum(), loss(outputs, targets)
            totals += torch.stack([one.double().cpu() for one in sums])
    model.train(training)
    quality, mean = (value if math.isfinite(value) else None for value in (totals / many).tolist())
    return quality, mean
