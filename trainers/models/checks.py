"""Checks that a model treats each example separately and uses no randomness outside the trial's generators.

Clipping bounds a record's influence only if example i's loss depends on example i alone. Layers that are known to
violate this are refused by name. All other models are probed with random inputs, never with data. The output of one
example must not depend on the other examples, by comparison and by differentiation. A pass, in training or in
evaluation mode, must change neither the model's parameters and buffers nor torch's global generator. Token numbers
cannot be differentiated by; for them the check only compares. The layer that fails is found by comparing what each
layer does in two passes. A model of words fits a data set with token numbers of the same vocabulary alone.

A gate or a projection of zeros hides at the start that a model mixes, and a model may mix in batches of some sizes
alone. So two neighbourhoods of the weights are probed too, in batches of several sizes, those of the passes of training
and scoring among them; and the trained weights in a pass of the size that is scored. There a row must keep its bits
while the others are exchanged. Not found: a model that mixes in other sizes alone, or only at weights far from both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from dpsweep.trainers.declarations.scores import EXAMPLES_PER_PASS, evaluation_mode, records_per_forward_pass
from dpsweep.trainers.user_modules import error_as_one_line

if TYPE_CHECKING:
    from dpsweep.trainers.data.vocabularies import Vocabulary


@runtime_checkable
class TokenReader(Protocol):
    """A module that reads token numbers from 0 to `token_count` - 1, of which `padding_token` stands for no word."""

    token_count: int
    padding_token: int


def draw_probes(model: nn.Module, generator: torch.Generator, *shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    """Random float64 inputs, or int64 token numbers if `kind` is an integer type or the model takes token numbers.

    The token numbers are valid for the module that reads them; where it does not say, for every embedding.
    """
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
    if not kind.is_floating_point or (tables and not is_differentiable_by_inputs(model, shape[1:])):
        counts = [module.token_count for module in model.modules() if isinstance(module, TokenReader)] or tables
        return torch.randint(min(counts, default=2), shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def is_differentiable_by_inputs(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the model's outputs can be differentiated by inputs of this shape, so that inputs are not tokens."""
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), torch.zeros(()))
    inputs = torch.full((1, *shape), 0.5, dtype=like.dtype, device=like.device, requires_grad=True)
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, allow_unused=True)
    except Exception:  # noqa: BLE001 - the user's own code may raise anything, and an embedding refuses fractions
        return False
    return gradient is not None


