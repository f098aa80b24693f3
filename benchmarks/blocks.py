"""Many points at once beside one after another: paper B's regression maps, a logistic sweep, and one on word counts.

    python benchmarks/blocks.py [--toy] [--rounds 9]

The maps are 40 x 40 points of DP-SGD on synthetic linear regression, 1000 records of 10 features, all records in every
step or each with probability .1. Beside them stand loops over the points, one by a careful hand in numpy, one in torch,
one by Opacus: each trains a few points for a few steps. All take turns on one core, and processor time is divided by
points and steps. Printed are medians, and medians of ratios within a round. The aims
beside the loops were set when the loop by hand was slower. The word counts have as many records, words and words in a
record as ENRON's, and batches of 250; sparse and dense rows are the same numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from measuring.aims import Aim
from measuring.clock import processor_seconds
from measuring.one_core import stay_on_one_core
from measuring.script import start
from torch import nn

from dpsweep.trainers.data.records import Records, Scaling
from dpsweep.trainers.declarations.batch_sampling import Poisson
from dpsweep.trainers.declarations.losses import CrossEntropy, Loss, SquaredError
from dpsweep.trainers.declarations.lr_schedules import Constant
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.opacus import Opacus
from dpsweep.trainers.engines.stacked import Stack
from dpsweep.trainers.methods.named_methods import DpSgd
from dpsweep.trainers.models.fully_connected import logistic
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.randomness import secret_streams
from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums
from dpsweep.trainers.training.loop import train_together
from dpsweep.trainers.training.run import Run

N, D, SIDE, NOISE = 1000, 10, 40, 1.0
RATES = np.logspace(-3, 0, SIDE)
BOUNDS = np.logspace(-2, 1, SIDE)
NUMPY, TORCH, OPACUS = "loop by hand, numpy", "loop by hand, torch", "Opacus"


@dataclass(frozen=True, kw_only=True)
class Size:
    """Points of a side of a map and their steps, and those of the loops beside it and of the logistic sweep."""

    rounds: int = 9
    side: int = SIDE
    map_steps: int = 2500
    few: int = 8
    loop_steps: int = 50
    hook_steps: int = 10
    points: int = 35
    sweep_steps: int = 20
    words: int = 3000
    word_steps: int = 100


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
    models = [build_model_with_seeded_weights(factory, seed) for seed in range(len(runs))]
    sums = StackedSums(stack=Stack.from_model(models[0], loss), records=data, device=device)
    train_together(runs, models, sums, data, [secret_streams()] * len(runs), device=device, share=share)


def one_by_one(
    data: Records, factory: Callable[[], nn.Module], loss: Loss, runs: list[Run], *, device: str = "cpu"
) -> None:
    for run in runs:
        together(data, factory, loss, [run], device=device)


def by_numpy(data: Records, batch_size: int, points: int, steps: int) -> None:
    """A loop over points as one would write it by hand, bound by calls and not by arithmetic."""
    x = np.column_stack([data.stored_features().numpy(), np.ones(N, dtype=np.float32)])
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
    x, y = torch.cat([data.stored_features(), torch.ones(N, 1)], dim=1), data.labels
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
        model = build_model_with_seeded_weights(lambda: nn.Sequential(nn.Linear(D, 2)), point)
        transform = DpSgd(lr=1.0, clip_norm=float(BOUNDS[point])).transform
        for _ in range(steps):
            chosen = torch.from_numpy(np.flatnonzero(generator.random(N) < batch_size / N))
            labels = torch.zeros(len(chosen), dtype=torch.int64)
            Opacus().bounded_gradient_sum_and_norms(
                model, Minibatch(data.stored_features(chosen.numpy()), labels), Task(transform=transform, chunk=N)
            )


def compare(name: str, contenders: Mapping[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Prints each contender's time for a point's step; returns the first one's share of each other's."""
    works = contenders.items()
    times = [{key: processor_seconds(work) / steps for key, (work, steps) in works} for _ in range(rounds + 1)][1:]
    first, *others = contenders
    print(f"\n{name}\n  {first:34} {1e6 * statistics.median(row[first] for row in times):9.2f} us a step and point")
    shares = {key: statistics.median(row[first] / row[key] for row in times) for key in others}
    for key, share in shares.items():
        print(f"  {key:34} {1e6 * statistics.median(row[key] for row in times):9.2f}   1/{1 / share:.1f}")
    return shares


