"""What a private step costs beside the same step without privacy: all contenders in turn, in one process, on one core.

    python benchmarks/engine.py [ROUNDS]

A step is the gradient of a batch, or the sum of its clipped per-example gradients; noise and update cost the same for
all. Ours is what a sweep trains such a model with: a stack where it can be stacked, though it stands alone here, else
the fused engine. The lengths of inputs, which a sweep finds once for all of its steps, are known beforehand.

Contenders have the same weights and the same batch, and are set up once, beforehand. Each steps once in every round;
printed are medians over the rounds, of milliseconds and of ratios within a round, beside what is aimed at ("at
most"). Models whose plain step takes over two seconds get three rounds, those of milliseconds five times as many. Last
comes the memory of ResNet20, in processes of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from dpsweep.trainers.engines.fused import Fused
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.stacked import Examples, Stack
from dpsweep.trainers.methods.transforms import Clip
from dpsweep.trainers.models.cnn import cnn
from dpsweep.trainers.models.initialize import build
from dpsweep.trainers.models.logistic import logistic
from dpsweep.trainers.models.one_hidden import one_hidden
from dpsweep.trainers.models.resnet20 import resnet20

Step = Callable[[], object]
Factory = Callable[..., nn.Module]
PLAIN, LAST, OURS, HOOKS, GHOST, FASTDP = "plain", "plain, channels last", "ours", "hooks", "ghost", "fastDP"
CLIP_NORM = 1.0
SLOW, FEW, QUICK, MANY = 2.0, 3, 0.02, 5
LOGISTIC: dict[str, float] = {PLAIN: 1.15, HOOKS: 0.3, GHOST: 0.45, FASTDP: 1.0}
ONE_HIDDEN: dict[str, float] = {PLAIN: 1.3, HOOKS: 0.1, GHOST: 0.55, FASTDP: 1.0}
CNN: dict[str, float] = {PLAIN: 0.9, LAST: 1.35, HOOKS: 0.55, GHOST: 0.55, FASTDP: 1.0}
RESNET20: dict[str, float] = {PLAIN: 1.3, HOOKS: 0.6, GHOST: 0.5, FASTDP: 1.0}
WORK: tuple[tuple[str, Factory, tuple[int, ...], int, Mapping[str, float]], ...] = (
    ("logistic regression", logistic, (1, 28, 28), 256, LOGISTIC),
    ("logistic regression", logistic, (1, 28, 28), 1000, LOGISTIC),
    ("784-100-10", one_hidden, (1, 28, 28), 256, ONE_HIDDEN),
    ("784-100-10", one_hidden, (1, 28, 28), 1000, ONE_HIDDEN | {PLAIN: 1.2}),
    ("CNN", cnn, (1, 28, 28), 256, CNN),
    ("CNN", cnn, (1, 28, 28), 1000, CNN),
    ("ResNet20-GN", resnet20, (3, 32, 32), 256, RESNET20),
    ("ResNet20-GN", resnet20, (3, 32, 32), 1000, RESNET20),
)
MEMORY_CHUNK, MEMORY_AIM = 64, 1.7


def contenders(make: Callable[[], nn.Module], inputs: Tensor, targets: Tensor) -> dict[str, Step]:
    steps = {
        PLAIN: plain(make(), inputs, targets),
        OURS: ours(make(), inputs, targets),
        HOOKS: hooks(make(), inputs, targets),
        GHOST: ghost(make(), inputs, targets),
    }
    if any(isinstance(layer, nn.Conv2d) for layer in make().modules()):
        last = make().to(memory_format=torch.channels_last)
        steps[LAST] = plain(last, inputs.contiguous(memory_format=torch.channels_last), targets)
    if find_spec("fastDP"):
        steps[FASTDP] = fast_dp(make(), inputs, targets)
    return steps


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    parameters = list(model.parameters())
    return lambda: torch.autograd.grad(cross_entropy(model(inputs), targets, reduction="sum"), parameters)


def ours(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    try:
        stack = Stack.of(model)
    except ValueError:
        return fused(model, inputs, targets)
    weights, rows = parameters_to_vector(model.parameters()).detach()[None], inputs.flatten(1)
    lengths, transform = stack.lengths(rows), Clip(clip_norm=CLIP_NORM)

    def step() -> None:
        total = torch.zeros_like(weights, dtype=torch.float64)
        stack.add(total, weights, Examples(inputs=rows, targets=targets, lengths=lengths), None, transform)

    return step


def fused(model: nn.Module, inputs: Tensor, targets: Tensor, chunk: int | None = None) -> Step:
    batch, task = Minibatch(inputs, targets), Task(transform=Clip(clip_norm=CLIP_NORM), chunk=chunk)
    return partial(Fused().weighted_sum, model, batch, task)


def hooks(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    hooked = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **optimizer_arguments(len(inputs)))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(hooked(inputs), targets, reduction="sum").backward()
        optimizer.clip_and_accumulate()

    return step


def ghost(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    hooked = GradSampleModuleFastGradientClipping(model, loss_reduction="sum", max_grad_norm=CLIP_NORM)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = DPOptimizerFastGradientClipping(sgd, **optimizer_arguments(len(inputs)))
    loss = DPLossFastGradientClipping(hooked, optimizer, nn.CrossEntropyLoss(reduction="sum"), loss_reduction="sum")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(hooked(inputs), targets).backward()
        optimizer.accumulate()

    return step


def optimizer_arguments(batch: int) -> dict[str, object]:
    return {
        "noise_multiplier": 0.0,
        "max_grad_norm": CLIP_NORM,
        "expected_batch_size": batch,
        "loss_reduction": "sum",
    }


def fast_dp(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    from fastDP import PrivacyEngine

    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    shape = {"batch_size": len(inputs), "sample_size": 100 * len(inputs), "epochs": 1}
    engine = PrivacyEngine(model, **shape, max_grad_norm=CLIP_NORM, noise_multiplier=1.0, clipping_fn="Abadi")
    engine.attach(optimizer)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()

    return step


def seconds(step: Step) -> float:
    """The processor's, which neighbours on the machine do not lengthen by taking turns."""
    started = time.process_time()
    step()
    return time.process_time() - started


