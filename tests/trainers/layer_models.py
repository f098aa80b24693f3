"""A small model around every layer that the fused engine takes, and inputs of one example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from dpsweep.trainers.engines.recorders import Treatment
from tests.exactness import CLASSES, Model
from tests.trainers.own_models import Scaled

LENGTH, WIDTH, WORDS = 5, 4, 7


class Token(nn.Module):
    """A token of the model's own before the sequence, places, and torch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(LENGTH + 1, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        values = torch.cat([self.token.expand(len(values), -1, -1), values], dim=1) + self.places
        return self.head(self.encoder(values)[:, 0])


class Places(nn.Module):
    """Learnt vectors of places, looked up once for all examples."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape, self.table = shape, nn.Embedding(LENGTH, WIDTH)

    def forward(self, values: Tensor) -> Tensor:
        return values * self.table(torch.arange(LENGTH).view(*self.shape, LENGTH))


class Gate(nn.Module):
    """Two tensors and a number in, two tensors out; called twice by `Gated`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, values: Tensor, gate: Tensor, *, power: int) -> tuple[Tensor, dict[str, Tensor]]:
        image = values @ self.weight * self.scale
        return image * gate.sigmoid() ** power, {"image": image}


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = Gate(), nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        once, _ = self.gate(values, values.flip(1), power=2)
        twice, more = self.gate(once.tanh(), values, power=1)
        return self.head((twice + more["image"].cos()).mean(dim=1))


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(WIDTH, WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values[:, 0], values[:, 1])


class Cells(nn.Module):
    """Cells that the model itself calls at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(WIDTH, 8), nn.Linear(8, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        state = values.new_zeros(len(values), 8), values.new_zeros(len(values), 8)
        for place in range(LENGTH):
            state = self.cell(values[:, place], state)
        return self.head(state[0])


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH - 2, dtype=values.dtype)
        return self.head(self.layer(values[:, 2:], values[:, :2], tgt_mask=mask, tgt_is_causal=True).mean(dim=1))


def recurrent(kind: type[nn.RNNBase], last: bool = False, **options: object) -> nn.Module:
    """A recurrent layer read at every step, or by its last states alone."""
    layer = kind(WIDTH, 3, **options)
    directions, width = (2 if layer.bidirectional else 1), getattr(layer, "proj_size", 0) or 3

    def forward(self: nn.Module, values: Tensor) -> Tensor:
        outputs, state = self.layer(values if layer.batch_first else values.transpose(0, 1))
        hidden = state[0] if isinstance(state, tuple) else state
        if last:
            return self.head(hidden[-1] + (state[1][0] if isinstance(state, tuple) else 0))
        return self.head((outputs if layer.batch_first else outputs.transpose(0, 1)).cos().mean(dim=1))

    return Model(forward, layer=layer, head=nn.Linear(width * (1 if last else directions), CLASSES))


def attention(mask: str = "none", need_weights: bool = False, **options: object) -> nn.Module:
    """Attention of the sequence to itself, or of its first two places to all others."""
    layer = nn.MultiheadAttention(WIDTH, 2, **{"batch_first": True} | options)

    def forward(self: nn.Module, values: Tensor) -> Tensor:
        query, key = (values[:, :2], values[:, 2:]) if mask == "others" else (values, values)
        masks = {
            "causal": {"attn_mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)},
            "padding": {"key_padding_mask": torch.zeros(len(values), LENGTH, dtype=torch.bool) | (values[..., 0] > 9)},
            "heads": {"attn_mask": torch.arange(LENGTH, dtype=values.dtype).expand(2 * len(values), LENGTH, LENGTH)},
        }.get(mask, {})
        if not layer.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        outputs, weights = self.layer(query, key, key, need_weights=need_weights, **masks)
        outputs = outputs if layer.batch_first else outputs.transpose(0, 1)
        more = 0 if weights is None else weights.square().sum(dim=(1, 2))[:, None]
        return self.head(outputs.cos().mean(dim=1)) + more

    return Model(forward, layer=layer, head=nn.Linear(WIDTH, CLASSES))


def of_widths() -> nn.Module:
    """Attention whose keys and values have widths of their own."""
    return Model(
        lambda self, values: self.head(self.layer(values, values[..., :3], values[..., :2])[0].mean(dim=1)),
        layer=nn.MultiheadAttention(WIDTH, 2, kdim=3, vdim=2, batch_first=True),
        head=nn.Linear(WIDTH, CLASSES),
    )


def around(*layers: nn.Module, width: int = WIDTH) -> nn.Module:
    """Layers of sequences [n, length, width], their mean over the places, and a linear layer."""
    model = nn.Sequential(*layers)
    return Model(
        lambda self, values: self.head(self.layers(values).cos().mean(dim=1)),
        layers=model,
        head=nn.Linear(width, CLASSES),
    )


def of_channels(layer: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """A layer of [n, channels, ...], 20 numbers in all, and a linear layer over what it makes of them."""
    outputs = layer.double()(torch.zeros(1, *shape, dtype=torch.float64)).numel()
    return nn.Sequential(
        nn.Flatten(), nn.Unflatten(1, shape), layer, nn.Tanh(), nn.Flatten(), nn.Linear(outputs, CLASSES)
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, the layer that it is about, and whether its inputs are words."""

    kind: type[nn.Module]
    treatment: Treatment
    make: Callable[[], nn.Module]
    words: bool = False

    def inputs(self, examples: int, seed: int = 1) -> Tensor:
        """Inputs [n, length, width] in float64, or words [n, length]."""
        generator = torch.Generator().manual_seed(seed)
        if self.words:
            return torch.randint(WORDS, (examples, LENGTH), generator=generator)
        return torch.randn(examples, LENGTH, WIDTH, generator=generator, dtype=torch.float64)


