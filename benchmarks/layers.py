"""What a private step costs with each kind of layer: the engines beside the same step without privacy.

    python benchmarks/layers.py [--toy] [--rounds 9]

A step is the sum of the clipped per-example gradients of a batch, on one core. Engines check a model at the first
step, which is not measured. Each engine steps once in every round; printed are medians over the rounds of the
processor's milliseconds, and of ratios to the plain step of the same round. Processor time does not count the turns of
neighbours on the machine, but they share its caches and memory, so ratios differ from run to run. The Opacus engine
refuses torch's LSTM and GRU, and is given Opacus' DPLSTM and DPGRU in their place.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from measuring.aims import Aim
from measuring.clock import processor_seconds
from measuring.one_core import stay_on_one_core
from measuring.script import start
from opacus.layers import DPGRU, DPLSTM
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Engine, Minibatch, Task, Unsupported
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.vmap import Vmap
from dpsweep.trainers.methods.transforms import Clip

LENGTH, WIDTH, WORDS, CLASSES = 32, 64, 1000, 10
ENGINES: Mapping[str, Engine] = {
    "fused": Fused(),
    "bfloat16": Fused(precision="bfloat16"),
    "opacus": Opacus(),
    "vmap": Vmap(),
}


@dataclass(frozen=True, kw_only=True)
class Size:
    rounds: int = 9
    batch: int = 64


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cells, self.head = kind(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.cells(values)[0].mean(dim=1))
        return outputs


class Encoder(nn.Module):
    """torch's own encoder; with `token`, a class token and places that are parameters of the model."""

    def __init__(self, *, token: bool = False, wide: int = 1) -> None:
        super().__init__()
        width = wide * WIDTH
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)
        self.token = nn.Parameter(torch.zeros(1, 1, width)) if token else None
        self.wide = wide

    def forward(self, values: Tensor) -> Tensor:
        values = values.repeat(1, 1, self.wide)
        if self.token is not None:
            values = torch.cat([self.token.expand(len(values), -1, -1), values], dim=1)
        outputs: Tensor = self.head(self.encoder(values)[:, 0])
        return outputs


class Mean(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values.mean(dim=1)


def perceptron(norm: Callable[[int], nn.Module]) -> nn.Module:
    layers = [nn.Linear(WIDTH, 4 * WIDTH), norm(4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), norm(WIDTH)]
    return nn.Sequential(*layers, Mean(), nn.Linear(WIDTH, CLASSES))


def convolutions() -> nn.Module:
    layers = [nn.Conv1d(LENGTH, 64, 5, padding=2), nn.GELU(), nn.Conv1d(64, 64, 5, padding=2, stride=2), nn.GELU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * WIDTH // 2, CLASSES))


def bags() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES))


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "TransformerEncoder": Encoder,
    "four times as wide": partial(Encoder, wide=4),
    "with a class token": partial(Encoder, token=True),
    "LSTM": partial(Recurrent, nn.LSTM),
    "GRU": partial(Recurrent, nn.GRU),
    "LayerNorm": partial(perceptron, nn.LayerNorm),
    "RMSNorm": partial(perceptron, nn.RMSNorm),
    "Conv1d": convolutions,
    "EmbeddingBag": bags,
    "PReLU": partial(perceptron, lambda width: nn.PReLU()),
}


REPLACED: Mapping[str, Callable[[], nn.Module]] = {"LSTM": partial(Recurrent, DPLSTM), "GRU": partial(Recurrent, DPGRU)}
"""What the Opacus engine is given in place of torch's own layers, which it refuses."""


def steps(name: str, batch: int) -> dict[str, Callable[[], object]]:
    """The plain step and those of the engines that take the model, each after its first step."""
    torch.manual_seed(0)
    model, targets = MODELS[name](), torch.randint(CLASSES, (batch,))
    words = name == "EmbeddingBag"
    inputs = torch.randint(WORDS, (batch, LENGTH)) if words else torch.randn(batch, LENGTH, WIDTH)
    parameters, task = list(model.parameters()), Task(transform=Clip(clip_norm=1.0))

    def plain() -> object:
        return torch.autograd.grad(cross_entropy(model(inputs), targets, reduction="sum"), parameters)

    taken: dict[str, Callable[[], object]] = {"plain": plain}
    for label, engine in ENGINES.items():
        given = REPLACED[name]() if label == "opacus" and name in REPLACED else model
        step = partial(engine.bounded_gradient_sum_and_norms, given, Minibatch(inputs, targets), task)
        try:
            step()
        except Unsupported:
            continue
        taken[label] = step
    plain()
    return taken


def main(size: Size) -> list[Aim]:
    stay_on_one_core()
    print(
        f"batch {size.batch}, length {LENGTH}, width {WIDTH}; milliseconds, and times the plain step; "
        f"{size.rounds} rounds"
    )
    print(f"{'model':20} {'plain':>14}" + "".join(f"{label:>16}" for label in ENGINES))
    for name in MODELS:
        taken = steps(name, size.batch)
        table = [{label: 1e3 * processor_seconds(step) for label, step in taken.items()} for _ in range(size.rounds)]
        cells = []
        for label in ("plain", *ENGINES):
            if label not in taken:
                cells.append(f"{'refused':>16}")
                continue
            median = statistics.median(row[label] for row in table)
            ratio = statistics.median(row[label] / row["plain"] for row in table)
            cells.append(f"{median:9.1f} {ratio:5.2f}x" if label != "plain" else f"{median:14.1f}")
        print(f"{name:20} {' '.join(cells)}", flush=True)
    return []


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, batch=2), about=__doc__)
