"""What every engine is held against: gradients by torch.func in float64, example by example."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.transforms import LENGTH_SHARE, Clip, Normalize
from dpsweep.trainers.models.weights import build_model_with_seeded_weights

ENGINES = [Opacus(), Fused(), Vmap(), Auto()]
TRANSFORMS = [
    Clip(clip_norm=1e-3),
    Clip(clip_norm=2.0),
    Clip(clip_norm=1e3),
    Normalize(regularizer=1e-4),
    Normalize(regularizer=1.0),
]
CLASSES = 5
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)


def units_of_sizes(inputs: Tensor, targets: Tensor, sizes: Sequence[int]) -> Minibatch:
    """Units of so many consecutive examples each, one a place, slot after slot."""
    slots, first = max(sizes, default=1), 0
    shape = slots, len(sizes)
    filled = torch.zeros(shape, dtype=torch.bool)
    rows, labels = inputs.new_zeros(*shape, *inputs.shape[1:]), targets.new_zeros(*shape, *targets.shape[1:])
    for place, size in enumerate(sizes):
        own, first = slice(first, first + size), first + size
        rows[:size, place], labels[:size, place], filled[:size, place] = inputs[own], targets[own], True
    return Minibatch(rows.flatten(0, 1), labels.flatten(0, 1), filled=filled)


def problem(factory, shape, examples: int, dtype=torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    model = build_model_with_seeded_weights(lambda: factory(shape, CLASSES), 3).to(dtype)
    inputs = torch.randn(examples, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return model, inputs, torch.randint(CLASSES, (examples,), generator=generator)


def reference(model: nn.Module, inputs: Tensor, targets: Tensor, of_outputs=cross_entropy) -> Tensor:
    """Gradients [n, P] by an independent route: torch.func over one example at a time, in float64."""
    parameters = {name: value.detach().double() for name, value in model.named_parameters()}

    def loss(parameters, one_input, target):
        output = torch.func.functional_call(model, parameters, (one_input[None],))
        return of_outputs(output, target[None])

    rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, inputs.double(), targets)
    return torch.cat([rows[name].flatten(1) for name in parameters], dim=1)


def expected(gradients: Tensor, transform) -> Tensor:
    """The sum of transformed gradients by the papers' formulas, and shorter by what rounding may add."""
    norms = gradients.norm(dim=1, keepdim=True)
    if isinstance(transform, Clip):
        factors = torch.minimum(torch.ones_like(norms), LENGTH_SHARE * transform.clip_norm / norms)
    else:
        factors = LENGTH_SHARE / (transform.regularizer + norms)
    return (factors * gradients).sum(dim=0)
