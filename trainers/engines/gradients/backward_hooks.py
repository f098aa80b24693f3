"""One forward and backward pass in which each supported layer's examples' gradients are taken down on the way.

Parameters need no gradient meanwhile, so that the backward pass forms none of theirs; the layers' outputs do, and as
soon as the gradient of one is there, a hook turns it into what is held. What the hooks cannot account for is refused: a
layer called twice or never, rows that are no examples, inputs that were overwritten.
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
    """What the hooks took down in the pass of one chunk."""

    model: nn.Module
    layers: Mapping[nn.Module, Layer]
    examples: int = 0
    leaves: list[Tensor] = field(default_factory=list)
    called: set[nn.Module] = field(default_factory=set)
    held: dict[nn.Parameter, LayerGradient] = field(default_factory=dict)

    def play(self, inputs: Tensor, targets: Tensor, loss: Loss) -> dict[nn.Parameter, LayerGradient]:
        """What is held of each trainable parameter, for these examples."""
        self.examples, self.leaves, self.called, self.held = len(inputs), [], set(), {}
        with torch.enable_grad():
            total = loss(self.model(inputs), targets)
        if total.requires_grad:
            torch.autograd.grad(total, self.leaves, allow_unused=True)
        self.leaves.clear()
        for layer in self.layers.values():
            if any(parameter not in self.held for parameter in layer.trained.values()):
                raise Unsupported(layer.name, layer.module, "to be called once in a pass, and the loss to depend on it")
        return self.held

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
            raise Unsupported(layer.name, layer.module, "to have inputs that nobody overwrites")
        found = LAYERS[type(layer.module)](layer.module, layer.trained, inputs, gradient)
        self.held.update((layer.trained[name], held) for name, held in found.items())


@contextmanager
def recording(model: nn.Module, layers: Collection[Layer], layout: torch.memory_format) -> Iterator[Tape]:
    """A tape of the model in training mode, its images in this layout; afterwards the model is as it came."""
    tape = Tape(model=model, layers={layer.module: layer for layer in layers})
    trained = [parameter for layer in layers for parameter in layer.trained.values()]
    convolutions = [layer.module for layer in layers if isinstance(layer.module, nn.Conv2d)]
    kept = [(module.weight, module.weight.data) for module in convolutions]
    evaluating = [module for module in model.modules() if not module.training]
    hooks = [layer.module.register_forward_hook(tape.record) for layer in layers]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        for weight, data in kept:
            weight.data = data.to(memory_format=layout)
        for module in evaluating:
            module.training = True
        yield tape
    finally:
        for hook in hooks:
            hook.remove()
        for weight, data in kept:
            weight.data = data
        for parameter in trained:
            parameter.requires_grad_(True)
        for module in evaluating:
            module.training = False
