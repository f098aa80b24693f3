"""Whether an engine's sum is what torch says of each example alone, to the last digits of float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task

CLASSES = 3
EXACT = 1e-12


def rows_alone(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The oracle: one example, one backward pass, gradients [n, P]."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for example, target in zip(inputs, targets, strict=True):
        loss = cross_entropy(model(example[None]), target[None])
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(rows)


def assert_exact(model: nn.Module, inputs: Tensor, transform, chunk: int | None = None) -> None:
    targets = torch.arange(len(inputs)) % CLASSES
    rows = rows_alone(model, inputs, targets)
    target = transform.factors(rows.norm(dim=1)) @ rows
    total, norms = Fused().bounded_gradient_sum_and_norms(
        model, Minibatch(inputs, targets), Task(transform=transform, chunk=chunk)
    )
    assert torch.allclose(norms, rows.norm(dim=1), rtol=EXACT, atol=EXACT)
    assert float((total - target).norm()) <= EXACT * max(float(target.norm()), EXACT)


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def filled(model: nn.Module, seed: int = 2) -> nn.Module:
    """The model in float64 with weights from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


class Model(nn.Module):
    """Layers and what is done with them, for what is no sequence."""

    def __init__(self, function, **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, values: Tensor) -> Tensor:
        return self.function(self, values)
