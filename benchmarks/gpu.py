"""What a machine with one GPU shows in 20 minutes: equality with the CPU, the cost of a step, one cell at full size.

    python benchmarks/gpu.py [--toy] [--data FOLDER]

First the engine's sums and norms in float64 on the GPU beside those on the CPU, for each kind of model. Then steps of
four networks in float32, beside the same step without privacy and beside Opacus' hooks and ghost clipping: all
contenders in turn, medians over the rounds, of milliseconds and of ratios within a round. Then 35 points of
logistic regression, stacked beside one after another. Last, with a FOLDER of CIFAR-10's official files, one cell of
experiment=a_fig3 at full size by the command line, for at most ten minutes. Without a GPU it says so. The toy run takes
the CPU for the GPU. Aims are the difference of sums, and what stacked points save.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from blocks import digits, one_by_one, runs_of, together
from measuring.aims import Aim
from measuring.contenders import GHOST, HOOKS, OURS, PLAIN, fused, ghost, hooks, plain
from measuring.script import start
from torch import nn

from dpsweep.trainers.declarations.losses import CrossEntropy
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.convolutional import cnn, resnet20, strided_cnn, vgg, wide_resnet
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights

SHAPE, CLASSES = (3, 32, 32), 10
EQUAL = 1e-9
"""The largest difference of a sum in float64, beside its largest number."""

GREY = (1, 28, 28)
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...]]] = {
    "logistic": (logistic, GREY),
    "one_hidden": (one_hidden, GREY),
    "cnn": (cnn, GREY),
    "strided_cnn": (strided_cnn, GREY),
    "vgg": (vgg, SHAPE),
    "resnet20": (resnet20, SHAPE),
    "wide_resnet": (partial(wide_resnet, depth=10, widening=1), SHAPE),
}
NETWORKS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], int]] = {
    "resnet20": (resnet20, SHAPE, 1000),
    "vgg": (vgg, SHAPE, 1024),
    "wide_16_4": (wide_resnet, SHAPE, 256),
    "strided_cnn": (strided_cnn, GREY, 2048),
}
CELL = ("experiment=a_fig3", "trainer=dpsgd", "trainer.lr=1.6", "trainer.clip_norm=1.6", "privacy.noise_multiplier=1.2")
CELL_SECONDS = 600
MODEL, LOSS = partial(logistic, (1, 28, 28), CLASSES), CrossEntropy()


@dataclass(frozen=True, kw_only=True)
class Size:
    """Examples whose sums are compared, the most of a batch, rounds and seconds of a network, and stacked points."""

    device: str = "cuda"
    examples: int = 16
    batch: int = 2048
    rounds: int = 20
    seconds: float = 60.0
    points: int = 35
    steps: int = 100
    records: int = 60_000
    data: str = ""


def seconds(step: Callable[[], object], device: str) -> float:
    wait = torch.cuda.synchronize if device == "cuda" else int
    wait()
    started = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - started


def difference(make: Callable[[], nn.Module], shape: tuple[int, ...], size: Size) -> float:
    """The largest difference between a clipped sum on a device and on the CPU, over the sum's largest number."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(size.examples, *shape, generator=generator, dtype=torch.float64)
    targets = torch.randint(CLASSES, (size.examples,), generator=generator)
    sums = []
    for place in ("cpu", size.device):
        model, batch = (
            build_model_with_seeded_weights(make, 0).double().to(place),
            Minibatch(inputs.to(place), targets.to(place)),
        )
        total, norms = Auto().bounded_gradient_sum_and_norms(model, batch, Task(transform=Clip(clip_norm=0.5)))
        sums.append(torch.cat([total, norms.double()]).cpu())
    return float((sums[0] - sums[1]).abs().max() / sums[0].abs().max())


def equal_to_the_cpu(size: Size) -> list[Aim]:
    """The difference for each model."""
    return [
        Aim(
            name=f"{name}, float64, relative difference to the CPU",
            measured=difference(partial(make, shape, CLASSES), shape, size),
            at_most=EQUAL,
        )
        for name, (make, shape) in MODELS.items()
    ]


