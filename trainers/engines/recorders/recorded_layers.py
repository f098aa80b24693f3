"""The layers of a model, and how the gradients of each are recorded; models that cannot be recorded are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from dpsweep.trainers.engines.gradients.layers import LAYERS, has_rule
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Treatment, Unsupported
from dpsweep.trainers.engines.recorders.attention import attention, plain_attention
from dpsweep.trainers.engines.recorders.parameter_copies import COPIED
from dpsweep.trainers.engines.recorders.recurrent import plain_recurrent, recurrent


@dataclass(frozen=True, kw_only=True)
class Composite:
    """A layer of linear maps: its replacement for `forward`, and the layers for which it is the same."""

    forward: Callable[..., Any]
    takes: Callable[[nn.Module], bool]


COMPOSITES: Mapping[type[nn.Module], Composite] = MappingProxyType(
    {
        nn.MultiheadAttention: Composite(forward=attention, takes=plain_attention),
        nn.LSTM: Composite(forward=recurrent, takes=plain_recurrent),
        nn.GRU: Composite(forward=recurrent, takes=plain_recurrent),
        nn.RNN: Composite(forward=recurrent, takes=plain_recurrent),
    }
)
"""By exact type: a subclass may use its parameters in another way."""


def recorded_layers(model: nn.Module) -> list[Layer]:
    """The modules that answer for the trainable parameters; raises Unsupported for visibly unsupported models.

    A module with a rule, or of linear maps, is recorded by it. Every other module that has parameters of its own is
    recorded by torch.func.
    """
    layers: list[Layer] = []
    seen: set[nn.Parameter] = set()
    inside: set[nn.Module] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if getattr(module, "inplace", False):
            raise Unsupported(name, module, "to overwrite nothing: inplace=False")
        if module in inside:
            continue
        treatment = treatment_of(module)
        trained = _trained(module, nested=treatment is Treatment.LINEAR_MAPS)
        if not trained:
            continue
        if seen & set(trained.values()):
            raise Unsupported(name, module, "to share no parameter with another layer")
        seen.update(trained.values())
        if treatment is Treatment.LINEAR_MAPS:
            inside.update(module.modules())
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            raise Unsupported(name, module, "to have no hooks")
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and (
            module.max_norm is not None or module.scale_grad_by_freq
        ):
            raise Unsupported(name, module, "to have max_norm=None and scale_grad_by_freq=False")
        layers.append(Layer(name=name, module=module, trained=trained, treatment=treatment))
    return layers


def treatment_of(module: nn.Module) -> Treatment:
    """The fastest way to record a module with parameters."""
    composite = COMPOSITES.get(type(module))
    if composite is not None and composite.takes(module):
        return Treatment.LINEAR_MAPS
    if type(module) in COPIED and module._parameters.keys() <= {"weight", "bias"}:
        return Treatment.COPIES
    return Treatment.RULE if type(module) in LAYERS and has_rule(module) else Treatment.TORCH_FUNC


def _trained(module: nn.Module, *, nested: bool) -> dict[str, nn.Parameter]:
    named = module.named_parameters(recurse=nested, remove_duplicate=False)
    return {name: parameter for name, parameter in named if parameter.requires_grad}
