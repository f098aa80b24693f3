"""What a machine with one GPU shows in 20 minutes: equality with the CPU, the cost of a step, one cell at full size.

    python benchmarks/gpu.py [FOLDER]

First the engine's sums and norms in float64 on the GPU beside those on the CPU, for each kind of model. Then ResNet20
at batch 1000, 3x32x32, float32, beside the same step without privacy and beside Opacus' hooks: all contenders in turn,
medians over the rounds, of milliseconds and of ratios within a round; rounds end after five minutes. Then 35 points of
logistic regression, stacked beside one after another. Last, with a FOLDER of CIFAR-10's official files, one cell of
experiment=a_fig3 at full size by the command line, for at most ten minutes. Without a GPU it says so. The exit code is
1 where the GPU's sums differ from the CPU's.
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
from functools import partial
from pathlib import Path

import torch
from blocks import digits, one_by_one, runs_of, together
from engine import HOOKS, OURS, PLAIN, Step, fused, hooks, plain
from torch import nn

from dpsweep.trainers.declarations.losses import CrossEntropy
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.cnn import cnn, strided_cnn
from dpsweep.trainers.models.initialize import build
from dpsweep.trainers.models.logistic import logistic
from dpsweep.trainers.models.one_hidden import one_hidden
from dpsweep.trainers.models.resnet20 import resnet20
from dpsweep.trainers.models.wide_resnet import wide_resnet

BATCH, SHAPE, CLASSES = 1000, (3, 32, 32), 10
ROUNDS, SECONDS = 20, 300
EQUAL = 1e-9
"""The largest difference of a sum in float64, beside its largest number."""

EXAMPLES, GREY = 16, (1, 28, 28)
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...]]] = {
    "logistic": (logistic, GREY),
    "one_hidden": (one_hidden, GREY),
    "cnn": (cnn, GREY),
    "strided_cnn": (strided_cnn, GREY),
    "resnet20": (resnet20, SHAPE),
    "wide_resnet": (partial(wide_resnet, depth=10, widening=1), SHAPE),
}
CELL = ("experiment=a_fig3", "trainer=dpsgd", "trainer.lr=1.6", "trainer.clip_norm=1.6", "privacy.noise_multiplier=1.2")
CELL_SECONDS = 600
MODEL, LOSS = partial(logistic, (1, 28, 28), CLASSES), CrossEntropy()


def seconds(step: Step) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def difference(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str = "cuda") -> float:
    """The largest difference between a clipped sum on a device and on the CPU, over the sum's largest number."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(EXAMPLES, *shape, generator=generator, dtype=torch.float64)
    targets = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    sums = []
    for place in ("cpu", device):
        model, batch = build(make, 0).double().to(place), Minibatch(inputs.to(place), targets.to(place))
        total, norms = Auto().weighted_sum(model, batch, Task(transform=Clip(clip_norm=0.5)))
        sums.append(torch.cat([total, norms.double()]).cpu())
    return float((sums[0] - sums[1]).abs().max() / sums[0].abs().max())


def equal_to_the_cpu() -> bool:
    """Prints the difference for each model; whether all are small enough."""
    differences = {name: difference(partial(make, shape, CLASSES), shape) for name, (make, shape) in MODELS.items()}
    for name, value in differences.items():
        print(f"{name:12} float64, GPU beside CPU: relative difference {value:.1e}, at most {EQUAL:.0e}")
    return max(differences.values()) <= EQUAL


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


def main(data: Path | None) -> int:
    if not torch.cuda.is_available():
        print("This machine has no GPU that torch can use, so nothing was measured.")
        return 0
    equal = equal_to_the_cpu()
    step_costs()
    stacked()
    if data is not None:
        one_cell(data)
    return 0 if equal else 1


def step_costs() -> None:
    """Private steps of ResNet20 beside plain ones and Opacus' hooks."""
    inputs, targets = torch.rand(BATCH, *SHAPE).cuda(), torch.randint(CLASSES, (BATCH,)).cuda()
    steps = {
        name: make(build(lambda: resnet20(SHAPE, CLASSES), 0).cuda(), inputs, targets)
        for name, make in ((PLAIN, plain), (OURS, fused), (HOOKS, hooks))
    }
    for step in steps.values():
        step()
    rounds, stop = [], time.perf_counter() + SECONDS
    while len(rounds) < ROUNDS and (not rounds or time.perf_counter() < stop):
        rounds.append({name: seconds(step) for name, step in steps.items()})
    print(
        f"ResNet20-GN, batch {BATCH}, {torch.cuda.get_device_name()}, torch {torch.__version__}, {len(rounds)} rounds"
    )
    print(f"{'step':8} {'ms':>9} {'beside plain':>13} {'beside hooks':>13}")
    for name in steps:
        milliseconds = statistics.median(row[name] for row in rounds) * 1e3
        ratios = [statistics.median(row[name] / row[other] for row in rounds) for other in (PLAIN, HOOKS)]
        print(f"{name:8} {milliseconds:9.2f} {ratios[0]:13.3f} {ratios[1]:13.3f}")


def stacked() -> None:
    """35 points of logistic regression at once and one after another, three rounds."""
    data, runs = digits(60_000).to("cuda"), runs_of(points=35, steps=100, batch_size=1000, records=60_000)
    works = [partial(work, data, MODEL, LOSS, runs, device="cuda") for work in (together, one_by_one)]
    times = [[seconds(work) for work in works] for _ in range(4)][1:]
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"35 points of logistic regression, 100 steps: stacked {first:.2f} s, one after another {second:.2f} s")
    print(f"ratio {second / first:.1f}, at least 8")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    sys.exit(main(Path(sys.argv[1]).resolve() if sys.argv[1:] else None))
