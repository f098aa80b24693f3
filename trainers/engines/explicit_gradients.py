"""Per-example gradients in memory: one backward pass per example as the slow reference, and the bounded sum.

The reference checks all faster algorithms. The sum is computed chunk by chunk, for the engines that compute explicit
gradients.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsweep.trainers.data.places import BLANK, spread_over_places
from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.interface import (
    Minibatch,
    Pass,
    Task,
    automatic_chunk_size,
    gradients_as_rows,
    per_example_gradient_norms,
    require_exact_float32_products,
    trainable_parameters,
    units_at_once,
)
from dpsweep.trainers.engines.layer_gradients import DenseGradient
from dpsweep.trainers.models.checks import draw_probes

PROBES = 3
_SEED = 20160701
_CLOSE = {torch.float32: 1e-3, torch.float64: 1e-8}
_NOISE = {torch.float32: 1e-5, torch.float64: 1e-12}

PerExample: TypeAlias = Callable[[nn.Module, list[nn.Parameter], Tensor, Tensor, Loss], list[Tensor]]
"""Computes the gradients [n, ...] of the losses of n examples, by each of these parameters."""


def per_example_gradients_by_loop(
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


def is_gradient_algorithm_correct(model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample) -> bool:
    """Whether `per_example` gives correct per-example gradients, for random inputs of this shape and dtype.

    The model is in training mode. Errors of `per_example` are not caught.
    """
    generator = torch.Generator().manual_seed(_SEED)
    probes = draw_probes(model, generator, PROBES, *inputs.shape[1:], kind=inputs.dtype).to(inputs)
    parameters = trainable_parameters(model)
    with torch.no_grad():
        targets = loss.unlikely_targets(torch.cat([model(probe[None]) for probe in probes]))
    gradients = per_example(model, parameters, probes, targets, loss)
    if any(len(rows) != PROBES for rows in gradients):
        return False
    each = (slice(place, place + 1) for place in range(PROBES))  # one example's exact gradient at a time is in memory
    return all(
        _are_gradients_close(
            [rows[one] for rows in gradients],
            per_example_gradients_by_loop(model, parameters, probes[one], targets[one], loss),
        )
        for one in each
    )


def is_gradient_algorithm_correct_in_float64(
    model: nn.Module, inputs: Tensor, loss: Loss, per_example: PerExample
) -> bool:
    """The same check for a float64 copy of the model with perturbed weights: zero weights could hide errors."""
    twin, generator = copy.deepcopy(model).to("cpu", torch.float64).train(), torch.Generator().manual_seed(_SEED)
    with torch.no_grad():
        for parameter in trainable_parameters(twin):
            limit = 1 / math.sqrt(parameter[0].numel() if parameter.ndim else 1)  # as torch draws initial weights
            parameter.add_(torch.empty_like(parameter).uniform_(-limit, limit, generator=generator))
    like = torch.zeros(0, *inputs.shape[1:], dtype=torch.float64 if inputs.is_floating_point() else inputs.dtype)
    return is_gradient_algorithm_correct(twin, like, loss, per_example)


def _are_gradients_close(gradients: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether every example's gradient by every parameter is the same, up to rounding."""
    dtype = expected[0].dtype
    exact = torch.stack([gradients_as_rows(rows).norm(dim=1) for rows in expected]).norm(dim=0)
    for rows, expected_rows in zip(gradients, expected, strict=True):
        if rows.shape != expected_rows.shape:
            return False
        error, length = (
            gradients_as_rows(rows - expected_rows).norm(dim=1),
            gradients_as_rows(expected_rows).norm(dim=1),
        )
        if not bool((error <= _CLOSE[dtype] * length + _NOISE[dtype] * (1 + exact)).all()):
            return False
    return True


