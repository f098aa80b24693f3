"""Per-example gradients by one backward pass per example: the slow reference for all faster algorithms."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.gradients.parameters import as_rows, trainable
from dpsweep.trainers.models.checks.probe_inputs import draw_probes

PROBES = 3
_SEED = 20160701
_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-8}
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-12}

PerExample: TypeAlias = Callable[[nn.Module, list[nn.Parameter], Tensor, Tensor, Loss], list[Tensor]]
"""Computes the gradients [n, ...] of the losses of n examples, by each of these parameters."""


def rows_alone(
    model: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] by each parameter, one example after another; zero for an unused parameter."""
    rows = [parameter.new_zeros(len(inputs), *parameter.shape) for parameter in parameters]
    with torch.enable_grad():
        for place in range(len(inputs)):
            example_loss = loss(model(inputs[place : place + 1]), targets[place : place + 1])
            if example_loss.requires_grad:
                gradients = torch.autograd.grad(example_loss, parameters, materialize_grads=True)
                for row, gradient in zip(rows, gradients, strict=True):
                    row[place] = gradient.to_dense() if gradient.is_sparse else gradient
    return rows


def agrees(model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample) -> bool:
    """Whether `per_example` gives correct per-example gradients, for random inputs of this shape and dtype.

    The model is in training mode. Errors of `per_example` are not caught.
    """
    generator = torch.Generator().manual_seed(_SEED)
    probes = draw_probes(model, generator, PROBES, *inputs.shape[1:], kind=inputs.dtype).to(inputs)
    parameters = trainable(model)
    with torch.no_grad():
        targets = loss.unlikely(torch.cat([model(probe[None]) for probe in probes]))
    expected = rows_alone(model, parameters, probes, targets, loss)
    return _same(per_example(model, parameters, probes, targets, loss), expected)


def agrees_in_float64(model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample) -> bool:
    """The same check for a float64 copy of the model with perturbed weights: zero weights could hide errors."""
    twin = perturb(copy.deepcopy(model).to("cpu", torch.float64).train(), torch.Generator().manual_seed(_SEED))
    like = torch.zeros(0, *inputs.shape[1:], dtype=torch.float64 if inputs.is_floating_point() else inputs.dtype)
    return agrees(twin, like, loss, per_example)


def perturb(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Adds uniform noise to the model's weights, in the range of torch's default initialisation."""
    with torch.no_grad():
        for parameter in trainable(model):
            limit = 1 / math.sqrt(parameter[0].numel() if parameter.ndim else 1)
            parameter.add_(torch.empty_like(parameter).uniform_(-limit, limit, generator=generator))
    return model


def _same(gradients: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether every example's gradient by every parameter is the same, up to rounding."""
    dtype = expected[0].dtype
    exact = torch.stack([as_rows(rows).norm(dim=1) for rows in expected]).norm(dim=0)
    for rows, expected_rows in zip(gradients, expected, strict=True):
        if rows.shape != expected_rows.shape:
            return False
        error, length = as_rows(rows - expected_rows).norm(dim=1), as_rows(expected_rows).norm(dim=1)
        if not bool((error <= _CLOSE[dtype] * length + _NOISE[dtype] * (1 + exact)).all()):
            return False
    return True
