"""Models as users write them: recurrent, with attention, with parameters that no layer of torch's owns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LENGTH, WIDTH, CLASSES = 6, 5, 3


class Recurrent(nn.Module):
    """A recurrent classifier of sequences [n, length, width]."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options: object) -> None:
        super().__init__()
        options = {"batch_first": True, "num_layers": 2, "bidirectional": True} | options
        self.cells = kind(WIDTH, 7, **options)
        self.head = nn.Linear(2 * (options.get("proj_size") or 7), CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        sequence = values if self.cells.batch_first else values.transpose(0, 1)
        states, _ = self.cells(sequence)
        return self.head(states[:, -1] if self.cells.batch_first else states[-1])


class Attention(nn.Module):
    """Attention among places, which have vectors of their own, and a query that is a parameter of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(WIDTH, 8)
        self.places = nn.Embedding(LENGTH, 8)
        self.query = nn.Parameter(torch.randn(1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        known = self.entry(values) + self.places(torch.arange(LENGTH, device=values.device))
        query = self.query.expand(len(values), 1, 8)
        return self.head(self.attention(query, known, known, need_weights=False)[0].squeeze(1))


class Encoder(nn.Module):
    """torch's own layer of an encoder, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 1, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.layer(values).mean(dim=1))


class Scaled(nn.Module):
    """A layer of the user's own: gains to a learnt power, kept at a constant's distance, used twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.power = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.full((width,), 0.25))

    def forward(self, values: Tensor) -> Tensor:
        return values.abs().add(0.1) ** self.power * self.gain + self.shift


class Custom(nn.Module):
    """A custom layer that is called twice, and a head with weights that the entry uses too."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled(WIDTH)
        self.tied = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        inner = self.scaled(self.tied(self.scaled(values.mean(dim=1))))
        return self.head(inner @ self.tied.weight)


class Halves(torch.autograd.Function):
    """A function with a derivative of its own, which says nothing of vmap."""

    @staticmethod
    def forward(context: object, values: Tensor) -> Tensor:
        return values / 2

    @staticmethod
    def backward(context: object, gradient: Tensor) -> Tensor:
        return gradient / 2


class Stubborn(nn.Module):
    """A model that torch cannot vectorise."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, 4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        state = values.new_zeros(len(values), 4)
        for place in range(LENGTH):
            state = Halves.apply(self.cell(values[:, place], state))
        return self.head(state)


MODELS = {
    "lstm": Recurrent,
    "lstm, length first": lambda: Recurrent(batch_first=False),
    "lstm, projected": lambda: Recurrent(proj_size=3),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
    "attention": Attention,
    "encoder": Encoder,
    "custom": Custom,
    "stubborn": Stubborn,
}
