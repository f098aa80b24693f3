"""What a step of the training loop costs in this tree, beside another tree of dpsweep: two processes in turn.

    python benchmarks/steps.py [--toy] [--before FOLDER] [--rounds 5] [--steps 40]

FOLDER is a checkout of the other version (`git worktree add FOLDER COMMIT`); the toy run compares this tree with
itself. A step draws its batch, bounds and sums the gradients, adds noise and updates the weights of all runs. In each
round both processes take their turn at a row, each with one thread; a turn's number is the median processor time of its
steps, the first one left out. Printed is the least turn of each, in milliseconds, and their ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: models on generated records of a shape, `runs` of them together, `batch` of `records` units a step."""

    model: str
    shape: tuple[int, ...] = (1, 28, 28)
    engine: str = "stacked"
    runs: int = 1
    batch: int = 250
    records: int = 5000
    units: bool = False
    nonzero: int | None = None


ROWS: Mapping[str, Row] = {
    "logistic 784, 250 of 5000": Row(model="logistic"),
    "18 x logistic 784, 250 of 5000 each": Row(model="logistic", runs=18),
    "18 x 784-100-10, 250 of 5000 each": Row(model="one_hidden", runs=18),
    "784-100-10, fused, 250 of 5000": Row(model="one_hidden", engine="fused"),
    "CNN, fused, 64 of 5000": Row(model="cnn", engine="fused", batch=64),
    "CNN, fused, 250 of 5000": Row(model="cnn", engine="fused"),
    "logistic 100, opacus, 64 units of 1 to 5": Row(
        model="logistic", shape=(100,), engine="opacus", batch=64, units=True
    ),
    "784-100-10, opacus, 64 units of 1 to 5": Row(model="one_hidden", engine="opacus", batch=64, units=True),
    "CNN, opacus, 64 units of 1 to 5": Row(model="cnn", engine="opacus", batch=64, units=True),
    "logistic, 170 of 3000 words, 256 of 5000": Row(model="logistic", shape=(3000,), batch=256, nonzero=170),
    "18 x the same": Row(model="logistic", shape=(3000,), batch=256, nonzero=170, runs=18),
    "35 x 40 features, masked, 250 of 1600": Row(model="logistic", shape=(40,), runs=35, records=1600),
}


def answer_turns() -> None:
    """In a worker: the steps of each row that a line names, and how many; the answer is their median milliseconds."""
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        name, steps = line.rsplit(" ", 1)
        print(median_milliseconds(ROWS[name], int(steps)), flush=True)


def median_milliseconds(row: Row, steps: int) -> float:
    """The median processor time of these steps."""
    import numpy as np
    import torch

    from dpsweep.trainers.data.records import Records, Units
    from dpsweep.trainers.declarations.batch_sampling import Poisson
    from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
    from dpsweep.trainers.declarations.lr_schedules import Constant
    from dpsweep.trainers.engines.fused import Fused
    from dpsweep.trainers.engines.opacus import Opacus
    from dpsweep.trainers.engines.stacked import Stack
    from dpsweep.trainers.methods.named_methods import DpSgd
    from dpsweep.trainers.models import convolutional, fully_connected
    from dpsweep.trainers.models.weights import build_model_with_seeded_weights
    from dpsweep.trainers.randomness import secret_streams
    from dpsweep.trainers.training.gradient_sums import EngineSums, StackedSums
    from dpsweep.trainers.training.loop import train_together
    from dpsweep.trainers.training.run import Run

    make: Callable[..., Any] = getattr(fully_connected, row.model, None) or convolutional.cnn
    models = [build_model_with_seeded_weights(lambda: make(row.shape, 10), seed) for seed in range(row.runs)]
    sizes = 1 + np.arange(row.records) % 5 if row.units else np.ones(row.records, dtype=np.int64)
    of = np.repeat(np.arange(row.records), sizes)
    features = torch.rand(len(of), *row.shape, generator=torch.Generator().manual_seed(1))
    if row.nonzero is not None:
        features = (features.argsort(dim=1).argsort(dim=1) < row.nonzero).to(torch.uint8)
    units = Units(names=tuple(str(one).encode() for one in range(row.records)), of=of) if row.units else None
    records = Records(features=features, labels=torch.arange(len(of)) % 10, units=units, nonzero=row.nonzero)
    sums: Any
    if row.engine == "stacked":
        sums = StackedSums(stack=Stack.from_model(models[0], CROSS_ENTROPY), records=records, device="cpu")
    else:
        engine: Any = Fused() if row.engine == "fused" else Opacus()
        sums = EngineSums(models=models, engine=engine, records=records, device="cpu", chunk=None)
    run = Run(
        trainer=DpSgd(lr=0.1, clip_norm=1.0),
        sampler=Poisson(batch_size=row.batch),
        schedule=Constant(),
        noise_multiplier=1.0,
        steps=steps + 1,
        train_records=row.records,
    )
    ends: list[float] = []
    train_together(
        [run] * row.runs,
        models,
        sums,
        records,
        [secret_streams() for _ in models],
        device="cpu",
        on_step=lambda step: ends.append(time.process_time()),
    )
    return 1000 * statistics.median(later - sooner for sooner, later in pairwise(ends))


@dataclass(frozen=True, kw_only=True)
class Size:
    before: str = str(HERE.parent.parent)
    rounds: int = 5
    steps: int = 40
    rows: tuple[str, ...] = tuple(ROWS)


def worker(tree: str) -> subprocess.Popen[str]:
    """A process that answers turns with the dpsweep of a tree."""
    environment = os.environ | {"PYTHONPATH": tree, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(HERE), "--worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def turn(process: subprocess.Popen[str], line: str) -> float:
    """The answer of a worker to a line."""
    assert process.stdin is not None and process.stdout is not None
    print(line, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main(size: Size) -> tuple[()]:
    """Prints the rows; no ratio is an aim, because only another checkout has a price to compare with."""
    with worker(size.before) as before, worker(str(HERE.parent.parent)) as after:
        print(f"{'':<42}{'before':>9}{'after':>9}{'ratio':>7}")
        for name in size.rows:
            both = [[turn(process, f"{name} {size.steps}") for process in (before, after)] for _ in range(size.rounds)]
            old, new = map(min, zip(*both, strict=True))
            print(f"{name:<42}{old:9.2f}{new:9.2f}{new / old:7.2f}", flush=True)
        for process in (before, after):
            assert process.stdin is not None
            process.stdin.close()
    return ()


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        answer_turns()
    else:
        from measuring.script import start

        start(main, full=Size(), toy=Size(rounds=1, steps=2), about=__doc__)
