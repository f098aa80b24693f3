"""Low-rank adapters on the frozen linear layers of any model.

Only torch's Linear layers are added, and each is called once, so the fused engine bounds their per-example gradients
without knowing about adapters. The tensors have the names that PEFT gives them.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.adapters import Lora


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

    def draw(self, generator: torch.Generator | None) -> None:
        """Fills A uniformly within 1 / sqrt(inputs) and B with zero, so that training starts from the frozen model."""
        limit = 1 / math.sqrt(self.lora_A.in_features)
        with torch.no_grad():
            self.lora_A.weight.uniform_(-limit, limit, generator=generator)
            self.lora_B.weight.zero_()


def attach(model: nn.Module, lora: Lora, generator: torch.Generator | None = None) -> nn.Module:
    """Puts an adapter on every linear layer that `lora.targets` names, in place, with weights from `generator`.

    Errors: ValueError that names the linear layers of the model if none matches, or a matching layer that is trained.
    """
    layers = {name: sizes for name, module in model.named_modules() if (sizes := _sizes(module)) is not None}
    matching = [name for name in layers if name.rpartition(".")[2] in lora.targets]
    if not matching:
        known = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in layers)) or "no linear layer"
        raise ValueError(
            f"Expected adapter.targets=[{', '.join(lora.targets)}] to name a layer of the model; it has {known}."
        )
    for name in matching:
        parent, _, last = name.rpartition(".")
        layer = model.get_submodule(name)
        if any(parameter.requires_grad for parameter in layer.parameters()):
            raise ValueError(f"Expected {name} to be frozen with adapter=lora; freeze it, or leave it out of targets.")
        adapted = LoraLinear(layer, *layers[name], rank=lora.rank, scale=lora.scale)
        adapted.draw(generator)
        setattr(model.get_submodule(parent), last, adapted)
    return model


def merge(model: nn.Module) -> nn.Module:
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


def _sizes(module: nn.Module) -> tuple[int, int] | None:
    """The inputs and outputs of a linear layer, torch's or that of GPT-2 (Conv1D); None for other modules."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    sizes = getattr(module, "nx", None), getattr(module, "nf", None)
    known = type(module).__name__ == "Conv1D" and all(isinstance(size, int) for size in sizes)
    return sizes if known else None  # type: ignore[return-value]
