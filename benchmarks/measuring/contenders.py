"""The contenders of a step: the gradient of a batch, or the sum of its clipped per-example gradients, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import cast

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.stacked import Examples, Stack
from dpsweep.trainers.methods.transforms import Clip

Step = Callable[[int | None], object]
"""One step, whose passes take so many examples at once; None is the fused engine's own choice, elsewhere the whole."""

PLAIN, LAST, OURS, HOOKS, GHOST, FASTDP = "plain", "plain, channels last", "ours", "hooks", "ghost", "fastDP"
CLIP_NORM = 1.0


def contenders(make: Callable[[], nn.Module], inputs: Tensor, targets: Tensor) -> dict[str, Step]:
    steps = {
        PLAIN: plain(make(), inputs, targets),
        OURS: ours(make(), inputs, targets),
        HOOKS: hooks(make(), inputs, targets),
        GHOST: ghost(make(), inputs, targets),
    }
    if any(isinstance(layer, nn.Conv2d) for layer in make().modules()):
        last = make()
        for parameter in last.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        steps[LAST] = plain(last, inputs.contiguous(memory_format=torch.channels_last), targets)
    if find_spec("fastDP"):
        steps[FASTDP] = fast_dp(make(), inputs, targets)
    return steps


def parts(chunk: int | None, *columns: Tensor) -> list[tuple[Tensor, ...]]:
    """The columns of a batch, cut into chunks."""
    return list(zip(*(torch.split(column, chunk or len(column)) for column in columns), strict=True))


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    parameters = list(model.parameters())

    def step(chunk: int | None) -> Sequence[Tensor]:
        total: list[Tensor] = []
        for part, labels in parts(chunk, inputs, targets):
            loss = cross_entropy(model(part), labels, reduction="sum")
            gradients = torch.autograd.grad(loss, parameters)
            total = [one.add_(more) for one, more in zip(total, gradients, strict=True)] if total else [*gradients]
        return total

    return step


def ours(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    try:
        stack = Stack.from_model(model)
    except ValueError:
        return fused(model, inputs, targets)
    weights, rows = parameters_to_vector(model.parameters()).detach()[None], inputs.flatten(1)
    lengths, transform = stack.first_layer_input_norms_with_bias(rows), Clip(clip_norm=CLIP_NORM)

    def step(chunk: int | None) -> Tensor:
        total = torch.zeros_like(weights, dtype=torch.float64)
        for part, labels, long in parts(chunk, rows, targets, lengths):
            stack.add_bounded_gradient_sums(
                total, weights, Examples(inputs=part, targets=labels, lengths=long), torch.ones_like(long), transform
            )
        return total

    return step


def fused(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    engine, batch, transform = Fused(), Minibatch(inputs, targets), Clip(clip_norm=CLIP_NORM)
    return lambda chunk: engine.bounded_gradient_sum_and_norms(model, batch, Task(transform=transform, chunk=chunk))


def backward(loss: object) -> None:
    """torch.Tensor.backward, or that of Opacus' loss, neither of which has types."""
    cast(Callable[[], None], getattr(loss, "backward"))()  # noqa: B009


def hooks(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    hooked = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **optimizer_arguments(len(inputs)))

    def step(chunk: int | None) -> None:
        for number, (part, labels) in enumerate(parts(chunk, inputs, targets)):
            optimizer._is_last_step_skipped = number > 0  # keeps the sum of the chunks before
            optimizer.zero_grad(set_to_none=True)
            backward(cross_entropy(hooked(part), labels, reduction="sum"))
            optimizer.clip_and_accumulate()

    return step


def ghost(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    hooked = GradSampleModuleFastGradientClipping(model, loss_reduction="sum", max_grad_norm=CLIP_NORM)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = DPOptimizerFastGradientClipping(sgd, **optimizer_arguments(len(inputs)))
    loss = DPLossFastGradientClipping(hooked, optimizer, nn.CrossEntropyLoss(reduction="sum"), loss_reduction="sum")

    def step(chunk: int | None) -> None:
        for number, (part, labels) in enumerate(parts(chunk, inputs, targets)):
            optimizer._is_last_step_skipped = number > 0
            optimizer.zero_grad(set_to_none=True)
            backward(loss(hooked(part), labels))
            optimizer.accumulate()

    return step


def optimizer_arguments(batch: int) -> dict[str, object]:
    return {
        "noise_multiplier": 0.0,
        "max_grad_norm": CLIP_NORM,
        "expected_batch_size": batch,
        "loss_reduction": "sum",
    }


def fast_dp(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    from fastDP import PrivacyEngine

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    shape = {"batch_size": len(inputs), "sample_size": 100 * len(inputs), "epochs": 1}
    engine = PrivacyEngine(model, **shape, max_grad_norm=CLIP_NORM, noise_multiplier=1.0, clipping_fn="Abadi")
    engine.attach_returning_undo(optimizer)

    def step(chunk: int | None) -> None:
        optimizer.zero_grad()
        for part, labels in parts(chunk, inputs, targets):
            backward(cross_entropy(model(part), labels))

    return step
