"""Engines that a test sends to other processes: exact ones, and ones with a planted fault."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task


@dataclass(frozen=True)
class InFloat64:
    """An engine on inputs in float64, for models in float64."""

    engine: type[Engine] = Fused
    stacks: ClassVar[bool] = False

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        return self.engine().bounded_gradient_sum_and_norms(model, replace(batch, inputs=batch.inputs.double()), task)


@dataclass(frozen=True)
class WithNoise(InFloat64):
    """Adds noise wherever it computes a sum, so once for each process."""

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        total, norms = super().bounded_gradient_sum_and_norms(model, batch, task)
        generator = torch.Generator().manual_seed(len(batch))
        return total + 0.2 * torch.randn(total.shape, generator=generator, dtype=total.dtype), norms


@dataclass(frozen=True)
class EndsElsewhere(InFloat64):
    """Ends every process that another one started."""

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        if multiprocessing.parent_process() is not None:
            raise SystemExit(7)
        return super().bounded_gradient_sum_and_norms(model, batch, task)
