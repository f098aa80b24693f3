"""Finds the layer of a model that fails a check, by comparing what each layer does in two passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, kw_only=True, eq=False)
class _LayerCall:
    """A call of a layer: its tensors, and whether torch's global generator moved."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: list[Tensor]
    draws: bool


def mixing_layer(model: nn.Module, batch: Tensor, others: Iterable[Tensor]) -> tuple[str, nn.Module]:
    """The innermost layer whose output for an example changes with other examples, at equal inputs; else the model.

    `others` are batches of as many examples; each example of `batch` is put into them in turn.
    """
    expected, examples = _calls(model, batch), len(batch)
    for other, row in product(others, range(examples)):
        mixed = other.clone()
        mixed[row] = batch[row]
        for call, again in zip(expected, _calls(model, mixed), strict=False):
            rows, others_rows = (
                [value for value in one.outputs if _has_rows(value, examples)] for one in (call, again)
            )
            if _equal(call.inputs, again.inputs, row, examples) and not _equal(rows, others_rows, row, examples):
                return call.name, call.module
    return "", model


def drawing_layer(model: nn.Module, batch: Tensor) -> tuple[str, nn.Module]:
    """The innermost layer that draws from torch's global generator, or the model."""
    return next(((call.name, call.module) for call in _calls(model, batch) if call.draws), ("", model))


def owner_of(model: nn.Module, tensor: str) -> tuple[str, nn.Module]:
    """The layer that holds a parameter or buffer of this name."""
    path = tensor.rpartition(".")[0]
    return path, model.get_submodule(path)


def _calls(model: nn.Module, batch: Tensor) -> list[_LayerCall]:
    """The calls of all layers in a pass, inner layers before outer ones."""
    calls: list[_LayerCall] = []
    states: list[Tensor] = []

    def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        states.append(torch.get_rng_state())

    def leave(name: str) -> Callable[..., None]:
        def record(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
            draws = not torch.equal(states.pop(), torch.get_rng_state())
            inputs, outputs = _tensors((arguments, options)), _tensors(output)
            calls.append(_LayerCall(name=name, module=module, inputs=inputs, outputs=outputs, draws=draws))

        return record

    with torch.no_grad(), _hooked(model, enter, leave):
        model(batch)
    return calls


@contextmanager
def _hooked(
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


def _tensors(values: Any) -> list[Tensor]:
    """Copies of all tensors in a nested structure."""
    return [value.detach().clone() for value in tree_leaves(values) if isinstance(value, Tensor)]


def _equal(first: list[Tensor], second: list[Tensor], row: int, examples: int) -> bool:
    """Whether tensors have the same numbers for one example, up to rounding; those without rows, in all."""
    pairs = list(zip(first, second, strict=False))
    if len(first) != len(second) or any(one.shape != two.shape for one, two in pairs):
        return False
    return all(torch.allclose(*_row(pair, row, examples), rtol=1e-9, atol=1e-9, equal_nan=True) for pair in pairs)


def _row(pair: tuple[Tensor, Tensor], row: int, examples: int) -> tuple[Tensor, Tensor]:
    one, two = (value[row] if _has_rows(value, examples) else value for value in pair)
    return one.double(), two.double()


def _has_rows(value: Tensor, examples: int) -> bool:
    return value.ndim > 0 and len(value) == examples
