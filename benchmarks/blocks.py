"""Many points at once beside one after another: paper B's regression maps, and a logistic sweep.

python benchmarks/blocks.py [ROUNDS]

The maps are 40 x 40 points of DP-SGD on synthetic linear regression, 1000 records of 10 features, all records in every
step or each with probability .1. Beside them stand loops over the points, one by a careful hand in numpy, one in torch,
one by Opacus: each trains a few points for a few steps. All take turns on one core, and processor time is divided by
points and steps. Printed are medians, and medians of ratios within a round.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from dpsweep.trainers.data.records import Records
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.losses import CrossEntropy, Loss, SquaredError
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named import DpSgd
from dpsweep.trainers.models.initialize import build
from dpsweep.trainers.models.logistic import logistic
from dpsweep.trainers.randomness import secret_streams
from dpsweep.trainers.training.gradient_sums import StackedSums
from dpsweep.trainers.training.loop import train, train_together
from dpsweep.trainers.training.run import Run

N, D, SIDE, NOISE = 1000, 10, 40, 1.0
RATES = np.logspace(-3, 0, SIDE)
BOUNDS = np.logspace(-2, 1, SIDE)


class Regression(Records):
    """Records whose labels are real numbers."""

    def __post_init__(self) -> None:
        """Anything goes."""


def regression() -> Regression:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(N, D, generator=generator)
    noise = 0.1 * torch.randn(N, generator=generator)
    return Regression(features=features, labels=features @ torch.randn(D, generator=generator) + noise)


def digits(records: int) -> Records:
    generator = torch.Generator().manual_seed(0)
    features = torch.randint(256, (records, 1, 28, 28), generator=generator, dtype=torch.uint8)
    return Records(features=features, labels=torch.randint(10, (records,), generator=generator))


def runs_of(*, points: int, steps: int, batch_size: int, records: int) -> list[Run]:
    """Points of different clip norms."""
    return [
        Run(
            trainer=DpSgd(lr=0.1, clip_norm=1.0 + point),
            sampler=Poisson(batch_size=batch_size),
            schedule=Constant(),
            noise_multiplier=NOISE,
            steps=steps,
            train_records=records,
        )
        for point in range(points)
    ]


def together(
    data: Records,
    factory: Callable[[], nn.Module],
    loss: Loss,
    runs: list[Run],
    *,
    share: bool = False,
    device: str = "cpu",
) -> None:
    models = [build(factory, seed) for seed in range(len(runs))]
    sums = StackedSums(stack=Stack.of(models[0], loss), records=data, device=device)
    train_together(runs, models, sums, data, [secret_streams()] * len(runs), device=device, share=share)


def one_by_one(
    data: Records, factory: Callable[[], nn.Module], loss: Loss, runs: list[Run], *, device: str = "cpu"
) -> None:
    for run in runs:
        together(data, factory, loss, [run], device=device)


def by_numpy(data: Records, batch_size: int, points: int, steps: int) -> None:
    """A loop over points as one would write it by hand, bound by calls and not by arithmetic."""
    x = np.column_stack([data.features.numpy(), np.ones(N, dtype=np.float32)])
    y, rng = data.labels.numpy(), np.random.default_rng()
    lengths = np.linalg.norm(x, axis=1)
    for point in range(points):
        rate, bound = np.float32(RATES[point]), np.float32(BOUNDS[point])
        weights, scale = np.zeros(D + 1, dtype=np.float32), np.float32(NOISE * bound)
        for _ in range(steps):
            if batch_size == N:
                own, target, length = x, y, lengths
            else:
                chosen = np.flatnonzero(rng.random(N, dtype=np.float32) < batch_size / N)
                own, target, length = x[chosen], y[chosen], lengths[chosen]
            residual = own @ weights - target
            residual *= np.minimum(1, bound / (np.abs(residual) * length + 1e-12))
            noise = rng.standard_normal(D + 1, dtype=np.float32) * scale
            weights -= rate / batch_size * (residual @ own + noise)


def by_torch(data: Records, batch_size: int, points: int, steps: int) -> None:
    """The same loop with torch's tensors."""
    x, y = torch.cat([data.features, torch.ones(N, 1)], dim=1), data.labels
    for point in range(points):
        rate, bound, weights = float(RATES[point]), float(BOUNDS[point]), torch.zeros(D + 1)
        for _ in range(steps):
            own, target = x, y
            if batch_size != N:
                chosen = torch.nonzero(torch.rand(N) < batch_size / N).flatten()
                own, target = x[chosen], y[chosen]
            residual = own @ weights - target
            gradients = residual[:, None] * own
            factors = (bound / (gradients.norm(dim=1) + 1e-12)).clamp(max=1)
            weights -= rate / batch_size * (factors @ gradients + NOISE * bound * torch.randn(D + 1))


