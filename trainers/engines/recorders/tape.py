"""Records the per-example gradients of all layers in one forward and backward pass.

During the pass parameters need no gradient, so the backward pass does not form their summed gradients. The layers'
outputs need one; recorders turn it into the layer's per-example gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Treatment
from dpsweep.trainers.engines.recorders.custom_layers import CustomLayer
from dpsweep.trainers.engines.recorders.linear_maps import LinearMaps
from dpsweep.trainers.engines.recorders.parameter_copies import CopiedParameters
from dpsweep.trainers.engines.recorders.recorded_layers import COMPOSITES
from dpsweep.trainers.engines.recorders.recorded_pass import RecordedPass, Recorder
from dpsweep.trainers.engines.recorders.ruled_layers import RuledLayer

_RECORDERS: Mapping[Treatment, Callable[[Layer, RecordedPass], Recorder]] = MappingProxyType(
    {
        Treatment.RULE: lambda layer, current: RuledLayer(layer=layer, current=current),
        Treatment.COPIES: lambda layer, current: CopiedParameters(layer=layer, current=current),
        Treatment.LINEAR_MAPS: lambda layer, current: LinearMaps(
            layer=layer, current=current, forward=COMPOSITES[type(layer.module)].forward
        ),
        Treatment.TORCH_FUNC: lambda layer, current: CustomLayer(layer=layer, current=current),
    }
)


@dataclass(kw_only=True, eq=False)
class Tape:
    """The per-example gradients that the recorders collect in the pass of one chunk."""

    model: nn.Module
    layers: Collection[Layer]
    current: RecordedPass
    recorders: Collection[Recorder]

    def play(self, inputs: Tensor, targets: Tensor, loss: Loss) -> dict[nn.Parameter, LayerGradient]:
        """The per-example gradients of each trainable parameter, for these examples."""
        with self.current.begun(len(inputs)):
            with torch.enable_grad():
                with self.current.products(inputs):
                    outputs = self.model(inputs)
                total = loss(self.current.wide(outputs), targets)
            if total.requires_grad:
                torch.autograd.grad(total, self.current.leaves, allow_unused=True)
        gradients: dict[nn.Parameter, LayerGradient] = {}
        for layer, recorder in zip(self.layers, self.recorders, strict=True):
            by_name = recorder.collect()
            gradients.update(
                (layer.trained[name], gradient.to(self.current.dtype)) for name, gradient in by_name.items()
            )
        return gradients


@contextmanager
def recording(
    model: nn.Module,
    layers: Collection[Layer],
    layout: torch.memory_format,
    narrow: torch.dtype | None = None,
) -> Iterator[Tape]:
    """A tape of the model in training mode, with images in this layout and products of factors rounded to `narrow`.

    All changes to the model are undone at the end.
    """
    trained = [parameter for layer in layers for parameter in layer.trained.values()]
    current = RecordedPass(dtype=trained[0].dtype, narrow=narrow)
    recorders = [_RECORDERS[layer.treatment](layer, current) for layer in layers]
    convolutions = [layer.module for layer in layers if isinstance(layer.module, nn.Conv2d)]
    weights = [(module.weight, module.weight.data) for module in convolutions]
    evaluating = [module for module in model.modules() if not module.training]
    with ExitStack() as undone:
        for recorder in recorders:
            undone.callback(recorder.attach())
        for parameter in trained:
            undone.callback(parameter.requires_grad_, True)
            parameter.requires_grad_(False)
        for weight, data in weights:
            undone.callback(setattr, weight, "data", data)
            weight.data = data.to(memory_format=layout)
        for module in evaluating:
            undone.callback(setattr, module, "training", False)
            module.training = True
        yield Tape(model=model, layers=layers, current=current, recorders=recorders)
