"""Each example's gradient by a backward pass of its own: slow, and what every quicker way is compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.gradients.parameters import as_rows, trainable
from dpsweep.trainers.engines.gradients.self_check import moved
from dpsweep.trainers.models.checks.probe_inputs import draw_probes

PROBES = 3
_SEED = 20160701
_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-8}
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-12}

PerExample: TypeAlias = Callable[[nn.Module, list[nn.Parameter], Tensor, Tensor, Loss], list[Tensor]]
"""Computes the gradients [n, ...] by each of these parameters of the losses of n examples."""


def rows_alone(
    model: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] by each parameter, one example after another; zero where the model does not use it."""
    rows = [parameter.new_zeros(len(inputs), *parameter.shape) for parameter in parameters]
    with torch.enable_grad():
        for place in range(len(inputs)):
            own = loss(model(inputs[place : place + 1]), targets[place : place + 1])
            if own.requires_grad:
                gradients = torch.autograd.grad(own, parameters, materialize_grads=True)
                for row, gradient in zip(rows, gradients, strict=True):
                    row[place] = gradient.to_dense() if gradient.is_sparse else gradient
    return rows


def agrees(model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample) -> bool:
    """Whether `per_example` has the gradients of single examples right, of random inputs like these.

    The model is in training mode. What `per_example` raises is raised.
    """
    generator = torch.Generator().manual_seed(_SEED)
    probes = draw_probes(model, generator, PROBES, *inputs.shape[1:], kind=inputs.dtype).to(inputs)
    parameters = trainable(model)
    with torch.no_grad():
        targets = loss.unlikely(torch.cat([model(probe[None]) for probe in probes]))
    alone = rows_alone(model, parameters, probes, targets, loss)
    return _same(per_example(model, parameters, probes, targets, loss), alone)


def agrees_in_float64(model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample) -> bool:
    """The same of a copy of the model in float64, with other weights: where weights are zero, mistakes hide."""
    twin = moved(copy.deepcopy(model).to("cpu", torch.float64).train(), torch.Generator().manual_seed(_SEED))
    alike = torch.zeros(0, *inputs.shape[1:], dtype=torch.float64 if inputs.is_floating_point() else inputs.dtype)
    return agrees(twin, alike, loss, per_example)


def _same(rows: Sequence[Tensor], alone: Sequence[Tensor]) -> bool:
    """Whether every example's gradient by every parameter is the same, up to rounding."""
    kind = alone[0].dtype
    exact = torch.stack([as_rows(row).norm(dim=1) for row in alone]).norm(dim=0)
    for row, own in zip(rows, alone, strict=True):
        if row.shape != own.shape:
            return False
        apart, length = as_rows(row - own).norm(dim=1), as_rows(own).norm(dim=1)
        if not bool((apart <= _CLOSE[kind] * length + _NOISE[kind] * (1 + exact)).all()):
            return False
    return True
