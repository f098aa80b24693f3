"""The bounded sum from per-example gradients that are held chunk by chunk, whatever engine computed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.gradients.layer_gradients import DenseGradient
from dpsweep.trainers.engines.gradients.micro_batches import packed
from dpsweep.trainers.engines.gradients.parameters import as_rows, gradient_norms
from dpsweep.trainers.engines.interface import Minibatch, Task

Way: TypeAlias = Callable[[Tensor, Tensor], list[Tensor]]
"""The gradients [n, ...] by each parameter, of inputs and targets of n examples."""


def bounded_sum(
    parameters: list[nn.Parameter], batch: Minibatch, task: Task, chunk: int, way: Way
) -> tuple[Tensor, Tensor]:
    """The sum [P] in float64 and the units' norms, of a batch that is not empty."""
    total = torch.cat([torch.zeros_like(parameter, dtype=torch.float64).flatten() for parameter in parameters])
    norms, each = [], partial(_each_example, task, chunk, way)
    room = None if task.block is None else chunk
    parts = each(batch) if batch.sizes is None else _each_unit(each, parameters, chunk, room, batch)
    for gradients, count in parts:
        lengths = gradient_norms(gradients)  # before any are left out: the shape depends on no record
        total += _weighted(gradients, lengths, task.transform.factors(lengths), count)
        norms.append(lengths[:count])
    return total, torch.cat(norms)


def _each_example(task: Task, chunk: int, way: Way, batch: Minibatch) -> Iterator[tuple[list[Tensor], int]]:
    """The examples' gradients, chunk by chunk, and how many of them are examples': the first ones."""
    for inputs, targets, count in batch.parts(chunk, filled=task.block is not None):
        yield way(inputs, targets), count


def _each_unit(
    each_example: Callable[[Minibatch], Iterator[tuple[list[Tensor], int]]],
    parameters: list[nn.Parameter],
    chunk: int,
    room: int | None,
    batch: Minibatch,
) -> Iterator[tuple[list[Tensor], int]]:
    """The units' gradients, pack by pack: the means of their examples', and how many units a pack has.

    They are added up by index, not by a product with a matrix of zeros and ones: zero times infinity would carry one
    unit's broken gradient into the others'. With `room` there are as many rows as units of this size would need so many
    examples.
    """
    for pack in packed(batch.sizes or (), chunk):
        units, size = len(pack.sizes), pack.sizes[0]
        rows = units if room is None else max(1, room // size)
        owners = pack.owners().to(batch.inputs.device)
        means = [parameter.new_zeros(rows, *parameter.shape) for parameter in parameters]
        for (gradients, count), owner in zip(
            each_example(batch[pack.examples]), torch.split(owners, chunk), strict=True
        ):
            for mean, gradient in zip(means, gradients, strict=True):
                mean.index_add_(0, owner, gradient[:count])
        yield [mean.div_(size) for mean in means], units


def _weighted(gradients: list[Tensor], norms: Tensor, factors: Tensor, count: int) -> Tensor:
    """The flat sum [P] of factor times gradient for the first ones, where zero times infinity is zero."""
    broken, sums = ~norms.isfinite(), []
    if broken.any():
        for gradient in gradients:
            gradient[broken] = 0
    for gradient in gradients:
        sums.append(torch.zeros(as_rows(gradient).shape[1], dtype=torch.float64, device=norms.device))
        DenseGradient(rows=as_rows(gradient)[:count]).add_to(sums[-1], factors[:count])
    return torch.cat(sums)
