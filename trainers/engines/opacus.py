"""The Opacus engine: per-example gradients by the hooks of Opacus. The only module that imports opacus.

Opacus assumes that the first dimension of a layer's input indexes the examples, and that no parameter is used outside
its layer. So the engine supports a model only after comparing its per-example gradients with torch's own, on random
inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from opacus import GradSampleModule
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.explicit_gradients import (
    bounded_gradient_sum_and_norms,
    is_gradient_algorithm_correct_in_float64,
)
from dpsweep.trainers.engines.interface import (
    Minibatch,
    Task,
    Unsupported,
    trainable_parameters,
)


@dataclass(frozen=True, kw_only=True)
class Opacus:
    """The engine that uses Opacus' GradSampleModule, which stores one gradient per example of a chunk.

    Source: Yousefpour et al. 2021, Opacus.
    Errors: Unsupported if the per-example gradients are wrong; it names a layer without a rule in Opacus.
    """

    stacks: ClassVar[bool] = False
    _proven: MutableMapping[nn.Module, set[Hashable]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, from per-example gradients in chunks."""
        self._require_correct_gradients(model, batch, task)
        with _hooked_model(model) as hooked:
            return bounded_gradient_sum_and_norms(hooked, batch, task, _per_example_gradients)

    def _require_correct_gradients(self, model: nn.Module, batch: Minibatch, task: Task) -> None:
        """Raises Unsupported unless Opacus gives correct per-example gradients, for inputs of this shape and dtype."""
        proven = self._proven.setdefault(model, set())
        case = (task.loss, batch.inputs.shape[1:], batch.inputs.dtype, *map(id, trainable_parameters(model)))
        if case not in proven:
            _check_opacus_gradients(model, batch.inputs, task.loss)
            proven.add(case)


def _check_opacus_gradients(model: nn.Module, inputs: Tensor, loss: Loss) -> None:
    name, layer = _name_and_layer_without_rule(model)
    reason = ""
    try:
        if is_gradient_algorithm_correct_in_float64(model, inputs, loss, _per_example_gradients_adding_hooks):
            return
    except Exception as error:  # noqa: BLE001 - Opacus and the user's own code may raise anything
        reason = f" ({' '.join(str(error).split()) or type(error).__name__:.200})"
    raise Unsupported(name, layer, f"to have gradients that Opacus computes example by example{reason}")


def _name_and_layer_without_rule(model: nn.Module) -> tuple[str, nn.Module]:
    """The first layer with trainable parameters but without a rule in Opacus, or the model."""
    for name, layer in model.named_modules():
        trained = any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
        if trained and type(layer) not in GradSampleModule.GRAD_SAMPLERS:
            return name, layer
    return "", model


def _per_example_gradients_adding_hooks(
    model: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] of each parameter; hooks are added and removed."""
    with _hooked_model(model) as hooked:
        return _per_example_gradients(hooked, parameters, inputs, targets, loss)


def _per_example_gradients(
    hooked: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] of each parameter, read from its attribute `grad_sample`."""
    loss(hooked(inputs), targets).backward()  # type: ignore[no-untyped-call]
    gradients = [_stored_grad_sample_or_zeros(parameter, len(inputs)) for parameter in parameters]
    hooked.zero_grad(set_to_none=True)
    return gradients


def _stored_grad_sample_or_zeros(parameter: nn.Parameter, examples: int) -> Tensor:
    """The gradients that Opacus stored on a parameter; zero if the model did not use it."""
    gradients: Tensor | None = parameter.grad_sample  # type: ignore[attr-defined]
    return parameter.new_zeros(examples, *parameter.shape) if gradients is None else gradients


@contextmanager
def _hooked_model(model: nn.Module) -> Iterator[nn.Module]:
    """The model with Opacus' hooks, in training mode; all changes are undone at the end."""
    modes = [(module, module.training) for module in model.modules()]
    hooked = GradSampleModule(model, loss_reduction="sum", strict=True)
    try:
        with warnings.catch_warnings():
            # torch warns about hooks on a model if its inputs need no gradient; ours never do
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            yield hooked.train()
    finally:
        hooked.to_standard_module()
        model.zero_grad(set_to_none=True)
        for module, training in modes:
            module.training = training
            for leftover in ("activations", "max_batch_len"):
                module.__dict__.pop(leftover, None)
