"""What a private step costs beside the same step without privacy: every engine and model, interleaved, as ratios.

    python benchmarks/engine.py [ROUNDS]

Per model: one weighted sum of per-example gradients by the engine against one plain forward and backward pass on the
same random batch, in turn, on one core. Printed are the medians of both and the median of the ratios.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from trainers.engines.opacus import Opacus
from trainers.models.cnn import cnn
from trainers.models.initialise import build
from trainers.models.logistic import logistic
from trainers.models.one_hidden import one_hidden
from trainers.models.resnet20 import resnet20
from trainers.transforms import Clip

WORK: tuple[tuple[str, Callable[..., nn.Module], tuple[int, ...], int], ...] = (
    ("logistic regression", logistic, (1, 28, 28), 256),
    ("logistic regression", logistic, (1, 28, 28), 1000),
    ("784-100-10", one_hidden, (1, 28, 28), 256),
    ("784-100-10", one_hidden, (1, 28, 28), 1000),
    ("CNN", cnn, (1, 28, 28), 256),
    ("ResNet20-GN", resnet20, (3, 32, 32), 256),
)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print(f"{'model':22} {'batch':>6} {'plain ms':>9} {'engine ms':>10} {'ratio':>6}")
    for name, factory, shape, batch in WORK:
        model = build(lambda factory=factory, shape=shape: factory(shape, 10), 0)
        inputs = torch.rand(batch, *shape, generator=generator)
        targets = torch.randint(10, (batch,), generator=generator)
        engine, transform = Opacus(), Clip(clip_norm=1.0)
        loss = nn.CrossEntropyLoss(reduction="sum")

        def plain(model=model, inputs=inputs, targets=targets, loss=loss) -> None:
            torch.autograd.grad(loss(model(inputs), targets), list(model.parameters()))

        def private(model=model, inputs=inputs, targets=targets, engine=engine, transform=transform) -> None:
            engine.weighted_sum(model, inputs, targets, transform, None)

        plain(), private()
        pairs = [(seconds(plain), seconds(private)) for _ in range(rounds)]
        ratio = statistics.median(b / a for a, b in pairs)
        plains, privates = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
        print(f"{name:22} {batch:6} {plains:9.2f} {privates:10.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
