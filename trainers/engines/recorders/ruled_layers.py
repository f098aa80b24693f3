"""Layers with a rule: their gradients by a formula from their inputs and the gradient by their outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient
from dpsweep.trainers.engines.gradients.layers import LAYERS
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Unsupported
from dpsweep.trainers.engines.recorders.recorded_pass import RecordedPass

_ROWS = "to be called with one tensor, one row for each example or one for all"


@dataclass(kw_only=True, eq=False)
class RuledLayer:
    """The recorder of a layer in `LAYERS`: a hook on its output applies the rule as soon as its gradient is known."""

    layer: Layer
    current: RecordedPass
    _called: bool = False
    _gradients: Mapping[str, LayerGradient] = field(default_factory=dict)

    def attach(self) -> Callable[[], None]:
        """Adds a forward hook."""
        return self.layer.module.register_forward_hook(self._record).remove

    def _record(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not self.current.active:
            return output
        if self._called:
            raise Unsupported(self.layer.name, module, "to be called once in a pass")
        self._called = True
        if len(arguments) != 1 or not isinstance(arguments[0], Tensor):
            raise Unsupported(self.layer.name, module, _ROWS)
        inputs = self._for_each(arguments[0].detach(), arguments[0])
        output = self._for_each(output, arguments[0])
        if not self.current.has_rows(inputs):
            raise Unsupported(self.layer.name, module, _ROWS)
        self.current.watch(output, partial(self._consume, inputs, inputs._version))
        return output

    def _for_each(self, values: Tensor, inputs: Tensor) -> Tensor:
        """The values, or a view that repeats them for each example if the layer's inputs are the same for all examples.

        These are a single row, or inputs of one dimension, such as the numbers of places. So the choice never depends
        on whether a batch has as many examples as there are places.
        """
        if inputs.ndim == 1:
            return values.expand(self.current.examples, *values.shape)
        return values.expand(self.current.examples, *values.shape[1:]) if len(inputs) == 1 else values

    def _consume(self, inputs: Tensor, version: int, gradient: Tensor) -> None:
        if inputs._version != version:
            raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
        rule = LAYERS[type(self.layer.module)]
        with self.current.products(gradient):
            self._gradients = rule(self.layer.module, self.layer.trained, self.current.wide(inputs), gradient)

    def collect(self) -> Mapping[str, LayerGradient]:
        """The gradients of the pass."""
        gradients, self._gradients, self._called = self._gradients, {}, False
        if gradients.keys() != self.layer.trained.keys():
            condition = "to be called once in a pass, and the loss to depend on it"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        return gradients
