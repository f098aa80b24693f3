"""The fused engine: per-example norms and the weighted sum in one backward pass, layer by layer.

During the pass parameters need no gradient, so the backward pass does not form their summed gradients. The layers'
outputs need one; recorders turn it into the layer's per-example gradients. Models that cannot be recorded are refused.

A self-check compares the engine's per-example gradients of a model with torch's own. The list of layers does not show
whether examples are rows in the same order everywhere in the model, nor whether a parameter is used outside its layer.
So three random examples, never data, pass through a float64 copy of the model, and each per-example gradient is
compared with torch's own gradient of this example alone, parameter by parameter. The copy's weights are perturbed and
the targets are the least likely ones: with zero weights or a flat loss, a wrong gradient could go unnoticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dpsweep.trainers.declarations.losses import CROSS_ENTROPY, Loss
from dpsweep.trainers.engines.explicit_gradients import is_gradient_algorithm_correct_in_float64
from dpsweep.trainers.engines.interface import (
    Minibatch,
    Task,
    Unsupported,
    flat_vector_views_by_parameter,
    fused_chunk_size,
    per_example_gradient_norms,
    require_exact_float32_products,
    trainable_parameters,
)
from dpsweep.trainers.engines.layer_gradients import LayerGradient, joint_norms
from dpsweep.trainers.engines.layers import LAYERS, has_gradient_rule, is_channels_last_faster
from dpsweep.trainers.engines.linear_maps import (
    LinearMaps,
    can_record_attention,
    can_record_recurrent,
    recorded_attention,
    run_recurrent_through_maps,
)
from dpsweep.trainers.engines.recorders import (
    COPIED,
    CopiedParameters,
    CustomLayer,
    Layer,
    RecordedPass,
    Recorder,
    RuledLayer,
    Treatment,
)
from dpsweep.trainers.methods.transforms import GradientTransform


@dataclass(frozen=True, kw_only=True)
class Composite:
    """A layer of linear maps: its replacement for `forward`, and the layers for which it is the same."""

    forward: Callable[..., Any]
    takes: Callable[[nn.Module], bool]


COMPOSITES: Mapping[type[nn.Module], Composite] = MappingProxyType(
    {
        nn.MultiheadAttention: Composite(forward=recorded_attention, takes=can_record_attention),
        nn.LSTM: Composite(forward=run_recurrent_through_maps, takes=can_record_recurrent),
        nn.GRU: Composite(forward=run_recurrent_through_maps, takes=can_record_recurrent),
        nn.RNN: Composite(forward=run_recurrent_through_maps, takes=can_record_recurrent),
    }
)
"""By exact type: a subclass may use its parameters in another way."""


def layers_to_record(model: nn.Module) -> list[Layer]:
    """The modules that answer for the trainable parameters; raises Unsupported for visibly unsupported models.

    A module with a rule, or of linear maps, is recorded by it. Every other module that has parameters of its own is
    recorded by torch.func.
    """
    layers: list[Layer] = []
    seen: set[nn.Parameter] = set()
    inside: set[nn.Module] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if getattr(module, "inplace", False):
            raise Unsupported(name, module, "to overwrite nothing: inplace=False")
        if module in inside:
            continue
        treatment = fastest_recording_treatment(module)
        trained = _trainable_parameters_by_name(module, nested=treatment is Treatment.LINEAR_MAPS)
        if not trained:
            continue
        if seen & set(trained.values()):
            raise Unsupported(name, module, "to share no parameter with another layer")
        seen.update(trained.values())
        if treatment is Treatment.LINEAR_MAPS:
            inside.update(module.modules())
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            raise Unsupported(name, module, "to have no hooks")
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and (
            module.max_norm is not None or module.scale_grad_by_freq
        ):
            raise Unsupported(name, module, "to have max_norm=None and scale_grad_by_freq=False")
        layers.append(Layer(name=name, module=module, trained=trained, treatment=treatment))
    return layers


def fastest_recording_treatment(module: nn.Module) -> Treatment:
    """The fastest way to record a module with parameters."""
    composite = COMPOSITES.get(type(module))
    if composite is not None and composite.takes(module):
        return Treatment.LINEAR_MAPS
    if type(module) in COPIED and module._parameters.keys() <= {"weight", "bias"}:
        return Treatment.COPIES
    return Treatment.RULE if type(module) in LAYERS and has_gradient_rule(module) else Treatment.TORCH_FUNC


def _trainable_parameters_by_name(module: nn.Module, *, nested: bool) -> dict[str, nn.Parameter]:
    named = module.named_parameters(recurse=nested, remove_duplicate=False)
    return {name: parameter for name, parameter in named if parameter.requires_grad}


_RECORDERS: Mapping[Treatment, Callable[[Layer, RecordedPass], Recorder]] = MappingProxyType(
    {
        Treatment.RULE: lambda layer, current: RuledLayer(layer=layer, current=current),
        Treatment.COPIES: lambda layer, current: CopiedParameters(layer=layer, current=current),
        Treatment.LINEAR_MAPS: lambda layer, current: LinearMaps(
            layer=layer, current=current, forward=COMPOSITES[type(layer.module)].forward
        ),
        Treatment.TORCH_FUNC: lambda layer, current: CustomLayer(layer=layer, current=current),
    }
)


@dataclass(kw_only=True, eq=False)
class Tape:
    """The per-example gradients that the recorders collect in the pass of one chunk."""

    model: nn.Module
    layers: Collection[Layer]
    current: RecordedPass
    recorders: Collection[Recorder]

    def record_per_example_gradients(
        self, inputs: Tensor, targets: Tensor, loss: Loss
    ) -> dict[nn.Parameter, LayerGradient]:
        """The per-example gradients of each trainable parameter, for these examples."""
        with self.current.recording_calls(len(inputs)):
            with torch.enable_grad():
                with self.current.autocast_context_for_narrow_dtype(inputs):
                    outputs = self.model(inputs)
                total = loss(self.current.to_parameter_dtype(outputs), targets)
            if total.requires_grad:
                torch.autograd.grad(total, self.current.leaves, allow_unused=True)
        gradients: dict[nn.Parameter, LayerGradient] = {}
        for layer, recorder in zip(self.layers, self.recorders, strict=True):
            by_name = recorder.collect_gradients()
            gradients.update(
                (layer.trained[name], gradient.to_dtype(self.current.dtype)) for name, gradient in by_name.items()
            )
        return gradients


@contextmanager
def recording_tape(
    model: nn.Module,
    layers: Collection[Layer],
    layout: torch.memory_format,
    narrow: torch.dtype | None = None,
) -> Iterator[Tape]:
    """A tape of the model in training mode, with images in this layout and products of factors rounded to `narrow`.

    All changes to the model are undone at the end.
    """
    trained = [parameter for layer in layers for parameter in layer.trained.values()]
    current = RecordedPass(dtype=trained[0].dtype, narrow=narrow)
    recorders = [_RECORDERS[layer.treatment](layer, current) for layer in layers]
    convolutions = [layer.module for layer in layers if isinstance(layer.module, nn.Conv2d)]
    weights = [(module.weight, module.weight.data) for module in convolutions]
    evaluating = [module for module in model.modules() if not module.training]
    with ExitStack() as undone:
        for recorder in recorders:
            undone.callback(recorder.attach_returning_undo())
        for parameter in trained:
            undone.callback(parameter.requires_grad_, True)
            parameter.requires_grad_(False)
        for weight, data in weights:
            undone.callback(setattr, weight, "data", data)
            weight.data = data.to(memory_format=layout)
        for module in evaluating:
            undone.callback(setattr, module, "training", False)
            module.training = True
        yield Tape(model=model, layers=layers, current=current, recorders=recorders)


_CLOSE, _NOISE = 1e-8, 1e-12
_IN_LAYERS = "to use its parameters in its layers alone, one row for each example"


def check_recording_returning_stored_size(
    model: nn.Module, inputs: Tensor, layout: torch.memory_format = torch.contiguous_format, loss: Loss = CROSS_ENTROPY
) -> int:
    """Raises Unsupported unless the recorded per-example gradients are correct, for inputs of this shape and dtype.

    Returns the number of gradient entries stored per example, which determines the memory; factored gradients are free.
    """
    stored = 0

    def recorded_gradients(
        twin: nn.Module, parameters: list[nn.Parameter], probes: Tensor, targets: Tensor, loss: Loss
    ) -> list[Tensor]:
        nonlocal stored
        with recording_tape(twin, layers_to_record(twin), layout) as tape:
            recorded = tape.record_per_example_gradients(probes, targets, loss)
        stored = sum(gradient.stored_numbers_per_example for gradient in recorded.values())
        rows = {parameter: parameter.new_zeros(len(probes), *parameter.shape) for parameter in parameters}
        for parameter, gradient in recorded.items():
            for row, factors in zip(rows[parameter], torch.eye(len(probes), dtype=torch.float64), strict=True):
                gradient.add_weighted_sum_to(row, factors)
        explicit = list(rows.values())
        norms, exact = joint_norms(recorded.values()), per_example_gradient_norms(explicit)
        if not torch.allclose(norms, exact, rtol=_CLOSE, atol=_NOISE):
            raise Unsupported("", model, _IN_LAYERS)
        return explicit

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a computation, waiting for threads takes longer than the work
    try:
        if not is_gradient_algorithm_correct_in_float64(model, inputs, loss, recorded_gradients):
            raise Unsupported("", model, _IN_LAYERS)
        return stored
    except Unsupported:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as cause:
        reason = (str(cause).splitlines() or [type(cause).__name__])[0]
        raise Unsupported("", model, f"to run on random examples and under hooks ({reason})") from cause
    finally:
        torch.set_num_threads(threads)


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

    def bounded_gradient_sum_and_norms(self, model: nn.Module, batch: Minibatch, task: Task) -> tuple[Tensor, Tensor]:
        """The sum [P] and the examples' norms; each chunk's gradients are bounded and summed layer by layer."""
        require_exact_float32_products()
        parameters = trainable_parameters(model)
        numbers = sum(parameter.numel() for parameter in parameters)
        total = parameters[0].new_zeros(numbers, dtype=torch.float64)
        if batch.filled is not None:  # even with one slot: the engine must not depend on a random draw
            raise Unsupported("", model, "to be trained on units of one example each")
        layers = layers_to_record(model)
        if len(batch) == 0:
            return total, parameters[0].new_zeros(0)
        inputs, cases = batch.inputs, self._proven.setdefault(model, {})
        case = (task.loss, inputs.shape[1:], inputs.dtype, *map(id, parameters))
        if case not in cases:
            cases[case] = _checked_layout_and_stored_size(model, inputs, task.loss)
            _log_layers_without_rule(layers)
        layout, stored = cases[case]
        most = task.chunk or fused_chunk_size(model, stored, inputs[0])
        sums, norms = flat_vector_views_by_parameter(parameters, total), []
        with recording_tape(model, layers, layout, _NARROW[self.precision]) as tape:
            for part in batch.iterate_passes(most):
                gradients = tape.record_per_example_gradients(part.inputs[0], part.targets[0], task.loss)
                norms.append(_add_bounded_sum_returning_norms(gradients, sums, task.transform, part.weights))
        return total, torch.cat(norms)[: len(batch)]


def _checked_layout_and_stored_size(model: nn.Module, inputs: Tensor, loss: Loss) -> tuple[torch.memory_format, int]:
    """The fastest layout of images that passes the self-check, and the numbers stored per example."""
    if is_channels_last_faster(model):
        with suppress(Unsupported):  # for example a model that needs a view which this layout does not allow
            return torch.channels_last, check_recording_returning_stored_size(model, inputs, torch.channels_last, loss)
    return torch.contiguous_format, check_recording_returning_stored_size(model, inputs, torch.contiguous_format, loss)


def _log_layers_without_rule(layers: Sequence[Layer]) -> None:
    """Logs the layers that have no rule."""
    slow = [layer for layer in layers if layer.treatment is Treatment.TORCH_FUNC]
    if slow:
        names = ", ".join(f"{layer.name or 'model'}={type(layer.module).__name__}" for layer in slow)
        log.info("engine fused: torch.func runs these layers a second time, which is slower: %s", names)


def _add_bounded_sum_returning_norms(
    gradients: Mapping[nn.Parameter, LayerGradient],
    sums: Mapping[nn.Parameter, Tensor],
    transform: GradientTransform,
    weights: Tensor,
) -> Tensor:
    """Adds the bounded gradients of a pass, times their weights, to the sums; returns their unbounded norms."""
    norms = joint_norms(gradients.values()).to(next(iter(sums)).dtype)
    factors = transform.factors(norms) * weights.to(norms.dtype)
    if not norms.max().isfinite():
        non_finite = ~norms.isfinite()
        gradients = {
            parameter: gradient.with_marked_examples_zeroed(non_finite) for parameter, gradient in gradients.items()
        }
    for parameter, gradient in gradients.items():
        gradient.add_weighted_sum_to(sums[parameter], factors)
    return norms
