"""What a step of training costs with noise on the lattice beside float32 noise: in turn, in one process, on one core.

    python benchmarks/noise.py [--toy] [--rounds 9]

"draw" is the noise alone, "step" a whole step of `train_together` (draw, gradients, noise, update) on 5000 records.
The other contender draws numpy's float32 noise from Philox and adds it in float32, as was done before. Milliseconds,
medians over the rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from measuring.aims import Aim
from measuring.clock import processor_seconds
from measuring.one_core import stay_on_one_core
from measuring.script import start

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.convolutional import cnn, resnet20
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import Lattices, secret_streams, standard_normal
from dpsweep.trainers.training.batch_and_noise import BatchAndNoise
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums, Sums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

WORK = (
    ("logistic regression", logistic, (1, 28, 28), 256, 30),
    ("784-100-10", one_hidden, (1, 28, 28), 256, 30),
    ("CNN", cnn, (1, 28, 28), 256, 5),
    ("ResNet20-GN", resnet20, (3, 32, 32), 64, 1),
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Rounds, and the most examples of a batch and steps of a call."""

    rounds: int = 9
    batch: int = 256
    steps: int = 30


PHILOX = np.random.Generator(np.random.Philox(1))


def float32_noise(self: BatchAndNoise, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(PHILOX.standard_normal((len(like), like.shape[1]), dtype=np.float32))


def float32_sum(self: Lattices, sums: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return sums.float() + noise * self.stds.float()


def with_float32_noise(call: Callable[[], object]) -> float:
    with (
        patch.object(BatchAndNoise, "draw_standard_normal_noise", float32_noise),
        patch.object(Lattices, "add_noise_to_sums", float32_sum),
    ):
        return processor_seconds(call)


def steps(
    factory: Callable[..., torch.nn.Module], shape: tuple[int, ...], batch: int, count: int
) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(5000, *shape, generator=generator)
    data = Records(features=features, labels=torch.randint(10, (5000,), generator=generator))
    run = Run(
        trainer=DpSgd(lr=0.1, clip_norm=1.0),
        sampler=Poisson(batch_size=batch),
        schedule=Constant(),
        noise_multiplier=1.0,
        steps=count,
        train_records=5000,
    )
    model = build_model_with_seeded_weights(lambda: factory(shape, 10), 0)
    sums: Sums
    try:
        sums = StackedSums(stack=Stack.from_model(model), records=data, device="cpu")
    except ValueError:
        sums = EngineSums(models=[model], engine=Fused(), records=data, device="cpu", chunk=None)
    return partial(train_together, [run], [model], sums, data, [secret_streams()], device="cpu")


def main(size: Size) -> list[Aim]:
    stay_on_one_core()
    print(f"{'model':20} {'numbers':>8} {'batch':>5}  {'draw32':>7} {'draw64':>7}  {'step32':>8} {'step64':>8}  ratio")
    rng = secret_streams().noise
    for name, factory, shape, most, declared in WORK:
        batch, count = min(most, size.batch), min(declared, size.steps)
        numbers = sum(parameter.numel() for parameter in factory(shape, 10).parameters())
        call = steps(factory, shape, batch, count)
        draws = partial(PHILOX.standard_normal, numbers, dtype=np.float32), partial(standard_normal, rng, numbers)
        call()
        table = [
            (
                *(processor_seconds(draw) for draw in draws),
                with_float32_noise(call) / count,
                processor_seconds(call) / count,
            )
            for _ in range(size.rounds)
        ]
        draw32, draw64, step32, step64 = (statistics.median(column) * 1e3 for column in zip(*table, strict=True))
        ratio = statistics.median(row[3] / row[2] if row[2] else math.nan for row in table)
        times = f"{draw32:7.3f} {draw64:7.3f}  {step32:8.3f} {step64:8.3f}  {ratio:5.2f}"
        print(f"{name:20} {numbers:8} {batch:5}  {times}", flush=True)
    return []


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, batch=2, steps=1), about=__doc__)
