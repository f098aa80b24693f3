"""Layers that consist of linear maps and functions without parameters: each map's calls are recorded on their own.

During a pass the layer's `forward` is replaced by a function that computes the same from calls of `LinearMaps`. So a
weight that is used at every step of a sequence, or whose rows are used one part at a time, has one gradient: the sum of
outer products over all calls and positions, formed by one matrix product per example.

torch's MultiheadAttention is computed from linear maps and attention without parameters. Source: Vaswani et al. 2017,
Section 3.2.2; `torch.nn.functional.multi_head_attention_forward`. torch's recurrent layers (LSTM, GRU, RNN) are
computed step by step; the maps of the inputs take all steps at once. Source: the equations in the documentation of
`torch.nn.LSTM`, `torch.nn.GRU` and `torch.nn.RNN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from dpsweep.trainers.engines.interface import Unsupported
from dpsweep.trainers.engines.layer_gradients import DenseGradient, LayerGradient
from dpsweep.trainers.engines.recorders import Layer, RecordedPass


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

    def store_gradient(self, gradient: Tensor) -> None:
        self.gradient = gradient


@dataclass(kw_only=True, eq=False)
class LinearMaps:
    """The recorder of a layer whose method `forward` is replaced by a function of the layer and these maps."""

    layer: Layer
    current: RecordedPass
    forward: Callable[..., Any]
    _parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    _calls: dict[LinearPart, list[_MapCall]] = field(default_factory=dict)

    def attach_returning_undo(self) -> Callable[[], None]:
        """Replaces the module's `forward`."""
        module = self.layer.module
        self._parameters = dict(module.named_parameters())

        def replaced_forward(*arguments: Any, **options: Any) -> Any:
            return self.forward(module, self, *arguments, **options)

        module.__dict__["forward"] = replaced_forward
        return lambda: module.__dict__.__delitem__("forward")

    def __call__(self, inputs: Tensor, part: LinearPart) -> Tensor:
        """The linear map of inputs [n, ..., in] to [n, ..., out]; recorded during a pass."""
        weight = _parameter_rows(self._parameters[part.weight], part.rows)
        bias = None if part.bias is None else _parameter_rows(self._parameters[part.bias], part.bias_rows)
        outputs = functional.linear(inputs, weight, bias)
        if self.current.active:
            if not self.current.may_have_row_per_example(inputs):
                raise Unsupported(self.layer.name, self.layer.module, "to be called with one row for each example")
            call = _MapCall(inputs=inputs.detach(), version=inputs._version)
            self._calls.setdefault(part, []).append(call)
            self.current.register_output_gradient_callback(outputs, call.store_gradient)
        return outputs

    def collect_gradients(self) -> Mapping[str, LayerGradient]:
        """The sums over the calls; zero for rows on which the loss does not depend."""
        calls, self._calls = self._calls, {}
        rows: dict[str, Tensor] = {}
        for part, recorded in calls.items():
            used = [call for call in recorded if call.gradient is not None]
            if any(call.inputs._version != call.version for call in used):
                raise Unsupported(self.layer.name, self.layer.module, "to have inputs that are not overwritten")
            if used:
                inputs = _concatenate_calls_over_positions([call.inputs for call in used])
                gradient = _concatenate_calls_over_positions(
                    [call.gradient for call in used if call.gradient is not None]
                )
                if part.weight in self.layer.trained:
                    with self.current.autocast_context_for_narrow_dtype(gradient):
                        products = torch.bmm(gradient.transpose(1, 2), self.current.to_parameter_dtype(inputs))
                    self._add_gradient_of_parameter_rows(rows, part.weight, part.rows, products)
                if part.bias in self.layer.trained:
                    self._add_gradient_of_parameter_rows(rows, part.bias, part.bias_rows, gradient.sum(dim=1))
        if rows.keys() != self.layer.trained.keys():
            condition = "to be called in a pass, and the loss to depend on all of its parameters"
            raise Unsupported(self.layer.name, self.layer.module, condition)
        return {name: DenseGradient(rows=gradient) for name, gradient in rows.items()}

    def _add_gradient_of_parameter_rows(
        self, rows: dict[str, Tensor], name: str | None, part: tuple[int, int] | None, gradient: Tensor
    ) -> None:
        """Adds the gradients of some rows of a parameter to those of the whole parameter."""
        if name is None:
            return
        if part is None and name not in rows:
            rows[name] = gradient
            return
        whole = rows.setdefault(name, gradient.new_zeros(len(gradient), *self._parameters[name].shape))
        first, last = part or (0, whole.shape[1])
        whole[:, first:last] += gradient


