"""The layers that the fused engine supports: it must know every use of every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from dpsweep.trainers.engines.gradients.layers import LAYERS

_PARAMETERS = {"weight", "bias", "gain"}


class Unsupported(ValueError):
    """The engine does not support this model; another may, and `engine=vmap` supports all models that others do."""

    def __init__(self, name: str, module: nn.Module, condition: str) -> None:
        kind = type(module).__name__
        super().__init__(f"Expected {name or 'model'}={kind} {condition}; engine=auto or engine=vmap takes it.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A layer and its own trainable parameters by name."""

    name: str
    module: nn.Module
    trained: Mapping[str, nn.Parameter]


def supported_layers(model: nn.Module) -> list[Layer]:
    """The layers with trainable parameters; raises Unsupported for a model that is visibly not supported."""
    layers, seen = [], set[nn.Parameter]()
    for name, module in model.named_modules(remove_duplicate=False):
        if getattr(module, "inplace", False):
            raise Unsupported(name, module, "to overwrite nothing: inplace=False")
        parameters = {key: parameter for key, parameter in module._parameters.items() if parameter is not None}
        trained = {key: parameter for key, parameter in parameters.items() if parameter.requires_grad}
        if not trained:
            continue
        if seen & set(trained.values()):
            raise Unsupported(name, module, "to share no parameter with another layer")
        seen.update(trained.values())
        _refuse_layer(name, module, parameters)
        layers.append(Layer(name=name, module=module, trained=trained))
    return layers


def _refuse_layer(name: str, module: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    supported = ", ".join(kind.__name__ for kind in LAYERS)
    if type(module) not in LAYERS or not parameters.keys() <= _PARAMETERS:
        raise Unsupported(name, module, f"to be one of {supported}, since it has parameters")
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise Unsupported(name, module, "to have no hooks")
    if isinstance(module, nn.Conv2d):
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        if not plain or isinstance(module.padding, str):
            raise Unsupported(name, module, "to have groups=1, dilation=1 and numbers of zeros for padding")
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq):
        raise Unsupported(name, module, "to have max_norm=None and scale_grad_by_freq=False")
