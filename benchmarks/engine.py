"""What a private step costs beside the same step without privacy: all contenders in turn, in one process, on one core.

    python benchmarks/engine.py [--toy] [--rounds 9] [--models ResNet20-GN ...] [--batches 1000 ...]

A step is the gradient of a batch, or the sum of its clipped per-example gradients; noise and update cost the same for
all. Ours is what a sweep trains such a model with: a stack where it can be stacked, though it stands alone here, else
the fused engine. The lengths of inputs, which a sweep finds once for all of its steps, are known beforehand.

Contenders have the same weights and the same batch, and are set up once, beforehand. Each may pass the batch through in
chunks, and is given its best: after a first step, every chunk size takes `tries` turns, and the one with the quickest
turn is kept. Then each contender has a turn in every round, of one step, or of up to 20 in a row where they are quick:
in training too, a step follows one like it, and its data are in the cache. Printed are medians over the rounds, of
milliseconds and of ratios within a round, and both chunks: "auto" is our own choice, for a stack the whole batch. The
process keeps freed memory, as jobs do, which is a gain for every contender. Models whose plain step takes over two
seconds get three rounds. Last comes the memory of ResNet20, in processes of its own.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from measuring.aims import Aim
from measuring.clock import processor_seconds
from measuring.contenders import FASTDP, GHOST, HOOKS, LAST, OURS, PLAIN, Step, contenders, fused, plain
from measuring.one_core import stay_on_one_core
from measuring.script import start
from torch import nn

from dpsweep.trainers.models.convolutional import cnn, resnet20
from dpsweep.trainers.models.fully_connected import logistic, one_hidden
from dpsweep.trainers.models.weights import build_model_with_seeded_weights
from dpsweep.trainers.training.allocator import keep_freed_memory

Factory = Callable[..., nn.Module]
SLOW, FEW, QUICK, MOST_OF_A_TURN = 2.0, 3, 0.02, 20
LOGISTIC: dict[str, float] = {PLAIN: 1.15, HOOKS: 0.3, GHOST: 0.45, FASTDP: 1.0}
ONE_HIDDEN: dict[str, float] = {PLAIN: 1.25, HOOKS: 0.1, GHOST: 0.55, FASTDP: 1.0}
CNN: dict[str, float] = {PLAIN: 0.9, LAST: 1.35, HOOKS: 0.55, GHOST: 0.55, FASTDP: 1.0}
RESNET20: dict[str, float] = {PLAIN: 1.25, LAST: 1.25, HOOKS: 0.6, GHOST: 0.5, FASTDP: 1.0}
WORK: tuple[tuple[str, Factory, tuple[int, ...], int, Mapping[str, float]], ...] = (
    ("logistic regression", logistic, (1, 28, 28), 256, LOGISTIC),
    ("logistic regression", logistic, (1, 28, 28), 1000, LOGISTIC),
    ("784-100-10", one_hidden, (1, 28, 28), 256, ONE_HIDDEN),
    ("784-100-10", one_hidden, (1, 28, 28), 1000, ONE_HIDDEN),
    ("CNN", cnn, (1, 28, 28), 256, CNN),
    ("CNN", cnn, (1, 28, 28), 1000, CNN),
    ("ResNet20-GN", resnet20, (3, 32, 32), 256, RESNET20),
    ("ResNet20-GN", resnet20, (3, 32, 32), 1000, RESNET20),
)
MEMORY_CHUNK, MEMORY_AIM = 64, 1.7


@dataclass(frozen=True, kw_only=True)
class Size:
    """Rounds, turns of each chunk size, and what of `WORK` is measured; batches above `most` are cut to it.

    With `memory_of` a contender, the bytes of its first step are printed and nothing else.
    """

    rounds: int = 9
    tries: int = 3
    models: tuple[str, ...] = tuple(dict.fromkeys(name for name, *_ in WORK))
    batches: tuple[int, ...] = (256, 1000)
    most: int = 1000
    chunks: tuple[int, ...] = (32, 64, 128, 256, 512)
    memory_chunk: int = MEMORY_CHUNK
    memory_of: str = ""


def chunk_sizes(name: str, batch: int, fewer: Sequence[int]) -> list[int | None]:
    """What a contender may pass through at once: the whole batch, fewer, and for ours what it chooses itself."""
    own: list[int | None] = [None] if name == OURS else []
    return [*own, batch, *(chunk for chunk in fewer if chunk < batch)]


def best_chunk(step: Step, sizes: Sequence[int | None], tries: int) -> int | None:
    """The chunk size of the quickest turn, after a first step; a single try if a step is slow."""
    step(sizes[0])
    quickest: dict[int | None, float] = {}
    for _ in range(tries):
        for chunk in sizes:
            quickest[chunk] = min(quickest.get(chunk, float("inf")), processor_seconds(partial(step, chunk)))
        if max(quickest.values()) > SLOW:
            break
    return min(quickest, key=lambda chunk: quickest[chunk])


def compare(
    factory: Factory, shape: tuple[int, ...], batch: int, size: Size
) -> tuple[dict[str, list[float]], dict[str, int | None]]:
    """Every contender's seconds in each round, and its chunk."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(batch, *shape, generator=generator), torch.randint(10, (batch,), generator=generator)
    steps = contenders(lambda: build_model_with_seeded_weights(lambda: factory(shape, 10), 0), inputs, targets)
    chunks = {name: best_chunk(step, chunk_sizes(name, batch, size.chunks), size.tries) for name, step in steps.items()}
    work = {name: partial(step, chunks[name]) for name, step in steps.items()}
    first = processor_seconds(work[PLAIN])
    rounds = min(size.rounds, FEW) if first > SLOW else size.rounds
    turn = math.ceil(QUICK / max(first, QUICK / MOST_OF_A_TURN))
    table = [{name: repeated(step, turn) for name, step in work.items()} for _ in range(rounds)]
    return {name: [row[name] for row in table] for name in steps}, chunks


