"""How the fused engine computes the gradients of each layer: it must know every use of every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from torch import nn


class Unsupported(ValueError):
    """The engine does not support this model; another may, and `engine=vmap` supports all models that others do."""

    def __init__(self, name: str, module: nn.Module, condition: str) -> None:
        kind = type(module).__name__
        super().__init__(f"Expected {name or 'model'}={kind} {condition}; engine=auto or engine=vmap takes it.")


class Treatment(Enum):
    """How the gradients of a layer's parameters are computed, fastest first."""

    RULE = "rule"
    COPIES = "copies"
    LINEAR_MAPS = "linear maps"
    TORCH_FUNC = "torch.func"


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A module, the trainable parameters for which it answers by name, and how their gradients are computed."""

    name: str
    module: nn.Module
    trained: Mapping[str, nn.Parameter]
    treatment: Treatment