def check_vocabulary_fits_model(model: nn.Module, vocabulary: Vocabulary | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError if only one of model and data set uses tokens, or if vocabulary size or padding do not fit."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, kinds)]
    if vocabulary is None:
        if tables and not is_differentiable_by_inputs(model, shape):
            raise ValueError("Expected dataset.vocabulary for a model of words: this data set gives quantities.")
        return
    if not tables:
        raise ValueError("Expected a model of words for dataset.vocabulary, such as minilm: this one takes quantities.")
    if max(tables) < vocabulary.words:
        raise ValueError(f"Expected dataset.vocabulary.words={vocabulary.words} <= {max(tables)}, those of the model.")
    for module in model.modules():
        if isinstance(module, TokenReader) and module.padding_token != vocabulary.padding:
            raise ValueError(
                f"Expected dataset.vocabulary.padding={vocabulary.padding} == {module.padding_token}, the model's."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class _LayerCall:
    """A call of a layer: its tensors, and whether torch's global generator moved."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: list[Tensor]
    draws: bool


def find_named_layer_mixing_examples(
    model: nn.Module, batch: Tensor, others: Iterable[Tensor]
) -> tuple[str, nn.Module]:
    """The innermost layer whose output for an example changes with other examples, at equal inputs; else the model.

    `others` are batches of as many examples; each example of `batch` is put into them in turn.
    """
    expected, examples = _record_layer_calls(model, batch), len(batch)
    for other, row in product(others, range(examples)):
        mixed = other.clone()
        mixed[row] = batch[row]
        for call, again in zip(expected, _record_layer_calls(model, mixed), strict=False):
            rows, others_rows = (
                [value for value in one.outputs if _has_row_per_example(value, examples)] for one in (call, again)
            )
            if _are_equal_for_example(call.inputs, again.inputs, row, examples) and not _are_equal_for_example(
                rows, others_rows, row, examples
            ):
                return call.name, call.module
    return "", model


def find_named_layer_drawing_random_numbers(model: nn.Module, batch: Tensor) -> tuple[str, nn.Module]:
    """The innermost layer that draws from torch's global generator, or the model."""
    return next(((call.name, call.module) for call in _record_layer_calls(model, batch) if call.draws), ("", model))


def _record_layer_calls(model: nn.Module, batch: Tensor) -> list[_LayerCall]:
    """The calls of all layers in a pass, inner layers before outer ones."""
    calls: list[_LayerCall] = []
    states: list[Tensor] = []

    def store_random_state(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        states.append(torch.get_rng_state())

    def recording_hook_for_layer(name: str) -> Callable[..., None]:
        def record_layer_call(
            module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any
        ) -> None:
            draws = not torch.equal(states.pop(), torch.get_rng_state())
            inputs, outputs = _copy_nested_tensors((arguments, options)), _copy_nested_tensors(output)
            calls.append(_LayerCall(name=name, module=module, inputs=inputs, outputs=outputs, draws=draws))

        return record_layer_call

    with torch.no_grad(), _hooks_on_layers(model, store_random_state, recording_hook_for_layer):
        model(batch)
    return calls


@contextmanager
def _hooks_on_layers(
    model: nn.Module, enter: Callable[..., None], leave: Callable[[str], Callable[..., None]]
) -> Iterator[None]:
    """Both hooks on every layer, removed at the end."""
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave(name), with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _copy_nested_tensors(values: Any) -> list[Tensor]:
    """Copies of all tensors in a nested structure."""
    return [value.detach().clone() for value in tree_leaves(values) if isinstance(value, Tensor)]


def _are_equal_for_example(first: list[Tensor], second: list[Tensor], row: int, examples: int) -> bool:
    """Whether tensors have the same numbers for one example, up to rounding; those without rows, in all."""
    pairs = list(zip(first, second, strict=False))
    if len(first) != len(second) or any(one.shape != two.shape for one, two in pairs):
        return False
    return all(
        torch.allclose(*_select_row_in_both_tensors(pair, row, examples), rtol=1e-9, atol=1e-9, equal_nan=True)
        for pair in pairs
    )


def _select_row_in_both_tensors(pair: tuple[Tensor, Tensor], row: int, examples: int) -> tuple[Tensor, Tensor]:
    one, two = (value[row] if _has_row_per_example(value, examples) else value for value in pair)
    return one.double(), two.double()


def _has_row_per_example(value: Tensor, examples: int) -> bool:
    return value.ndim > 0 and len(value) == examples


_PROBES = 3
_SIZES = (4, 9)
_STEP, _LEAST = 0.5, 0.02
"""The step beside the weights, relative to their root mean square, and the least that this is taken to be."""

_SCALES = (1.0, 10.0, 100.0)
_SEED = 20160701
_TOLERANCE = 1e-9
_ALONE = "to treat every example on its own"
_NO_DRAWS = "to draw nothing from torch's global generator"
_ADVICE = "no engine can bound an example's gradient otherwise, so replace this layer"


def require_separate_examples(model: nn.Module, example_shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `model` treats each example of a batch on its own, in training and in evaluation.

    It is probed at its weights, and beside them in two opposite directions. The model and torch's global generator stay
    unchanged.
    """
    refuse_known_unsafe_layers(model)
    _refuse_in_both_modes(_copy_of_model(model, torch.float64), example_shape, _refuse_dependent_outputs)
    require_separate_passes(model, example_shape, _SIZES, steps=(_STEP, -_STEP))


def require_separate_passes(
    model: nn.Module, example_shape: tuple[int, ...], sizes: Collection[int], steps: Sequence[float] = (_STEP,)
) -> None:
    """Raises ValueError unless the model beside its weights treats each example on its own in batches of these sizes.

    There are two forward passes for each size, mode and step. A step is relative to the size of each tensor of weights.
    """
    moved = _copy_of_model(model)
    for step in steps:
        _move_weights(moved, model, step)
        for examples in sizes:
            _refuse_in_both_modes(moved, example_shape, partial(require_separate_rows, examples=examples))


def _refuse_in_both_modes(
    model: nn.Module, shape: tuple[int, ...], refuse: Callable[[nn.Module, tuple[int, ...]], None]
) -> None:
    """Refuses in training and in evaluation, also a model whose passes draw global randomness or change its tensors."""
    state, before = torch.get_rng_state(), _copy_parameters_and_buffers(model)
    try:
        for mode in (True, False):
            refuse(model.train(mode), shape)
            if not torch.equal(state, torch.get_rng_state()):
                probes = _draw_seeded_probes(model, shape)
                raise _layer_refusal_error(*find_named_layer_drawing_random_numbers(model, probes), _NO_DRAWS)
    finally:
        torch.set_rng_state(state)
    after = _copy_parameters_and_buffers(model)
    for name in before.keys() | after.keys():
        if not (name in before and name in after and torch.equal(after[name], before[name])):
            path, _, key = name.rpartition(".")
            raise _layer_refusal_error(path, model.get_submodule(path), f"to keep no statistics of its inputs in {key}")


@torch.no_grad()
def _move_weights(moved: nn.Module, model: nn.Module, step: float) -> None:
    """Sets the trainable weights of a copy beside the model's, by a random step in the same direction each time."""
    generator = torch.Generator().manual_seed(_SEED)
    for there, weights in zip(moved.parameters(), model.parameters(), strict=True):
        if there.requires_grad:
            here = weights.detach().to(there.device)
            size = float(here.square().mean().sqrt())
            there.copy_(here + step * max(size, _LEAST) * torch.randn(here.shape, generator=generator))


@torch.no_grad()
def require_separate_rows(model: nn.Module, example_shape: tuple[int, ...], examples: int) -> None:
    """Raises ValueError unless in a batch of random examples half of the rows keep their bits when others change.

    The model is used as it is: its weights, its device and its mode. Two passes.
    """
    batch = _draw_seeded_probes(model, example_shape, examples)
    others = batch.flip(0) * (-10 if batch.is_floating_point() else 1)
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(_SEED)).to(batch.device)
    kept = order[: -(-examples // 2)]
    rows = (_output_tensor_for_batch(model, one)[kept] for one in (batch, others.index_copy(0, kept, batch[kept])))
    if not torch.equal(*(each.nan_to_num() for each in rows)):
        raise _layer_refusal_error(*find_named_layer_mixing_examples(model, batch, [others]), _ALONE)


def require_separate_predictions(
    model: nn.Module, example_shape: tuple[int, ...], positions: tuple[int, ...], device: torch.device | str
) -> None:
    """Raises ValueError unless a pass of the size that is scored treats each example on its own, at these weights.

    Inputs are generated, so that the answer is a function of the model. For `positions` see `records_per_forward_pass`.
    """
    with evaluation_mode(model):
        examples = records_per_forward_pass(model, example_shape, positions, device, EXAMPLES_PER_PASS)
        require_separate_rows(model, example_shape, examples)


def require_output_shape(
    model: nn.Module, example_shape: tuple[int, ...], classes: int, target_shape: tuple[int, ...] = ()
) -> None:
    """Raises ValueError unless the outputs have one column for each class, or one for a number (`classes` is 1).

    If an example has a target for each position, `target_shape` of them, each column has as many rows.
    """
    outputs = _outputs_for_seeded_probes(model, example_shape)
    expected, advice = [_PROBES, classes, *target_shape], "as dataset.classes"
    if target_shape:
        advice += " and the positions of dataset.shape; a model that predicts a token at each is model=hf_causal"
    if list(outputs.shape) != expected:
        raise ValueError(f"Expected outputs.shape={list(outputs.shape)} == {expected}, {advice}.")


def are_outputs_probabilities(model: nn.Module, example_shape: tuple[int, ...]) -> bool:
    """Whether the outputs for random examples are distributions over several classes, as behind a last softmax."""
    outputs = _outputs_for_seeded_probes(model, example_shape)
    sums = outputs.sum(-1)
    return outputs.shape[-1] > 1 and bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums))


def _copy_parameters_and_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters and buffers, including those that are not in the state_dict."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in named}


def refuse_known_unsafe_layers(model: nn.Module) -> None:
    """Raises ValueError for layers known to mix examples or to draw from torch's global generator."""
    for name, module in model.named_modules():
        _refuse_if_unsafe_layer(name or "model", module)


def _refuse_if_unsafe_layer(name: str, module: nn.Module) -> None:
    kind = type(module).__name__
    if isinstance(module, _BatchNorm) or (isinstance(module, _InstanceNorm) and module.track_running_stats):
        raise ValueError(f"Expected {name}={kind} {_ALONE}; {_replacement_advice(module)}.")
    dropping = isinstance(module, (_DropoutNd, nn.RReLU)) and getattr(module, "p", 1.0) > 0
    if dropping or (isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout > 0):
        raise ValueError(
            f"Expected {name}={kind} {_NO_DRAWS}; leave dropout out, as dpsweep.models.privatise(model) does."
        )
    for key, parameter in module._parameters.items():
        if parameter is not None and is_lazy(parameter):
            raise ValueError(f"Expected {name}={kind} to be made with the shape of its {key}.")


def _replacement_advice(module: nn.Module) -> str:
    """What to do about a layer with statistics of a batch."""
    layer = "GroupNorm" if isinstance(module, _BatchNorm) else "track_running_stats=False"
    return f"use {layer}, which dpsweep.models.privatise(model) puts in its place"


def _refuse_dependent_outputs(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse a model in which an example's output depends on other examples of the batch."""
    generator = torch.Generator().manual_seed(_SEED)
    batch = draw_probes(model, generator, _PROBES, *shape)
    outputs = _output_tensor_for_batch(model, batch.requires_grad_(batch.is_floating_point()))
    if outputs.ndim < 2 or len(outputs) != _PROBES:
        raise ValueError(f"Expected outputs.shape={list(outputs.shape)} == [{_PROBES}, classes].")
    if not outputs.isfinite().all():
        raise ValueError(f"Expected model={type(model).__name__} to give finite outputs for random inputs.")
    if batch.requires_grad and not outputs.requires_grad:
        raise ValueError(
            f"Expected model={type(model).__name__} to compute its outputs with gradients: without torch.no_grad(), "
            "detach() or numpy in forward."
        )
    weights = torch.randn(outputs.shape, generator=generator, dtype=torch.float64)
    rows = range(_PROBES) if batch.requires_grad else ()
    alone = all(_depends_on_row_only(row, (outputs[row] * weights[row]).sum(), batch) for row in rows)
    with torch.no_grad():
        others = list(_draw_batches_of_several_scales(model, generator, _PROBES, *shape))
        if not (alone and all(_is_output_unchanged(model, batch, outputs, other) for other in others)):
            raise _layer_refusal_error(*find_named_layer_mixing_examples(model, batch.detach(), others), _ALONE)


def _is_output_unchanged(model: nn.Module, batch: Tensor, outputs: Tensor, other: Tensor) -> bool:
    """Whether the first example has the same output among the other examples of another batch."""
    mixed = torch.cat([batch[:1], other[1:]])
    return torch.allclose(outputs[0], model(mixed)[0], rtol=_TOLERANCE, atol=_TOLERANCE)


@torch.no_grad()
def _outputs_for_seeded_probes(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    twin = _copy_of_model(model, torch.float64)
    return _output_tensor_for_batch(twin, _draw_seeded_probes(twin, shape))


def _draw_seeded_probes(model: nn.Module, shape: tuple[int, ...], examples: int = _PROBES) -> Tensor:
    """Random inputs, or tokens, in the type of the model's numbers and on its device."""
    probes = draw_probes(model, torch.Generator().manual_seed(_SEED), examples, *shape)
    like = next((each for each in model.parameters() if each.is_floating_point()), torch.zeros(()))
    return probes.to(like) if probes.is_floating_point() else probes.to(like.device)


def _copy_of_model(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """A copy of the model on the CPU, in training mode."""
    try:
        return copy.deepcopy(model).to("cpu", dtype).train()
    except Exception as error:  # the user's own code may raise anything
        kind = type(model).__name__
        raise ValueError(
            f"Expected model={kind} to be one that copy.deepcopy takes: {error_as_one_line(error)}."
        ) from error


def _output_tensor_for_batch(model: nn.Module, batch: Tensor) -> Tensor:
    """The model's outputs for a batch, checked to be a tensor."""
    try:
        outputs: Tensor = model(batch)
    except Exception as error:  # the user's own code may raise anything
        raise ValueError(
            f"Expected model={type(model).__name__} to take random inputs of shape={list(batch.shape)}: "
            f"{error_as_one_line(error)}."
        ) from error
    if not isinstance(outputs, Tensor):
        raise ValueError(f"Expected model={type(model).__name__} to give a tensor, got {type(outputs).__name__}.")
    return outputs


def _draw_batches_of_several_scales(model: nn.Module, generator: torch.Generator, *shape: int) -> Iterator[Tensor]:
    """Random batches of several scales and both signs; token numbers have neither, so one batch per scale."""
    for scale in _SCALES:
        batch = draw_probes(model, generator, *shape)
        yield from (scale * batch, -scale * batch) if batch.is_floating_point() else (batch,)


def _depends_on_row_only(row: int, output: Tensor, batch: Tensor) -> bool:
    """Whether the derivative of one example's output by every other example's input is exactly zero."""
    try:
        (gradient,) = torch.autograd.grad(output, batch, retain_graph=True, materialize_grads=True)
    except RuntimeError as error:  # checkpoint(use_reentrant=True) has no such derivative
        raise ValueError(
            "Expected a model whose outputs torch.autograd.grad differentiates by its inputs, so use_reentrant=False "
            f"in a checkpoint: {error_as_one_line(error)}."
        ) from error
    gradient[row] = 0
    return not gradient.any()


def _layer_refusal_error(name: str, module: nn.Module, condition: str) -> ValueError:
    return ValueError(f"Expected {name or 'model'}={type(module).__name__} {condition}; {_ADVICE}.")
