"""Per-example gradients by Opacus' hooks: any module that Opacus supports. The only door to opacus."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from opacus import GradSampleModule
from torch import Tensor, nn

from trainers.engines.chunks import automatic_chunk
from trainers.engines.engine import Minibatch, Task
from trainers.engines.gradients import gradient_norms, require_exact_products, trainable
from trainers.engines.held import Rows
from trainers.engines.packs import packed
from trainers.losses import Loss


@dataclass(frozen=True, kw_only=True)
class Opacus:
    """The engine on Opacus' GradSampleModule, which holds one gradient per example of a chunk.

    Source: Yousefpour et al. 2021, Opacus.
    """

    stacks: ClassVar[bool] = False

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, from gradients that are held chunk by chunk."""
        require_exact_products()
        parameters = trainable(model)
        total = torch.cat([torch.zeros_like(parameter, dtype=torch.float64).flatten() for parameter in parameters])
        if len(batch) == 0:
            return total, parameters[0].new_zeros(0)
        chunk = task.at_once(automatic_chunk(model, batch.inputs[0]))
        norms = []
        with _hooked(model) as hooked:
            each = partial(_each_example, hooked, parameters, task, chunk)
            room = None if task.block is None else chunk
            parts = each(batch) if batch.sizes is None else _each_unit(each, parameters, chunk, room, batch)
            for gradients, count in parts:
                lengths = gradient_norms(gradients)  # before any are left out: the shape depends on no record
                total += _weighted(gradients, lengths, task.transform.factors(lengths), count)
                norms.append(lengths[:count])
        return total, torch.cat(norms)


def _each_example(
    hooked: nn.Module, parameters: list[nn.Parameter], task: Task, chunk: int, batch: Minibatch
) -> Iterator[tuple[list[Tensor], int]]:
    """The examples' gradients, chunk by chunk, and how many of them are examples': the first ones."""
    for inputs, targets, count in batch.parts(chunk, filled=task.block is not None):
        yield _per_example(hooked, parameters, inputs, targets, task.loss), count


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


def _per_example(
    hooked: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] of each parameter, taken from where Opacus leaves them."""
    loss(hooked(inputs), targets).backward()  # type: ignore[no-untyped-call]
    gradients = [_left_on(parameter, len(inputs)) for parameter in parameters]
    hooked.zero_grad(set_to_none=True)
    return gradients


def _left_on(parameter: nn.Parameter, examples: int) -> Tensor:
    """The gradients that Opacus left on a parameter; zero where the model did not use it."""
    gradients: Tensor | None = parameter.grad_sample  # type: ignore[attr-defined]
    return parameter.new_zeros(examples, *parameter.shape) if gradients is None else gradients


def _weighted(gradients: list[Tensor], norms: Tensor, factors: Tensor, count: int) -> Tensor:
    """The flat sum [P] of factor times gradient for the first ones, where zero times infinity is zero."""
    broken, sums = ~norms.isfinite(), []
    if broken.any():
        for gradient in gradients:
            gradient[broken] = 0
    for gradient in gradients:
        sums.append(torch.zeros(gradient[0].numel(), dtype=torch.float64, device=norms.device))
        Rows(rows=gradient[:count]).add_to(sums[-1], factors[:count])
    return torch.cat(sums)


@contextmanager
def _hooked(model: nn.Module) -> Iterator[nn.Module]:
    """The model under Opacus' hooks in training mode, and afterwards without any trace of them."""
    training = model.training
    hooked = GradSampleModule(model, loss_reduction="sum", strict=True)
    try:
        with warnings.catch_warnings():
            # torch warns of hooks on a model whose inputs need no gradient, as none of ours do
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            yield hooked.train()
    finally:
        hooked.to_standard_module().train(training)
        model.zero_grad(set_to_none=True)
        for module in model.modules():
            for leftover in ("activations", "max_batch_len"):
                module.__dict__.pop(leftover, None)