def maps(batch_size: int, size: Size, at_most: Mapping[str, float]) -> list[Aim]:
    data, loss = regression(), SquaredError()
    runs = [
        Run(
            trainer=DpSgd(lr=float(rate), clip_norm=float(bound)),
            sampler=Poisson(batch_size=batch_size),
            schedule=Constant(),
            noise_multiplier=NOISE,
            steps=size.map_steps,
            train_records=N,
        )
        for rate in RATES[: size.side]
        for bound in BOUNDS[: size.side]
    ]
    few, steps = size.few, size.loop_steps
    name = f"{size.side} x {size.side} linear regression, {batch_size} of {N} records a step"
    shares = compare(
        name,
        {
            "dpsweep": (
                partial(together, data, lambda: nn.Sequential(nn.Linear(D, 1)), loss, runs),
                len(runs) * size.map_steps,
            ),
            NUMPY: (partial(by_numpy, data, batch_size, few, 10 * steps), 10 * few * steps),
            TORCH: (partial(by_torch, data, batch_size, few, steps), few * steps),
            OPACUS: (partial(by_opacus, data, batch_size, 2, size.hook_steps), 2 * size.hook_steps),
        },
        size.rounds,
    )
    return [Aim(name=f"{name}, beside {key}", measured=shares[key], at_most=most) for key, most in at_most.items()]


def logistic_sweep(size: Size) -> None:
    data, steps = digits(10_000), size.sweep_steps
    runs = runs_of(points=size.points, steps=steps, batch_size=256, records=10_000)
    factory, loss, hooked = partial(logistic, (1, 28, 28), 10), CrossEntropy(), runs[:3]

    def hooks() -> None:
        for run in hooked:
            model = build_model_with_seeded_weights(factory, 0)
            sums = EngineSums(models=[model], engine=Opacus(), records=data, device="cpu", chunk=None)
            train_together([run], [model], sums, data, [secret_streams()], device="cpu")

    compare(
        f"{size.points} points of logistic regression, batches of 256",
        {
            "together": (partial(together, data, factory, loss, runs), size.points * steps),
            "together, the same subsamples": (
                partial(together, data, factory, loss, runs, share=True),
                size.points * steps,
            ),
            "one after another": (partial(one_by_one, data, factory, loss, runs), size.points * steps),
            "Opacus, one after another": (hooks, len(hooked) * steps),
        },
        size.rounds,
    )


def mails(words: int) -> Records:
    """Counts of words, of which a mail has about 170 in 3000."""
    generator, count = torch.Generator().manual_seed(0), 4137
    counts = torch.randint(1, 11, (count, words), generator=generator, dtype=torch.uint8)
    counts[torch.rand(count, words, generator=generator) >= 170 / 3000] = 0
    labels = torch.randint(2, (count,), generator=generator)
    return Records(features=counts, labels=labels, scaling=Scaling(scale=10.0), nonzero=words * 170 // 3000)


def word_counts(size: Size) -> Aim:
    data, steps = mails(size.words), size.word_steps
    runs = runs_of(points=size.points, steps=steps, batch_size=250, records=len(data))
    factory, loss, work = partial(logistic, (size.words,), 2), CrossEntropy(), size.points * steps
    name = f"{size.points} points of logistic regression on counts of {size.words} words, batches of 250"
    shares = compare(
        name,
        {
            "sparse rows": (partial(together, data, factory, loss, runs), work),
            "dense rows": (partial(together, replace(data, nonzero=None), factory, loss, runs), work),
        },
        size.rounds,
    )
    return Aim(name=f"{name}, beside dense rows", measured=shares["dense rows"], at_most=0.4)


def main(size: Size) -> list[Aim]:
    stay_on_one_core()
    aims = maps(N, size, {NUMPY: 1 / 8, TORCH: 1 / 40, OPACUS: 1 / 120}) + maps(N // 10, size, {NUMPY: 1 / 5})
    logistic_sweep(size)
    return [*aims, word_counts(size)]


if __name__ == "__main__":
    toy = Size(
        rounds=1,
        side=2,
        map_steps=3,
        few=2,
        loop_steps=1,
        hook_steps=1,
        points=2,
        sweep_steps=2,
        words=60,
        word_steps=2,
    )
    start(main, full=Size(), toy=toy, about=__doc__)