def compare(factory: Factory, shape: tuple[int, ...], batch: int, rounds: int) -> tuple[int, dict[str, list[float]]]:
    """How many rounds, and every contender's seconds in each."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(batch, *shape, generator=generator), torch.randint(10, (batch,), generator=generator)
    steps = contenders(lambda: build(lambda: factory(shape, 10), 0), inputs, targets)
    first = {name: seconds(step) for name, step in steps.items()}
    if first[PLAIN] > SLOW:
        rounds = min(rounds, FEW)
    elif first[PLAIN] < QUICK:
        rounds *= MANY
    table = [{name: seconds(step) for name, step in steps.items()} for _ in range(rounds)]
    return rounds, {name: [row[name] for row in table] for name in steps}


def memory(name: str) -> int:
    """The bytes that a first step of ResNet20 takes, from what model and data took in this process to its peak."""
    inputs, targets = torch.rand(MEMORY_CHUNK, 3, 32, 32), torch.zeros(MEMORY_CHUNK, dtype=torch.int64)
    model = build(lambda: resnet20((3, 32, 32), 10), 0)
    step = plain(model, inputs, targets) if name == PLAIN else fused(model, inputs, targets, MEMORY_CHUNK)
    before = peak()
    step()
    return peak() - before


def peak() -> int:
    """This process' own: ru_maxrss would begin with its parent's, which a new program inherits."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(rounds: int) -> None:
    fast = "" if find_spec("fastDP") else "; fastDP is not installed"
    print(f"ours beside others, {torch.get_num_threads()} thread{fast}")
    print(f"{'model':20} {'batch':>5} {'rounds':>6}  {'beside':20} {'its ms':>9} {'our ms':>9}  ratio  at most")
    for model, factory, shape, batch, aims in WORK:
        done, times = compare(factory, shape, batch, rounds)
        ours = times.pop(OURS)
        for name, theirs in times.items():
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            mine, its = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
            left = f"{model:20} {batch:5} {done:6}  {name:20} {its:9.2f} {mine:9.2f}"
            print(f"{left} {ratio:6.3f} {aims.get(name, ''):>8}", flush=True)
    if not Path("/proc/self/status").exists():
        print("memory is measured on Linux only")
        return
    used = {name: int(subprocess.check_output([sys.executable, __file__, name])) for name in (PLAIN, OURS)}
    print(
        f"memory of ResNet20-GN, {MEMORY_CHUNK} examples in a chunk: plain {used[PLAIN] >> 20} MiB, "
        f"ours {used[OURS] >> 20} MiB, ratio {used[OURS] / used[PLAIN]:.2f}, at most {MEMORY_AIM}"
    )


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    argument = sys.argv[1] if len(sys.argv) > 1 else "9"
    if argument in (PLAIN, OURS):
        print(memory(argument))
    else:
        main(int(argument))
