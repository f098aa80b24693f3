"""Layers of a model that are replaced: those that mix examples, and frozen linear layers that get a low-rank adapter.

`privatise` makes a model trainable with a bound on each example's gradient. Adapters add only torch's Linear layers,
and each is called once, so the fused engine bounds their per-example gradients without knowing about adapters. The
tensors have the names that PEFT gives them.
"""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from dpsweep.trainers.declarations.adapters import Lora

_MOST_GROUPS = 32
_FEWEST_CHANNELS = 4

Model = TypeVar("Model", bound=nn.Module)


def privatise(model: Model) -> Model:
    """A copy of `model` without layers that mix examples, keep statistics of records or draw random numbers.

    - BatchNorm and SyncBatchNorm become GroupNorm with the same number of channels, `eps`, weight and bias. There are
      at most 32 groups, of at least 4 channels each where the channels allow it. Running statistics are dropped.
    - InstanceNorm keeps its weight and bias, and loses its running statistics.
    - Dropout gets probability 0, also in recurrent and attention layers: it would draw from torch's global generator.
    - RReLU becomes LeakyReLU with the mean of its slopes.
    - `inplace=True` becomes `inplace=False`.

    LSTM, GRU, RNN and attention stay torch's own layers; the engines take them as they are (docs/engine.md). The
    outputs of a model with BatchNorm change, so a pretrained model has to be trained again. `model` stays unchanged.
    Source: Wu and He 2018 (GroupNorm).
    Errors: ValueError for a layer without sizes (LazyBatchNorm).

    >>> from torch import nn
    >>> from dpsweep.models import privatise
    >>> model = privatise(nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True)))
    >>> type(model[1]).__name__, model[1].num_groups, model[1].num_channels, model[2].inplace
    ('GroupNorm', 16, 64, False)
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (not name or module.num_features < 1):
            kind = type(module).__name__
            raise ValueError(f"Expected {name or 'model'}={kind} to be part of a model and to know its channels.")
    private = copy.deepcopy(model)
    replaced: dict[nn.Module, nn.GroupNorm] = {}
    for module in list(private.modules()):
        for key, child in module._modules.items():
            if isinstance(child, _BatchNorm):
                module._modules[key] = replaced.setdefault(child, _group_norm_from_batch_norm(child))
            elif isinstance(child, nn.RReLU):
                module._modules[key] = nn.LeakyReLU((child.lower + child.upper) / 2)
        _disable_layer_statistics_and_dropout(module)
    return private


def _group_norm_from_batch_norm(old: _BatchNorm) -> nn.GroupNorm:
    """A GroupNorm in place of a BatchNorm, with its weight and bias."""
    new = nn.GroupNorm(group_count_for_channels(old.num_features), old.num_features, eps=old.eps, affine=old.affine)
    new.train(old.training)
    for key, parameter in old.named_parameters(recurse=False):
        setattr(new, key, parameter)
    return new


def group_count_for_channels(channels: int) -> int:
    """The largest divisor of `channels` up to 32 that leaves at least 4 channels in a group, or 1."""
    most = max(1, min(_MOST_GROUPS, channels // _FEWEST_CHANNELS))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _disable_layer_statistics_and_dropout(module: nn.Module) -> None:
    """Removes statistics, randomness and overwritten inputs from a layer."""
    if isinstance(module, _InstanceNorm) and module.track_running_stats:
        module.track_running_stats = False
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(module, name, None)
    if isinstance(module, _DropoutNd):
        module.p = 0.0
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        module.dropout = 0.0
    if getattr(module, "inplace", False):
        setattr(module, "inplace", False)  # noqa: B010 - mypy takes the attribute of any module for a tensor


class LoraLinear(nn.Module):
    """A frozen linear layer plus scale * B A. Shapes: [n, ..., inputs] -> [n, ..., outputs]."""

    def __init__(self, base_layer: nn.Module, inputs: int, outputs: int, *, rank: int, scale: float) -> None:
        super().__init__()
        like = next(base_layer.parameters())
        self.base_layer, self.scale = base_layer, scale
        self.lora_A = nn.Linear(inputs, rank, bias=False, dtype=like.dtype, device=like.device)
        self.lora_B = nn.Linear(rank, outputs, bias=False, dtype=like.dtype, device=like.device)

    def forward(self, values: Tensor) -> Tensor:
        """The frozen layer's outputs and those of the low-rank map."""
        outputs: Tensor = self.base_layer(values) + self.scale * self.lora_B(self.lora_A(values))
        return outputs

    def draw_initial_weights(self, generator: torch.Generator | None) -> None:
        """Fills A uniformly within 1 / sqrt(inputs) and B with zero, so that training starts from the frozen model."""
        limit = 1 / math.sqrt(self.lora_A.in_features)
        with torch.no_grad():
            self.lora_A.weight.uniform_(-limit, limit, generator=generator)
            self.lora_B.weight.zero_()


def attach_adapters(model: nn.Module, lora: Lora, generator: torch.Generator | None = None) -> nn.Module:
    """Puts an adapter on every linear layer that `lora.targets` names, in place, with weights from `generator`.

    Errors: ValueError that names the linear layers of the model if none matches, or a matching layer that is trained.
    """
    layers = {
        name: sizes
        for name, module in model.named_modules()
        if (sizes := _linear_layer_sizes_or_none(module)) is not None
    }
    matching = [name for name in layers if name.rpartition(".")[2] in lora.targets]
    if not matching:
        known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in layers)) or "none"
        raise ValueError(
            f"Expected adapter.targets=[{', '.join(lora.targets)}] to name a layer of the model; its linear layers: "
            f"{known}."
        )
    for name in matching:
        parent, _, last = name.rpartition(".")
        layer = model.get_submodule(name)
        if any(parameter.requires_grad for parameter in layer.parameters()):
            raise ValueError(f"Expected {name} to be frozen with adapter=lora; freeze it, or leave it out of targets.")
        adapted = LoraLinear(layer, *layers[name], rank=lora.rank, scale=lora.scale)
        adapted.draw_initial_weights(generator)
        setattr(model.get_submodule(parent), last, adapted)
    return model


def copy_with_merged_adapters(model: nn.Module) -> nn.Module:
    """A copy of the model without adapters: each low-rank map is added to the weights of the layer beside it."""
    model = copy.deepcopy(model)
    for name, adapted in [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLinear)]:
        product = adapted.scale * adapted.lora_B.weight @ adapted.lora_A.weight
        weight = adapted.base_layer.get_parameter("weight")
        with torch.no_grad():
            weight.add_(product if isinstance(adapted.base_layer, nn.Linear) else product.T)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, adapted.base_layer)
    return model


def _linear_layer_sizes_or_none(module: nn.Module) -> tuple[int, int] | None:
    """The inputs and outputs of a linear layer, torch's or that of GPT-2 (Conv1D); None for other modules."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    sizes = getattr(module, "nx", None), getattr(module, "nf", None)
    known = type(module).__name__ == "Conv1D" and all(isinstance(size, int) for size in sizes)
    return sizes if known else None  # type: ignore[return-value]
