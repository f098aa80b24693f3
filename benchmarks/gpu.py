"""What a private step of ResNet20 costs on a GPU beside the same step without privacy, and beside Opacus' hooks.

    python benchmarks/gpu.py

Batch 1000, 3x32x32, float32; all contenders in turn, medians over the rounds, of milliseconds and of ratios within a
round. Rounds end after five minutes. Then 35 points of logistic regression, stacked beside one after another. Without a
GPU it says so.
"""

from __future__ import annotations

import statistics
import time
import warnings
from functools import partial

import torch
from blocks import digits, one_by_one, runs_of, together
from engine import HOOKS, OURS, PLAIN, Step, fused, hooks, plain

from dpsweep.trainers.declarations.losses import CrossEntropy
from dpsweep.trainers.models.initialize import build
from dpsweep.trainers.models.logistic import logistic
from dpsweep.trainers.models.resnet20 import resnet20

BATCH, SHAPE, CLASSES = 1000, (3, 32, 32), 10
ROUNDS, SECONDS = 20, 300
MODEL, LOSS = partial(logistic, (1, 28, 28), CLASSES), CrossEntropy()


def seconds(step: Step) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def main() -> None:
    if not torch.cuda.is_available():
        print("This machine has no GPU that torch can use, so nothing was measured.")
        return
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
    stacked()


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
    main()