def by_opacus(data: Records, batch_size: int, points: int, steps: int) -> None:
    """Opacus' engine, on a loss of as many classes as there are outputs."""
    generator = np.random.default_rng()
    for point in range(points):
        model = build(lambda: nn.Sequential(nn.Linear(D, 2)), point)
        transform = DpSgd(lr=1.0, clip_norm=float(BOUNDS[point])).transform
        for _ in range(steps):
            chosen = torch.from_numpy(np.flatnonzero(generator.random(N) < batch_size / N))
            labels = torch.zeros(len(chosen), dtype=torch.int64)
            Opacus().weighted_sum(model, Minibatch(data.features[chosen], labels), Task(transform=transform, chunk=N))


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(name: str, contenders: dict[str, tuple[Callable[[], object], int]], rounds: int) -> None:
    """Prints each contender's time for a point's step, and the first one's share of it."""
    times = [{key: seconds(work) / steps for key, (work, steps) in contenders.items()} for _ in range(rounds + 1)][1:]
    first = next(iter(contenders))
    print(f"\n{name}")
    for key in contenders:
        each = statistics.median(row[key] for row in times) * 1e6
        ratio = statistics.median(row[key] / row[first] for row in times)
        print(
            f"  {key:34} {each:9.2f} us a step and point   1/{ratio:.1f}" if key != first else f"  {key:34} {each:9.2f}"
        )


def maps(batch_size: int, rounds: int) -> None:
    data, steps = regression(), 2500
    runs = [
        Run(
            trainer=DpSgd(lr=float(rate), clip_norm=float(bound)),
            sampler=Poisson(batch_size=batch_size),
            schedule=Constant(),
            noise_multiplier=NOISE,
            steps=steps,
            train_records=N,
        )
        for rate in RATES
        for bound in BOUNDS
    ]
    few, little = 8, 50
    compare(
        f"40 x 40 linear regression, {batch_size} of {N} records a step (a map of 5000 steps has 8 million)",
        {
            "dpsweep": (
                partial(together, data, lambda: nn.Sequential(nn.Linear(D, 1)), SquaredError(), runs),
                len(runs) * steps,
            ),
            "loop by hand, numpy": (partial(by_numpy, data, batch_size, few, 500), few * 500),
            "loop by hand, torch": (partial(by_torch, data, batch_size, few, little), few * little),
            "Opacus": (partial(by_opacus, data, batch_size, 2, 10), 20),
        },
        rounds,
    )


def logistic_sweep(rounds: int) -> None:
    data, steps, points = digits(10_000), 20, 35
    runs = runs_of(points=points, steps=steps, batch_size=256, records=10_000)
    factory, loss = partial(logistic, (1, 28, 28), 10), CrossEntropy()

    def hooks() -> None:
        for run in runs[:3]:
            train(run, build(factory, 0), Opacus(), data, secret_streams(), device="cpu")

    compare(
        "35 points of logistic regression, batches of 256",
        {
            "together": (partial(together, data, factory, loss, runs), points * steps),
            "together, the same subsamples": (partial(together, data, factory, loss, runs, share=True), points * steps),
            "one after another": (partial(one_by_one, data, factory, loss, runs), points * steps),
            "Opacus, one after another": (hooks, 3 * steps),
        },
        rounds,
    )


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    maps(N, rounds)
    maps(N // 10, rounds)
    logistic_sweep(rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