def bag(**options: object) -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(WORDS, WIDTH, **options), nn.Tanh(), nn.Linear(WIDTH, CLASSES))


def _rule(kind: type[nn.Module], make: Callable[[], nn.Module], *, words: bool = False) -> Case:
    return Case(kind=kind, treatment=Treatment.RULE, make=make, words=words)


def _copies(kind: type[nn.Module], make: Callable[[], nn.Module]) -> Case:
    return Case(kind=kind, treatment=Treatment.COPIES, make=make)


def _maps(kind: type[nn.Module], make: Callable[[], nn.Module]) -> Case:
    return Case(kind=kind, treatment=Treatment.LINEAR_MAPS, make=make)


def _function(kind: type[nn.Module], make: Callable[[], nn.Module], *, words: bool = False) -> Case:
    return Case(kind=kind, treatment=Treatment.TORCH_FUNC, make=make, words=words)


CASES: Mapping[str, Case] = {
    "Linear": _rule(nn.Linear, lambda: around(nn.Linear(WIDTH, WIDTH))),
    "Conv1d": _rule(nn.Conv1d, lambda: of_channels(nn.Conv1d(5, 4, 3, padding=1), (5, 4))),
    "Conv1d, strides": _rule(nn.Conv1d, lambda: of_channels(nn.Conv1d(2, 3, 3, stride=2, bias=False), (2, 10))),
    "Conv1d, many channels": _rule(nn.Conv1d, lambda: of_channels(nn.Conv1d(20, 2, 1), (20, 1))),
    "Conv2d": _rule(nn.Conv2d, lambda: of_channels(nn.Conv2d(1, 3, (2, 3), padding=(0, 1), stride=(2, 1)), (1, 4, 5))),
    "GroupNorm": _copies(nn.GroupNorm, lambda: of_channels(nn.GroupNorm(2, 4), (4, 5))),
    "GroupNorm of numbers": _copies(nn.GroupNorm, lambda: of_channels(nn.GroupNorm(1, 20), (20,))),
    "GroupNorm of images": _copies(nn.GroupNorm, lambda: of_channels(nn.GroupNorm(2, 2), (2, 5, 2))),
    "LayerNorm": _rule(nn.LayerNorm, lambda: around(nn.LayerNorm(WIDTH))),
    "RMSNorm": _rule(nn.RMSNorm, lambda: around(nn.RMSNorm(WIDTH))),
    "RMSNorm, eps": _rule(nn.RMSNorm, lambda: around(nn.RMSNorm([LENGTH, WIDTH], eps=0.1))),
    "Embedding": _rule(nn.Embedding, lambda: around(nn.Embedding(WORDS, WIDTH)), words=True),
    "Embedding of places": _rule(nn.Embedding, lambda: around(Places())),
    "Embedding of places, one row": _rule(nn.Embedding, lambda: around(Places(1))),
    "EmbeddingBag, sum": _rule(nn.EmbeddingBag, partial(bag, mode="sum"), words=True),
    "EmbeddingBag, mean": _rule(nn.EmbeddingBag, bag, words=True),
    "EmbeddingBag, padding": _rule(nn.EmbeddingBag, partial(bag, padding_idx=2), words=True),
    "MultiheadAttention": _maps(nn.MultiheadAttention, attention),
    "MultiheadAttention, weights": _maps(nn.MultiheadAttention, partial(attention, need_weights=True)),
    "MultiheadAttention, causal": _maps(nn.MultiheadAttention, partial(attention, "causal", True)),
    "MultiheadAttention, padding": _maps(nn.MultiheadAttention, partial(attention, "padding")),
    "MultiheadAttention, heads": _maps(nn.MultiheadAttention, partial(attention, "heads")),
    "MultiheadAttention, others": _maps(nn.MultiheadAttention, partial(attention, "others", bias=False)),
    "MultiheadAttention, length first": _maps(nn.MultiheadAttention, partial(attention, "others", batch_first=False)),
    "MultiheadAttention, widths": _maps(nn.MultiheadAttention, of_widths),
    "TransformerEncoderLayer": _maps(
        nn.MultiheadAttention, lambda: around(nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True))
    ),
    "TransformerDecoderLayer": _maps(nn.MultiheadAttention, Decoder),
    "LSTM": _maps(nn.LSTM, lambda: recurrent(nn.LSTM, batch_first=True)),
    "LSTM, last state": _maps(nn.LSTM, lambda: recurrent(nn.LSTM, True, batch_first=True, num_layers=2)),
    "LSTM, all options": _maps(
        nn.LSTM, lambda: recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=2, bias=False)
    ),
    "GRU": _maps(nn.GRU, lambda: recurrent(nn.GRU, batch_first=True)),
    "GRU, both directions": _maps(nn.GRU, lambda: recurrent(nn.GRU, num_layers=2, bidirectional=True)),
    "RNN": _maps(nn.RNN, lambda: recurrent(nn.RNN, batch_first=True)),
    "RNN, relu": _maps(nn.RNN, lambda: recurrent(nn.RNN, True, batch_first=True, nonlinearity="relu")),
    "model with a token": _function(Token, Token),
    "layer called twice": _function(Gate, Gated),
    "Scaled": _function(Scaled, lambda: around(Scaled(WIDTH))),
    "PReLU": _function(nn.PReLU, lambda: around(nn.PReLU())),
    "Bilinear": _function(nn.Bilinear, Bilinear),
    "LSTMCell": _function(nn.LSTMCell, Cells),
    "InstanceNorm": _function(nn.InstanceNorm1d, lambda: of_channels(nn.InstanceNorm1d(4, affine=True), (4, 5))),
    "Conv1d, groups": _function(nn.Conv1d, lambda: of_channels(nn.Conv1d(4, 4, 2, groups=2), (4, 5))),
    "Conv2d, dilation": _function(nn.Conv2d, lambda: of_channels(nn.Conv2d(1, 2, 2, dilation=2), (1, 4, 5))),
    "Conv2d, same": _function(nn.Conv2d, lambda: of_channels(nn.Conv2d(1, 2, 3, padding="same"), (1, 4, 5))),
    "Conv3d": _function(nn.Conv3d, lambda: of_channels(nn.Conv3d(1, 2, 2), (1, 2, 2, 5))),
    "ConvTranspose2d": _function(nn.ConvTranspose2d, lambda: of_channels(nn.ConvTranspose2d(1, 2, 2), (1, 4, 5))),
    "EmbeddingBag, max": _function(nn.EmbeddingBag, partial(bag, mode="max"), words=True),
}