def bounded_gradient_sum_and_norms(
    model: nn.Module, batch: Minibatch, task: Task, gradients_of_examples: PerExample
) -> tuple[Tensor, Tensor]:
    """The sum [P] in float64 and the units' norms, from explicit gradients in chunks."""
    require_exact_float32_products()
    parameters = trainable_parameters(model)
    total = torch.cat([torch.zeros_like(parameter, dtype=torch.float64).flatten() for parameter in parameters])
    if len(batch) == 0:
        return total, parameters[0].new_zeros(0)

    if batch.filled is None:
        most = columns = task.chunk or automatic_chunk_size(model, batch.inputs[0])
    else:
        most, columns = units_at_once(model, batch.inputs[0], task.chunk)
    norms = []

    def of_examples(inputs: Tensor, targets: Tensor) -> list[Tensor]:
        return gradients_of_examples(model, parameters, inputs, targets, task.loss)

    for part in batch.iterate_passes(most):
        if part.filled is None:
            gradients = of_examples(part.inputs[0], part.targets[0])
        else:
            gradients = _mean_gradients_at_places(part, part.filled, columns, parameters, of_examples)
        lengths = per_example_gradient_norms(gradients)
        factors = task.transform.factors(lengths) * part.weights.to(lengths.dtype)
        total += _weighted_gradient_sum(gradients, lengths, factors)
        norms.append(lengths)
    return total, torch.cat(norms)[: len(batch)]


def _mean_gradients_at_places(
    part: Pass,
    filled: Tensor,
    columns: int,
    parameters: Sequence[nn.Parameter],
    gradients: Callable[[Tensor, Tensor], list[Tensor]],
) -> list[Tensor]:
    """The mean gradients of the units at all places [places, ...], whose examples are added up in their order."""
    places = filled.shape[1]
    inputs, targets = part.inputs.flatten(0, 1), part.targets.flatten(0, 1)
    sums = [parameter.new_zeros(places + 1, *parameter.shape) for parameter in parameters]  # the last one of blanks
    for index in _examples_in_columns(filled.cpu().numpy(), min(places, columns)):
        used = torch.from_numpy(index[index != BLANK]).to(inputs.device)
        owners = torch.from_numpy(np.where(index == BLANK, places, index % places)).to(inputs.device)
        rows = gradients(*(spread_over_places(values[used], index) for values in (inputs, targets)))
        for total, gradient in zip(sums, rows, strict=True):
            total.index_add_(0, owners, gradient)
    counts = filled.sum(dim=0).clamp(min=1)
    return [total[:-1].div_(counts.view(-1, *[1] * (total.ndim - 1)).to(total.dtype)) for total in sums]


def _examples_in_columns(filled: NDArray[np.bool_], columns: int) -> NDArray[np.int64]:
    """The examples in the filled ones of all slots [slots, places], in passes of so many columns: [passes, columns].

    All examples of a unit are in one column, which its place alone decides. Another unit there shifts them to other
    passes, which are alike, and to no other column: their gradients keep their bits.
    """
    place, slot = np.nonzero(filled.T)
    by_column = np.argsort(place % columns, kind="stable")
    place, slot = place[by_column], slot[by_column]
    counts = np.bincount(place % columns, minlength=columns)
    ranks = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    passes = np.full((counts.max(), columns), BLANK)
    passes[ranks, place % columns] = slot * filled.shape[1] + place
    return passes


def _weighted_gradient_sum(gradients: list[Tensor], norms: Tensor, factors: Tensor) -> Tensor:
    """The flat sum [P] of factor times gradient; non-finite gradients count as zero."""
    non_finite, sums = ~norms.isfinite(), []
    if non_finite.any():
        for gradient in gradients:
            gradient[non_finite] = 0
    for gradient in gradients:
        sums.append(torch.zeros(gradients_as_rows(gradient).shape[1], dtype=torch.float64, device=norms.device))
        DenseGradient(rows=gradients_as_rows(gradient)).add_weighted_sum_to(sums[-1], factors)
    return torch.cat(sums)
