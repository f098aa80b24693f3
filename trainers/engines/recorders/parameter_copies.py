"""Layers that torch can run with a copy of their parameters for each example: the gradients by the copies are those of
the examples, and come with the backward pass itself.

GroupNorm treats every group of channels on its own. So n examples of C channels are one example of n * C channels with
n times as many groups, whose weight and bias have a place for each example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from dpsweep.trainers.engines.gradients.layer_gradients import DenseGradient, LayerGradient
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Unsupported
from dpsweep.trainers.engines.recorders.recorded_pass import RecordedPass

Copies = Mapping[str, Tensor]
"""By a parameter's name: its copies [n, ...], one for each example."""


def group_norm(layer: nn.GroupNorm, copies: Copies, inputs: Tensor) -> Tensor:
    """What `nn.GroupNorm.forward` returns for inputs [n, C, ...], by the copies [n, C] of weight and bias."""
    joined = inputs.reshape(1, inputs.shape[0] * inputs.shape[1], *inputs.shape[2:])
    weight, bias = (copies[name].flatten() for name in ("weight", "bias"))
    outputs = functional.group_norm(joined, len(inputs) * layer.num_groups, weight, bias, layer.eps)
    return outputs.view(inputs.shape)


COPIED: Mapping[type[nn.Module], Callable[..., Tensor]] = MappingProxyType({nn.GroupNorm: group_norm})
"""By exact type: a subclass may use its parameters in another way."""


@dataclass(kw_only=True, eq=False)
class CopiedParameters:
    """The recorder of a layer in `COPIED`, whose method `forward` is replaced."""

    layer: Layer
    current: RecordedPass
    _called: bool = False
    _gradients: dict[str, Tensor] = field(default_factory=dict)

    def attach(self) -> Callable[[], None]:
        """Replaces the module's `forward`."""
        module = self.layer.module
        compute, forward = COPIED[type(module)], module.forward

        def replacement(inputs: Tensor) -> Tensor:
            return compute(module, self._copies(), self._for_each(inputs)) if self.current.active else forward(inputs)

        module.__dict__["forward"] = replacement
        return lambda: module.__dict__.__delitem__("forward")

    def _copies(self) -> Copies:
        """New leaves of the graph, whose gradients are awaited if the parameter is trained."""
        if self._called:
            raise Unsupported(self.layer.name, self.layer.module, "to be called once in a pass")
        self._called = True
        copies = {}
        for name, parameter in self.layer.module.named_parameters():
            copies[name] = parameter.detach().repeat(self.current.examples, *[1] * parameter.ndim)
            if name in self.layer.trained:
                self.current.watch(copies[name], partial(self._gradients.__setitem__, name))
        return copies

    def _for_each(self, inputs: Tensor) -> Tensor:
        """The inputs, or a view that repeats them for each example if they are a single row."""
        rows = inputs.expand(self.current.examples, *inputs.shape[1:]) if len(inputs) == 1 else inputs
        if not self.current.has_rows(rows):
            raise Unsupported(self.layer.name, self.layer.module, "to be called with one row for each example")
        return rows

    def collect(self) -> Mapping[str, LayerGradient]:
        """The gradients by the copies."""
        gradients, self._gradients, self._called = self._gradients, {}, False
        if gradients.keys() != self.layer.trained.keys():
            condition = "to be called once in a pass, and the loss to depend on it"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        return {name: DenseGradient(rows=rows) for name, rows in gradients.items()}
