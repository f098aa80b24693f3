"""Layers that consist of linear maps and functions without parameters: each map's calls are recorded on their own.

During a pass the layer's `forward` is replaced by a function that computes the same from calls of `LinearMaps`. So a
weight that is used at every step of a sequence, or whose rows are used one part at a time, has one gradient: the sum of
outer products over all calls and positions, formed by one matrix product per example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpsweep.trainers.engines.gradients.layer_gradients import DenseGradient, LayerGradient
from dpsweep.trainers.engines.gradients.supported_layers import Layer, Unsupported
from dpsweep.trainers.engines.recorders.recorded_pass import RecordedPass


@dataclass(frozen=True, kw_only=True)
class LinearPart:
    """A linear map by some rows of a parameter, and the same number of rows of a bias; by default by all rows."""

    weight: str
    bias: str | None = None
    rows: tuple[int, int] | None = None
    bias_rows: tuple[int, int] | None = None


@dataclass(kw_only=True, eq=False)
class _MapCall:
    inputs: Tensor
    version: int
    gradient: Tensor | None = None

    def consume(self, gradient: Tensor) -> None:
        self.gradient = gradient


@dataclass(kw_only=True, eq=False)
class LinearMaps:
    """The recorder of a layer whose method `forward` is replaced by a function of the layer and these maps."""

    layer: Layer
    current: RecordedPass
    forward: Callable[..., Any]
    _parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    _calls: dict[LinearPart, list[_MapCall]] = field(default_factory=dict)

    def attach(self) -> Callable[[], None]:
        """Replaces the module's `forward`."""
        module = self.layer.module
        self._parameters = dict(module.named_parameters())

        def forward(*arguments: Any, **options: Any) -> Any:
            return self.forward(module, self, *arguments, **options)

        module.__dict__["forward"] = forward
        return lambda: module.__dict__.__delitem__("forward")

    def __call__(self, inputs: Tensor, part: LinearPart) -> Tensor:
        """The linear map of inputs [n, ..., in] to [n, ..., out]; recorded during a pass."""
        weight = _rows(self._parameters[part.weight], part.rows)
        bias = None if part.bias is None else _rows(self._parameters[part.bias], part.bias_rows)
        outputs = functional.linear(inputs, weight, bias)
        if self.current.active:
            if not self.current.has_rows(inputs):
                raise Unsupported(self.layer.name, self.layer.module, "to be called with one row for each example")
            call = _MapCall(inputs=inputs.detach(), version=inputs._version)
            self._calls.setdefault(part, []).append(call)
            self.current.watch(outputs, call.consume)
        return outputs

    def collect(self) -> Mapping[str, LayerGradient]:
        """The sums over the calls; zero for rows on which the loss does not depend."""
        calls, self._calls = self._calls, {}
        rows: dict[str, Tensor] = {}
        for part, recorded in calls.items():
            used = [call for call in recorded if call.gradient is not None]
            if any(call.inputs._version != call.version for call in used):
                raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
            if used:
                inputs = _positions([call.inputs for call in used])
                gradient = _positions([call.gradient for call in used if call.gradient is not None])
                if part.weight in self.layer.trained:
                    with self.current.products(gradient):
                        products = torch.bmm(gradient.transpose(1, 2), self.current.wide(inputs))
                    self._add(rows, part.weight, part.rows, products)
                if part.bias in self.layer.trained:
                    self._add(rows, part.bias, part.bias_rows, gradient.sum(dim=1))
        if rows.keys() != self.layer.trained.keys():
            condition = "to be called in a pass, and the loss to depend on all of its parameters"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        return {name: DenseGradient(rows=gradient) for name, gradient in rows.items()}

    def _add(self, rows: dict[str, Tensor], name: str | None, part: tuple[int, int] | None, gradient: Tensor) -> None:
        """Adds the gradients of some rows of a parameter to those of the whole parameter."""
        if name is None:
            return
        if part is None and name not in rows:
            rows[name] = gradient
            return
        whole = rows.setdefault(name, gradient.new_zeros(len(gradient), *self._parameters[name].shape))
        first, last = part or (0, whole.shape[1])
        whole[:, first:last] += gradient


def _rows(parameter: Tensor, part: tuple[int, int] | None) -> Tensor:
    return parameter if part is None else parameter[part[0] : part[1]]


def _positions(values: list[Tensor]) -> Tensor:
    """Values [n, ..., d] of all calls as [n, positions, d]."""
    flat = [value.unsqueeze(1) if value.ndim == 2 else value.flatten(1, -2) for value in values]
    return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)
