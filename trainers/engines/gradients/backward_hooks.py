"""Hooks that record per-example gradients of all supported layers in one forward and backward pass.

During the pass parameters need no gradient, so the backward pass does not form their summed gradients. The layers'
outputs need one; when it is ready, a hook turns it into the layer's per-example gradients. The hooks refuse cases that
they cannot handle: a layer called twice or never, rows that are not examples, overwritten inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.gradients.layers import LAYERS
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Unsupported

if TYPE_CHECKING:
    from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient


@dataclass(kw_only=True, eq=False)
class Tape:
    """The per-example gradients that the hooks recorded in the pass of one chunk."""

    model: nn.Module
    layers: Mapping[nn.Module, Layer]
    examples: int = 0
    leaves: list[Tensor] = field(default_factory=list)
    called: set[nn.Module] = field(default_factory=set)
    gradients: dict[nn.Parameter, LayerGradient] = field(default_factory=dict)

    def play(self, inputs: Tensor, targets: Tensor, loss: Loss) -> dict[nn.Parameter, LayerGradient]:
        """The per-example gradients of each trainable parameter, for these examples."""
        self.examples, self.leaves, self.called, self.gradients = len(inputs), [], set(), {}
        with torch.enable_grad():
            total = loss(self.model(inputs), targets)
        if total.requires_grad:
            torch.autograd.grad(total, self.leaves, allow_unused=True)
        self.leaves.clear()
        for layer in self.layers.values():
            if any(parameter not in self.gradients for parameter in layer.trained.values()):
                raise Unsupported(layer.name, layer.module, "to be called once in a pass, and the loss to depend on it")
        return self.gradients

    def record(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        """The forward hook of every layer."""
        layer = self.layers[module]
        if module in self.called:
            raise Unsupported(layer.name, module, "to be called once in a pass")
        self.called.add(module)
        if len(arguments) != 1 or arguments[0].ndim < 2 or len(arguments[0]) != self.examples:
            raise Unsupported(layer.name, module, "to be called with one tensor, one row for each example")
        if not output.requires_grad:
            self.leaves.append(output.requires_grad_())
        inputs = arguments[0].detach()
        consume = partial(self._consume, layer, inputs, inputs._version)
        output.register_hook(consume)  # type: ignore[no-untyped-call]

    def _consume(self, layer: Layer, inputs: Tensor, version: int, gradient: Tensor) -> None:
        if inputs._version != version:
            raise Unsupported(layer.name, layer.module, "to have inputs that are not overwritten")
        by_name = LAYERS[type(layer.module)](layer.module, layer.trained, inputs, gradient)
        self.gradients.update((layer.trained[name], layer_gradient) for name, layer_gradient in by_name.items())


@contextmanager
def recording(model: nn.Module, layers: Collection[Layer], layout: torch.memory_format) -> Iterator[Tape]:
    """A tape of the model in training mode, with images in this layout; all changes are undone at the end."""
    tape = Tape(model=model, layers={layer.module: layer for layer in layers})
    trained = [parameter for layer in layers for parameter in layer.trained.values()]
    convolutions = [layer.module for layer in layers if isinstance(layer.module, nn.Conv2d)]
    weights = [(module.weight, module.weight.data) for module in convolutions]
    evaluating = [module for module in model.modules() if not module.training]
    hooks = [layer.module.register_forward_hook(tape.record) for layer in layers]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        for weight, data in weights:
            weight.data = data.to(memory_format=layout)
        for module in evaluating:
            module.training = True
        yield tape
    finally:
        for hook in hooks:
            hook.remove()
        for weight, data in weights:
            weight.data = data
        for parameter in trained:
            parameter.requires_grad_(True)
        for module in evaluating:
            module.training = False
