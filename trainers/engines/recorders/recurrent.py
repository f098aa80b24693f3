"""torch's recurrent layers (LSTM, GRU, RNN), step by step, from linear maps and functions without parameters.

The maps of the inputs take all steps at once. Source: the equations in the documentation of `torch.nn.LSTM`,
`torch.nn.GRU` and `torch.nn.RNN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.recorders.linear_maps import LinearMaps, LinearPart

State: TypeAlias = tuple[Tensor, ...]
"""The hidden state [n, hidden], and for an LSTM the cell state [n, cells]."""

Cell: TypeAlias = Callable[[Tensor, Tensor, State], State]
"""Maps the input's and the hidden state's images under their linear maps, and the last state, to the next state."""


def plain_recurrent(layer: nn.Module) -> bool:
    """Whether `recurrent` computes this layer: without dropout between its layers."""
    return isinstance(layer, nn.RNNBase) and layer.mode in _CELLS and layer.dropout == 0


def recurrent(
    layer: nn.RNNBase, maps: LinearMaps, inputs: Tensor, hx: Tensor | State | None = None
) -> tuple[Tensor, Tensor | State]:
    """What `forward` of the layer returns for a batch: the outputs of all steps, and the last state of every layer."""
    if not isinstance(inputs, Tensor) or inputs.ndim != 3:
        raise ValueError("Expected batches of sequences, not packed")
    values = inputs if layer.batch_first else inputs.transpose(0, 1)
    first = _first_states(layer, values, hx)
    last: list[State] = []
    directions = ("", "_reverse") if layer.bidirectional else ("",)
    for number in range(layer.num_layers):
        outputs = []
        for direction in directions:
            steps, state = _run(layer, maps, values, first[len(last)], f"_l{number}{direction}")
            outputs.append(steps)
            last.append(state)
        values = torch.cat(outputs, dim=2)
    states = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    return values if layer.batch_first else values.transpose(0, 1), states if layer.mode == "LSTM" else states[0]


def _first_states(layer: nn.RNNBase, values: Tensor, given: Tensor | State | None) -> list[State]:
    """The first state of every layer and direction; zeros where none is given."""
    number = layer.num_layers * (2 if layer.bidirectional else 1)
    if given is None:
        hidden = values.new_zeros(len(values), layer.proj_size or layer.hidden_size)
        cells = values.new_zeros(len(values), layer.hidden_size)
        return [(hidden, cells) if layer.mode == "LSTM" else (hidden,)] * number
    parts = (given,) if isinstance(given, Tensor) else tuple(given)
    return list(zip(*parts, strict=True))


def _run(layer: nn.RNNBase, maps: LinearMaps, values: Tensor, state: State, name: str) -> tuple[Tensor, State]:
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


def _lstm(image: Tensor, hidden: Tensor, state: State) -> State:
    entry, forget, cell, out = (image + hidden).chunk(4, dim=1)
    cells = forget.sigmoid() * state[1] + entry.sigmoid() * cell.tanh()
    return out.sigmoid() * cells.tanh(), cells


def _gru(image: Tensor, hidden: Tensor, state: State) -> State:
    (reset, update, new), (h_reset, h_update, h_new) = image.chunk(3, dim=1), hidden.chunk(3, dim=1)
    candidate = (new + (reset + h_reset).sigmoid() * h_new).tanh()
    return (candidate + (update + h_update).sigmoid() * (state[0] - candidate),)


_CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "LSTM": _lstm,
        "GRU": _gru,
        "RNN_TANH": lambda image, hidden, state: ((image + hidden).tanh(),),
        "RNN_RELU": lambda image, hidden, state: ((image + hidden).relu(),),
    }
)
