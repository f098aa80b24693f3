"""The vmap engine: per-example gradients of any module without mixing, by torch.func.vmap or one after another.

Each pass has one example, so the gradient is this example's own for every kind of layer and parameter. If torch cannot
vectorise these passes, the engine runs them one after another. It decides this on random inputs, never on data. Buffers
and frozen parameters stay unchanged.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.explicit_gradients import (
    PerExample,
    bounded_gradient_sum_and_norms,
    is_gradient_algorithm_correct,
    per_example_gradients_by_loop,
)
from dpsweep.trainers.engines.interface import (
    Minibatch,
    Task,
    trainable_parameters,
)

log = logging.getLogger("dpsweep.engine")


@dataclass(frozen=True, kw_only=True)
class Vmap:
    """The engine that differentiates the loss of single examples, vectorised where torch can do so.

    It supports every module that does not mix examples, and units of several examples.
    Source: torch.func's per-sample gradients (Horace He, Richard Zou 2021, functorch).
    """

    stacks: ClassVar[bool] = False
    _algorithms: MutableMapping[nn.Module, dict[Hashable, PerExample]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the units' norms, from per-example gradients in chunks."""
        with _model_prepared_for_vmap(model):
            gradients = self._gradient_algorithm_for_model(model, batch.inputs, task)
            return bounded_gradient_sum_and_norms(model, batch, task, gradients)

    def _gradient_algorithm_for_model(self, model: nn.Module, inputs: Tensor, task: Task) -> PerExample:
        """The algorithm for this model's gradients, for inputs of this shape and dtype."""
        algorithms = self._algorithms.setdefault(model, {})
        case = (task.loss, inputs.shape[1:], inputs.dtype, inputs.device, *map(id, trainable_parameters(model)))
        if case not in algorithms:
            algorithms[case] = _fastest_correct_gradient_algorithm(model, inputs, task.loss)
        return algorithms[case]


def _fastest_correct_gradient_algorithm(model: nn.Module, inputs: Tensor, loss: Loss) -> PerExample:
    """The vectorised algorithm if its gradients are correct on random inputs, else one example after another."""
    try:
        if is_gradient_algorithm_correct(copy.deepcopy(model), inputs, loss, per_example_gradients_by_vmap):
            return per_example_gradients_by_vmap
        reason = "other gradients"
    except Exception as error:  # noqa: BLE001 - the user's own code and torch may raise anything under vmap
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    log.info("engine vmap: one example after another, since torch cannot vectorise this model (%s)", reason)
    return per_example_gradients_by_loop


def per_example_gradients_by_vmap(
    model: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, targets: Tensor, loss: Loss
) -> list[Tensor]:
    """The gradients [n, ...] by each parameter, with each example as its own batch."""
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def example_loss(values: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
        return loss(functional_call(model, values, (example[None],)), target[None])

    recurrent = inputs.is_cuda and _recurrent_layers(model)  # cuDNN's recurrent layers have no rule for vmap
    cudnn = torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext()
    with warnings.catch_warnings(), cudnn, sdpa_kernel(SDPBackend.MATH):  # other kernels have no rule for vmap
        warnings.filterwarnings("ignore", message="There is a performance drop")
        rows = vmap(grad(example_loss), in_dims=(None, 0, 0))(trained, inputs, targets)
    return [rows[name] for name in trained]


@contextmanager
def _model_prepared_for_vmap(model: nn.Module) -> Iterator[None]:
    """The model in training mode, with explicit initial states of recurrent layers; restored at the end."""
    evaluating = [module for module in model.modules() if not module.training]
    hooks = [
        layer.register_forward_pre_hook(_inputs_with_zero_initial_state, with_kwargs=True)
        for layer in _recurrent_layers(model)
    ]
    try:
        for module in evaluating:
            module.training = True
        yield
    finally:
        for module in evaluating:
            module.training = False
        for hook in hooks:
            hook.remove()


def _recurrent_layers(model: nn.Module) -> list[nn.RNNBase]:
    return [module for module in model.modules() if isinstance(module, nn.RNNBase)]


def _inputs_with_zero_initial_state(
    layer: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The inputs with a zero initial state per example; torch's default would be one state for all examples of vmap."""
    if not isinstance(layer, nn.RNNBase) or len(arguments) != 1 or options or not isinstance(arguments[0], Tensor):
        return None
    (inputs,) = arguments
    batch = () if inputs.ndim == 2 else (inputs.shape[0 if layer.batch_first else 1],)
    zeros: Callable[[int], Tensor] = partial(
        inputs.new_zeros, layer.num_layers * (2 if layer.bidirectional else 1), *batch
    )
    state = zeros(layer.proj_size or layer.hidden_size)
    return (inputs, (state, zeros(layer.hidden_size)) if isinstance(layer, nn.LSTM) else state), {}
