"""The bounded sum from per-example gradients in memory, chunk by chunk, for the engines that compute them."""

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

ChunkGradients: TypeAlias = Callable[[Tensor, Tensor], list[Tensor]]
"""Maps inputs and targets of n examples to the gradients [n, ...] by each parameter."""


def bounded_sum(
    parameters: list[nn.Parameter], batch: Minibatch, task: Task, chunk: int, compute: ChunkGradients
) -> tuple[Tensor, Tensor]:
    """The sum [P] in float64 and the units' norms, for a non-empty batch."""
    total = torch.cat([torch.zeros_like(parameter, dtype=torch.float64).flatten() for parameter in parameters])
    norms, per_example = [], partial(_per_example, task, chunk, compute)
    room = None if task.block is None else chunk
    parts = per_example(batch) if batch.sizes is None else _per_unit(per_example, parameters, chunk, room, batch)
    for gradients, count in parts:
        lengths = gradient_norms(gradients)  # of all rows, padding included: the shape depends on no record
        total += _weighted(gradients, lengths, task.transform.factors(lengths), count)
        norms.append(lengths[:count])
    return total, torch.cat(norms)


def _per_example(
    task: Task, chunk: int, compute: ChunkGradients, batch: Minibatch
) -> Iterator[tuple[list[Tensor], int]]:
    """The examples' gradients, chunk by chunk, and the number of examples; further rows are padding."""
    for inputs, targets, count in batch.parts(chunk, filled=task.block is not None):
        yield compute(inputs, targets), count


def _per_unit(
    per_example: Callable[[Minibatch], Iterator[tuple[list[Tensor], int]]],
    parameters: list[nn.Parameter],
    chunk: int,
    room: int | None,
    batch: Minibatch,
) -> Iterator[tuple[list[Tensor], int]]:
    """The units' gradients, one micro-batch at a time: the means over their examples, and the number of units.

    Gradients are summed by index, not by a product with a matrix of zeros and ones: zero times infinity would carry a
    unit's non-finite gradient into other units. `room`, a fixed number of examples, determines the number of rows.
    """
    for micro_batch in packed(batch.sizes or (), chunk):
        units, size = len(micro_batch.sizes), micro_batch.sizes[0]
        rows = units if room is None else max(1, room // size)
        owners = micro_batch.owners().to(batch.inputs.device)
        means = [parameter.new_zeros(rows, *parameter.shape) for parameter in parameters]
        for (gradients, count), owner in zip(
            per_example(batch[micro_batch.examples]), torch.split(owners, chunk), strict=True
        ):
            for mean, gradient in zip(means, gradients, strict=True):
                mean.index_add_(0, owner, gradient[:count])
        yield [mean.div_(size) for mean in means], units


def _weighted(gradients: list[Tensor], norms: Tensor, factors: Tensor, count: int) -> Tensor:
    """The flat sum [P] of factor times gradient over the first `count` rows; non-finite gradients count as zero."""
    non_finite, sums = ~norms.isfinite(), []
    if non_finite.any():
        for gradient in gradients:
            gradient[non_finite] = 0
    for gradient in gradients:
        sums.append(torch.zeros(as_rows(gradient).shape[1], dtype=torch.float64, device=norms.device))
        DenseGradient(rows=as_rows(gradient)[:count]).add_to(sums[-1], factors[:count])
    return torch.cat(sums)