def _parameter_rows(parameter: Tensor, part: tuple[int, int] | None) -> Tensor:
    return parameter if part is None else parameter[part[0] : part[1]]


def _concatenate_calls_over_positions(values: list[Tensor]) -> Tensor:
    """Values [n, ..., d] of all calls as [n, positions, d]."""
    flat = [value.unsqueeze(1) if value.ndim == 2 else value.flatten(1, -2) for value in values]
    return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


def can_record_attention(layer: nn.Module) -> bool:
    """Whether `attention` computes this layer: without appended keys, and without dropout."""
    if not isinstance(layer, nn.MultiheadAttention):
        return False
    return layer.bias_k is None and layer.bias_v is None and not layer.add_zero_attn and layer.dropout == 0


def recorded_attention(
    layer: nn.MultiheadAttention,
    maps: LinearMaps,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `nn.MultiheadAttention.forward` returns for batches; `is_causal` only repeats what `attn_mask` says."""
    if query.ndim != 3 or (is_causal and attn_mask is None):
        raise ValueError("Expected attention of batches, with attn_mask where is_causal is set")
    if not layer.batch_first:
        query, key, value = _transpose_examples_first(query, key, value)
    queries, keys, values = (
        _split_by_heads(layer, part) for part in _project_query_key_value(layer, maps, query, key, value)
    )
    mask = _combined_additive_mask(attn_mask, key_padding_mask, queries)
    if need_weights:
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
        weights = (scores if mask is None else scores + mask).softmax(dim=3)
        mixed = weights @ values
    else:
        weights, mixed = None, scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    bias = None if layer.out_proj.bias is None else "out_proj.bias"
    outputs = maps(mixed.transpose(1, 2).flatten(2), LinearPart(weight="out_proj.weight", bias=bias))
    averaged = weights.mean(dim=1) if weights is not None and average_attn_weights else weights
    return outputs if layer.batch_first else outputs.transpose(0, 1), averaged


def _transpose_examples_first(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Examples first; the same tensor stays the same tensor."""
    first = query.transpose(0, 1)
    second = first if key is query else key.transpose(0, 1)
    return first, second, second if value is key else value.transpose(0, 1)


def _project_query_key_value(
    layer: nn.MultiheadAttention, maps: LinearMaps, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, ...]:
    """Queries, keys and values [n, length, width], by one map where all three are of the same tensor."""
    bias, width = None if layer.in_proj_bias is None else "in_proj_bias", layer.embed_dim
    if query is key is value and layer.in_proj_weight is not None:
        return maps(query, LinearPart(weight="in_proj_weight", bias=bias)).chunk(3, dim=2)
    projected = []
    for number, (name, inputs) in enumerate(zip("qkv", (query, key, value), strict=True)):
        rows = (number * width, (number + 1) * width)
        if layer.in_proj_weight is None:
            part = LinearPart(weight=f"{name}_proj_weight", bias=bias, bias_rows=rows)
        else:
            part = LinearPart(weight="in_proj_weight", rows=rows, bias=bias, bias_rows=rows)
        projected.append(maps(inputs, part))
    return tuple(projected)


def _split_by_heads(layer: nn.MultiheadAttention, values: Tensor) -> Tensor:
    """Values [n, length, width] as [n, heads, length, width of a head]."""
    return values.view(*values.shape[:2], layer.num_heads, -1).transpose(1, 2)


def _combined_additive_mask(mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """Both masks as one summand of the scores [n, heads, length, keys], or of a shape that is broadcast to it."""
    summands = []
    if mask is not None:
        mask = mask.view(len(query), -1, *mask.shape[1:]) if mask.ndim == 3 else mask
        summands.append(_additive_mask(mask, query))
    if padding is not None:
        summands.append(_additive_mask(padding[:, None, None, :], query))
    return sum(summands[1:], summands[0]) if summands else None


def _additive_mask(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is True where attention is forbidden, as numbers that are added to the scores."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


State: TypeAlias = tuple[Tensor, ...]
"""The hidden state [n, hidden], and for an LSTM the cell state [n, cells]."""

Cell: TypeAlias = Callable[[Tensor, Tensor, State], State]
"""Maps the input's and the hidden state's images under their linear maps, and the last state, to the next state."""


def can_record_recurrent(layer: nn.Module) -> bool:
    """Whether `recurrent` computes this layer: without dropout between its layers."""
    return isinstance(layer, nn.RNNBase) and layer.mode in _CELLS and layer.dropout == 0


def run_recurrent_through_maps(
    layer: nn.RNNBase, maps: LinearMaps, inputs: Tensor, hx: Tensor | State | None = None
) -> tuple[Tensor, Tensor | State]:
    """What `forward` of the layer returns for a batch: the outputs of all steps, and the last state of every layer."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 3:
        raise ValueError("Expected batches of sequences, not packed")
    values = inputs if layer.batch_first else inputs.transpose(0, 1)
    first = _initial_states(layer, values, hx)
    last: list[State] = []
    directions = ("", "_reverse") if layer.bidirectional else ("",)
    for number in range(layer.num_layers):
        outputs = []
        for direction in directions:
            steps, state = _run_recurrent_layer(layer, maps, values, first[len(last)], f"_l{number}{direction}")
            outputs.append(steps)
            last.append(state)
        values = torch.cat(outputs, dim=2)
    states = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    return values if layer.batch_first else values.transpose(0, 1), states if layer.mode == "LSTM" else states[0]


def _initial_states(layer: nn.RNNBase, values: Tensor, given: Tensor | State | None) -> list[State]:
    """The first state of every layer and direction; zeros where none is given."""
    number = layer.num_layers * (2 if layer.bidirectional else 1)
    if given is None:
        hidden = values.new_zeros(len(values), layer.proj_size or layer.hidden_size)
        cells = values.new_zeros(len(values), layer.hidden_size)
        return [(hidden, cells) if layer.mode == "LSTM" else (hidden,)] * number
    parts = (given,) if isinstance(given, Tensor) else tuple(given)
    return list(zip(*parts, strict=True))


def _run_recurrent_layer(
    layer: nn.RNNBase, maps: LinearMaps, values: Tensor, state: State, name: str
) -> tuple[Tensor, State]:
    """The hidden states [n, length, hidden] of one layer in one direction, and its last state."""
    biases = (f"bias_ih{name}", f"bias_hh{name}") if layer.bias else (None, None)
    images = maps(values, LinearPart(weight=f"weight_ih{name}", bias=biases[0])).unbind(dim=1)
    hidden = LinearPart(weight=f"weight_hh{name}", bias=biases[1])
    projection = LinearPart(weight=f"weight_hr{name}")
    cell = _CELLS[layer.mode]
    order = range(len(images) - 1, -1, -1) if name.endswith("_reverse") else range(len(images))
    steps = list(images)
    for place in order:
        state = cell(images[place], maps(state[0], hidden), state)
        if layer.proj_size:
            state = (maps(state[0], projection), *state[1:])
        steps[place] = state[0]
    return torch.stack(steps, dim=1), state


def _lstm_step(image: Tensor, hidden: Tensor, state: State) -> State:
    entry, forget, cell, out = (image + hidden).chunk(4, dim=1)
    cells = forget.sigmoid() * state[1] + entry.sigmoid() * cell.tanh()
    return out.sigmoid() * cells.tanh(), cells


def _gru_step(image: Tensor, hidden: Tensor, state: State) -> State:
    (reset, update, new), (h_reset, h_update, h_new) = image.chunk(3, dim=1), hidden.chunk(3, dim=1)
    candidate = (new + (reset + h_reset).sigmoid() * h_new).tanh()
    return (candidate + (update + h_update).sigmoid() * (state[0] - candidate),)


_CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "LSTM": _lstm_step,
        "GRU": _gru_step,
        "RNN_TANH": lambda image, hidden, state: ((image + hidden).tanh(),),
        "RNN_RELU": lambda image, hidden, state: ((image + hidden).relu(),),
    }
)
