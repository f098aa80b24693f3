"""Initial weights from a generator of the trial, never from torch's global generator.

Our models are built on the meta device, where torch's own initialisation draws nothing and costs nothing; this module
then fills every parameter. A user's model is built by its own constructor, which draws or loads its weights. During
that call the global generators are seeded for the trial, and restored afterwards. Both kinds of weights are drawn on
the CPU, so they are the same for every device.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from dpsweep.accounting.errors import BadInput
from dpsweep.trainers.models.checks.modules import one_line, refuse_by_name
from dpsweep.trainers.models.weights_file import tensors_of
from dpsweep.trainers.pretrained_files import Pretrained


def build(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The model from `factory`, on the CPU, with weights that are published or depend on `seed` alone.

    Errors: ValueError that names the first layer whose parameters or buffers this module cannot fill.
    """
    with torch.device("meta"):
        model = factory()
    refuse_by_name(model)
    for name, module in model.named_modules():
        _require_fillable(name or "model", module)
    _allocate(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _fill(module, generator)
        for module in model.modules():
            if isinstance(module, Pretrained):
                module.load_state_dict(module.published())
    return model


def construct(factory: Callable[[], nn.Module], name: str, seed: int) -> nn.Module:
    """The model from the user's `factory`, on the CPU, with the weights that the factory drew or loaded.

    Guarantee: its draws from the global generators of torch's CPU, numpy and Python depend on `seed` alone, and these
    generators are restored. Modules of ours that start from published weights have these weights.
    Errors: ValueError, one sentence, for every error of the factory and for a model that cannot be trained or saved.
    """
    try:
        with _seeded(seed), torch.device("cpu"):
            model = factory()
            if isinstance(model, nn.Module):
                model = model.to("cpu")
    except BadInput:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise ValueError(f"Expected model={name} to take dataset.shape and classes: {one_line(error)}.") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"Expected model={name} to make a torch.nn.Module, got {type(model).__name__}.")
    refuse_by_name(model)
    for module in model.modules():
        if isinstance(module, Pretrained):
            module.load_state_dict(module.published())
    model.zero_grad(set_to_none=True)
    tensors_of(model)
    return model


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators that a constructor may draw from, and restores their states afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _allocate(model: nn.Module) -> None:
    """What `model.to_empty(device="cpu")` does, which imports sympy: .4 s."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            empty = torch.empty(parameter.shape, dtype=parameter.dtype)
            setattr(module, name, nn.Parameter(empty, requires_grad=parameter.requires_grad))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def _require_fillable(name: str, module: nn.Module) -> None:
    tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if tensors and not isinstance(module, (nn.Linear, _ConvNd, nn.GroupNorm, nn.LayerNorm, nn.Embedding)):
        raise ValueError(
            f"Expected {name}={type(module).__name__} to be a linear or convolutional layer, GroupNorm, "
            "LayerNorm or Embedding: how to draw its initial weights is not known."
        )


def _fill(module: nn.Module, generator: torch.Generator) -> None:
    """Fill linear maps uniformly within 1/sqrt(fan in), as torch does; normalizations and gains with the identity.

    Embeddings get standard normal vectors, as in torch.
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
