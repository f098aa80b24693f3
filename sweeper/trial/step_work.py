"""The work of a training step, by which the number of threads of a job is chosen.

Threads wait actively for one another: on small layers a second thread gains 0 to 12 % of the time on idle cores, and
costs three times the time where other programs use the cores. So small steps get one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

LARGE = 50e6
"""The floating-point operations of a step from which on threads pay."""

_PASSES = 3
"""A forward pass, and a backward pass of twice its work."""


def most_threads_for_large_steps_else_one(works: Iterable[float], most: int) -> int:
    """`most` threads if a step of one of these works is large, else 1."""
    return most if max(works, default=math.inf) >= LARGE else 1


def flops_of_training_step(model: nn.Module, inputs: torch.Tensor) -> float:
    """Floating-point operations of a training step of linear and convolutional layers on `inputs`, shape [n, ...].

    Infinity if other layers than these, normalizations and embeddings have parameters.
    """
    products = 0

    def count_products_of_layer(module: Any, _: object, output: torch.Tensor) -> None:
        nonlocal products
        products += output.numel() * module.weight[0].numel()

    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not all(isinstance(layer, (nn.Linear, _ConvNd, nn.GroupNorm, nn.LayerNorm, nn.Embedding)) for layer in layers):
        return math.inf
    hooks = [
        layer.register_forward_hook(count_products_of_layer)
        for layer in layers
        if isinstance(layer, (nn.Linear, _ConvNd))
    ]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return 2.0 * _PASSES * products
