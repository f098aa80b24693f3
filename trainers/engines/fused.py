"""The fused engine: per-example norms and the weighted sum in one backward pass, layer by layer."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import Loss
from dpsweep.trainers.engines.chunk_size import fused_chunk
from dpsweep.trainers.engines.gradients.convolution import suits_channels_last
from dpsweep.trainers.engines.gradients.layer_gradients import LayerGradient, joint_norms
from dpsweep.trainers.engines.gradients.parameters import in_places, require_exact_products, trainable
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Treatment, Unsupported
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.recorders.recorded_layers import recorded_layers
from dpsweep.trainers.engines.recorders.self_check import prove
from dpsweep.trainers.engines.recorders.tape import recording
from dpsweep.trainers.methods.transforms import GradientTransform

log = logging.getLogger("dpsweep.engine")

_NARROW: Mapping[str, torch.dtype | None] = MappingProxyType({"float32": None, "bfloat16": torch.bfloat16})


@dataclass(frozen=True, kw_only=True)
class Fused:
    """The engine that records each layer's inputs and output gradients in one pass, and computes the sum from them.

    It supports a model after one comparison of its gradients with torch's own. Layers without a rule are run a second
    time by torch.func, and the log says so. Norms of float32 gradients are never too small, and too large by a relative
    error below 2**-13.

    With precision="bfloat16" the factors of products are rounded to bfloat16, in the passes and in gradients of layers.
    *Guarantee*: norms are computed from the very gradients that are summed, in float32 or wider, after all of this
    rounding; so the bound holds as in float32. The self-check is in float64: it checks the rules, not the rounding.
    Errors: Unsupported, which names the layer, for other models and for units of several examples.
    """

    stacks: ClassVar[bool] = True
    precision: str = "float32"
    _proven: MutableMapping[nn.Module, dict[Hashable, tuple[torch.memory_format, int]]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.precision not in _NARROW:
            raise ValueError(f"Expected precision={self.precision} to be {' or '.join(_NARROW)}.")

    def weighted_sum(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the examples' norms; each chunk's gradients are bounded and summed layer by layer."""
        require_exact_products()
        parameters = trainable(model)
        numbers = sum(parameter.numel() for parameter in parameters)
        total = parameters[0].new_zeros(numbers, dtype=torch.float64)
        if batch.sizes is not None:  # even if all are 1 in this batch: the engine must not depend on a random draw
            raise Unsupported("", model, "to be trained on units of one example each")
        layers = recorded_layers(model)
        if len(batch) == 0:
            return total, parameters[0].new_zeros(0)
        inputs, cases = batch.inputs, self._proven.setdefault(model, {})
        case = (task.loss, inputs.shape[1:], inputs.dtype, *map(id, parameters))
        if case not in cases:
            cases[case] = _prove(model, inputs, task.loss)
            _say_slow(layers)
        layout, stored = cases[case]
        chunk = task.at_once(fused_chunk(model, stored, inputs[0]))
        places, norms = in_places(parameters, total), []
        with recording(model, layers, layout, _NARROW[self.precision]) as tape:
            for part, targets, count in batch.parts(chunk, filled=task.block is not None):
                norms.append(_add(tape.play(part, targets, task.loss), places, task.transform, count))
        return total, torch.cat(norms)


def _prove(model: nn.Module, inputs: Tensor, loss: Loss) -> tuple[torch.memory_format, int]:
    """The fastest layout of images that passes the self-check, and the numbers stored per example."""
    if suits_channels_last(model):
        with suppress(Unsupported):  # for example a model that needs a view which this layout does not allow
            return torch.channels_last, prove(model, inputs, torch.channels_last, loss)
    return torch.contiguous_format, prove(model, inputs, torch.contiguous_format, loss)


def _say_slow(layers: Sequence[Layer]) -> None:
    """Logs the layers that have no rule."""
    slow = [layer for layer in layers if layer.treatment is Treatment.TORCH_FUNC]
    if slow:
        names = ", ".join(f"{layer.name or 'model'}={type(layer.module).__name__}" for layer in slow)
        log.info("engine fused: torch.func runs these layers a second time, which is slower: %s", names)


def _add(
    gradients: Mapping[nn.Parameter, LayerGradient],
    places: Mapping[nn.Parameter, Tensor],
    transform: GradientTransform,
    count: int,
) -> Tensor:
    """Adds the bounded gradients of a chunk's first `count` examples to the sum; returns their unbounded norms."""
    norms = joint_norms(gradients.values()).to(next(iter(places)).dtype)
    factors = transform.factors(norms)
    factors[count:] = 0
    if not norms.max().isfinite():
        non_finite = ~norms.isfinite()
        gradients = {parameter: gradient.without(non_finite) for parameter, gradient in gradients.items()}
    for parameter, gradient in gradients.items():
        gradient.add_to(places[parameter], factors)
    return norms[:count]
