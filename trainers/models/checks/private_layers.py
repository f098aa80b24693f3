"""Makes a model trainable with a bound on each example's gradient, by replacing layers that mix examples."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

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
                module._modules[key] = replaced.setdefault(child, _group_norm(child))
            elif isinstance(child, nn.RReLU):
                module._modules[key] = nn.LeakyReLU((child.lower + child.upper) / 2)
        _make_plain(module)
    return private


def _group_norm(old: _BatchNorm) -> nn.GroupNorm:
    """A GroupNorm in place of a BatchNorm, with its weight and bias."""
    new = nn.GroupNorm(groups_of(old.num_features), old.num_features, eps=old.eps, affine=old.affine)
    new.train(old.training)
    for key, parameter in old.named_parameters(recurse=False):
        setattr(new, key, parameter)
    return new


def groups_of(channels: int) -> int:
    """The largest divisor of `channels` up to 32 that leaves at least 4 channels in a group, or 1."""
    most = max(1, min(_MOST_GROUPS, channels // _FEWEST_CHANNELS))
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _make_plain(module: nn.Module) -> None:
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