def one_cell(data: Path) -> None:
    """Trains one cell of the paper's figure at full size, in a ledger of its own, until the time is over."""
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "DPSWEEP_LEDGER": f"{folder}/ledger.sqlite",
            "DPSWEEP_KEY": f"{folder}/key",
            "DPSWEEP_DATA": str(data),
        }
        command = [sys.executable, "-m", "dpsweep", "sweep", *CELL, "compute.device=cuda"]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command, cwd=folder, env=os.environ | places, capture_output=True, text=True, timeout=CELL_SECONDS
            )
            print(done.stdout[-600:], done.stderr[-300:], f"exit code {done.returncode}")
        except subprocess.TimeoutExpired as stopped:
            print((stopped.stdout or b"").decode()[-600:], "stopped when its time was over")
        print(f"{' '.join(CELL)}: {time.perf_counter() - started:.0f} s")


def step_costs(size: Size) -> None:
    """Private steps of each network beside plain ones and Opacus' two ways, whole batches at once but for ours."""
    device = torch.cuda.get_device_name() if size.device == "cuda" else size.device
    print(f"float32, {device}, torch {torch.__version__}")
    print(f"{'model':12} {'batch':>5} {'rounds':>6} {'step':6} {'ms':>9} {'beside plain':>13} {'beside hooks':>13}")
    for name, (make, shape, batch) in NETWORKS.items():
        few = min(batch, size.batch)
        rounds = timed_rounds(partial(make, shape, CLASSES), shape, few, size)
        for step in rounds[0]:
            milliseconds = statistics.median(row[step] for row in rounds) * 1e3
            ratios = [statistics.median(row[step] / row[other] for row in rounds) for other in (PLAIN, HOOKS)]
            counts = f"{name:12} {few:5} {len(rounds):6}"
            print(f"{counts} {step:6} {milliseconds:9.2f} {ratios[0]:13.3f} {ratios[1]:13.3f}")


def timed_rounds(
    make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, size: Size
) -> list[dict[str, float]]:
    """The seconds of a step of each contender, all in turn, in each round."""
    inputs, targets = torch.rand(batch, *shape).to(size.device), torch.randint(CLASSES, (batch,)).to(size.device)
    makers = {PLAIN: (plain, batch), OURS: (fused, None), HOOKS: (hooks, batch), GHOST: (ghost, batch)}
    steps = {}
    for name, (contender, chunk) in makers.items():
        model = build_model_with_seeded_weights(make, 0).to(size.device)
        steps[name] = partial(contender(model, inputs, targets), chunk)
        steps[name]()
    rounds: list[dict[str, float]] = []
    stop = time.perf_counter() + size.seconds
    while len(rounds) < size.rounds and (not rounds or time.perf_counter() < stop):
        rounds.append({name: seconds(step, size.device) for name, step in steps.items()})
    return rounds


def stacked(size: Size) -> list[Aim]:
    """Points of logistic regression at once and one after another, three rounds."""
    data = digits(size.records).to(size.device)
    runs = runs_of(points=size.points, steps=size.steps, batch_size=min(1000, size.records), records=size.records)
    works = [partial(work, data, MODEL, LOSS, runs, device=size.device) for work in (together, one_by_one)]
    times = [[seconds(work, size.device) for work in works] for _ in range(4)][1:]
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{size.points} points of logistic regression, {size.steps} steps: "
        f"stacked {first:.2f} s, one after another {second:.2f} s, ratio {second / first:.1f}"
    )
    return [Aim(name="stacked points over one after another", measured=first / second, at_most=1 / 8)]


def main(size: Size) -> list[Aim]:
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    if size.device == "cuda" and not torch.cuda.is_available():
        print("skipped: this machine has no GPU that torch can use")
        return []
    aims = equal_to_the_cpu(size)
    step_costs(size)
    aims += stacked(size)
    if size.data:
        one_cell(Path(size.data).resolve())
    return aims


if __name__ == "__main__":
    toy = Size(device="cpu", examples=2, batch=2, rounds=1, points=2, steps=1, records=20)
    start(main, full=Size(), toy=toy, about=__doc__)
