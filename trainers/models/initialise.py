"""Initial weights from a generator of the trial's own, never from torch's global one.

The module is built on the meta device, where torch's own initialisation draws nothing and costs nothing;
every parameter is then filled here. The weights are drawn on the CPU, so they are the same for every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from trainers.engines.isolation import refuse_by_name
from trainers.published import Pretrained


def build(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The model that `factory` makes, on the CPU, with weights that are published or depend on `seed` alone.

    Errors: ValueError that names the first layer whose parameters or buffers this module cannot fill.
    """
    with torch.device("meta"):
        model = factory()
    refuse_by_name(model)
    for name, module in model.named_modules():
        _require_fillable(name or "model", module)
    model = model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _fill(module, generator)
        for module in model.modules():
            if isinstance(module, Pretrained):
                module.load_state_dict(module.published())
    return model


def _require_fillable(name: str, module: nn.Module) -> None:
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if own and not isinstance(module, (nn.Linear, _ConvNd, nn.GroupNorm, nn.LayerNorm, nn.Embedding)):
        raise ValueError(
            f"Expected {name}={type(module).__name__} to be a linear or convolutional layer, GroupNorm, "
            "LayerNorm or Embedding: how to draw its initial weights is not known."
        )


def _fill(module: nn.Module, generator: torch.Generator) -> None:
    """Uniform within 1/sqrt(fan in), torch's own rule, for linear maps; the identity for normalizations and gains.

    Words get standard normal vectors, torch's own rule too.
    """
    if isinstance(module, (nn.Linear, _ConvNd)):
        limit = 1 / math.sqrt(module.weight[0].numel())
        for name, parameter in module.named_parameters(recurse=False):
            if name == "gain":
                parameter.fill_(1.0)
            else:
                parameter.uniform_(-limit, limit, generator=generator)
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(generator=generator)
        if module.padding_idx is not None:
            module.weight[module.padding_idx] = 0
    elif isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
        for name, parameter in module.named_parameters(recurse=False):
            parameter.fill_(1.0 if name == "weight" else 0.0)