def repeated(step: Callable[[], object], times: int) -> float:
    """Processor seconds of one of so many steps in a row."""
    return processor_seconds(lambda: [step() for _ in range(times)]) / times


def memory(name: str, chunk: int) -> int:
    """The bytes that a first step of ResNet20 takes, from what model and data took in this process to its peak."""
    inputs, targets = torch.rand(chunk, 3, 32, 32), torch.zeros(chunk, dtype=torch.int64)
    model = build_model_with_seeded_weights(lambda: resnet20((3, 32, 32), 10), 0)
    step = {PLAIN: plain, OURS: fused}[name](model, inputs, targets)
    before = peak()
    step(chunk)
    return peak() - before


def peak() -> int:
    """This process' own: ru_maxrss would begin with its parent's, which a new program inherits."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def memory_beside_plain(chunk: int) -> list[Aim]:
    if not Path("/proc/self/status").exists():
        print("memory is measured on Linux only")
        return []
    command = [sys.executable, __file__, f"--memory-chunk={chunk}"]
    used = {name: int(subprocess.check_output([*command, f"--memory-of={name}"])) for name in (PLAIN, OURS)}
    mebibytes = ", ".join(f"{name} {number >> 20} MiB" for name, number in used.items())
    print(f"memory of ResNet20-GN, {chunk} examples in a chunk: {mebibytes}")
    return [Aim(name="memory of ResNet20-GN beside plain", measured=used[OURS] / used[PLAIN], at_most=MEMORY_AIM)]


def steps_beside_others(size: Size) -> list[Aim]:
    fast = "" if find_spec("fastDP") else "; fastDP is not installed"
    print(f"ours beside others, {torch.get_num_threads()} thread{fast}")
    print(
        f"{'model':20} {'batch':>5} {'rounds':>6}  {'beside':20} {'chunk':>5} {'its ms':>9}  "
        f"{'our chunk':>11} {'our ms':>9} {'ratio':>6}"
    )
    aims = []
    for model, factory, shape, declared, at_most in WORK:
        if model not in size.models or declared not in size.batches:
            continue
        batch = min(declared, size.most)
        times, chunks = compare(factory, shape, batch, size)
        mine = times.pop(OURS)
        own = f"{chunks[OURS] or 'auto':>11} {statistics.median(mine) * 1e3:9.2f}"
        for name, theirs in times.items():
            ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
            its = f"{name:20} {chunks[name]:5} {statistics.median(theirs) * 1e3:9.2f}"
            print(f"{model:20} {batch:5} {len(mine):6}  {its}  {own} {ratio:6.3f}", flush=True)
            if name in at_most:
                aims.append(Aim(name=f"{model}, {batch}, beside {name}", measured=ratio, at_most=at_most[name]))
    return aims


def main(size: Size) -> list[Aim]:
    stay_on_one_core()
    if size.memory_of:
        print(memory(size.memory_of, size.memory_chunk))
        return []
    keep_freed_memory()
    return steps_beside_others(size) + memory_beside_plain(size.memory_chunk)


if __name__ == "__main__":
    models = ("784-100-10", "CNN")
    toy = Size(rounds=1, tries=1, models=models, batches=(256,), most=4, chunks=(2,), memory_chunk=2)
    start(main, full=Size(), toy=toy, about=__doc__)
