"""Estimate of a plan's wall time on this machine: the measured time of one step on random inputs, times the steps.

No data are read. `python -m dpsweep.sweeper.planning.time_estimate` reads trial configurations as JSON and prints
seconds per step, so that planning itself need not import torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.names.stored_classes import name_of
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.sweeper.trial.spec import Declaration
    from dpsweep.trainers.engines.interface import Engine, Minibatch, Task

EXAMPLES = 64
LONG_ENOUGH = 0.2
"""Seconds; a shorter measurement is repeated with more examples, up to the whole batch."""

TIMEOUT_SECONDS = 300


def shapes_of(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """One configuration for each kind of step in a plan: data set, model, batch size."""
    return {kind_of(trial.config): trial.config for trial in plan.trials}


def plan_seconds(priced: PricedPlan, per_step: Mapping[str, float], workers: int) -> float:
    """Wall time of the whole plan: the runs that it expects, times the mean time of a point, divided by the workers."""
    trials = priced.plan.trials
    all_points: float = sum(per_step[kind_of(trial.config)] * trial.config["steps"] for trial in trials)
    return all_points * priced.expected_runs / len(trials) / max(1, workers)


def seconds_per_step(configs: Sequence[Mapping[str, Any]], device: str, threads: int) -> list[float]:
    """Times a training step of each configuration on random inputs; also refuses models that cannot be trained.

    Raises ValueError if a model mixes examples or does not fit its data set's shape.
    """
    import torch

    from dpsweep.sweeper.job.machine import resolve_device
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.sweeper.trial.spec import build, declare
    from dpsweep.trainers.engines.interface import Minibatch, Task
    from dpsweep.trainers.models.checks.modules import refuse_mixing

    torch.set_num_threads(threads)
    device = resolve_device(device)
    times = []
    for config in configs:
        declared, shape = declare(config), tuple(config["dataset"]["shape"])
        batch_size = _examples(declared)
        model = make_model(config, "estimate")
        refuse_mixing(model, shape)
        model.to(device)
        task = Task(transform=declared.trainer.transform, loss=declared.loss)
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(batch_size, *shape, generator=generator).to(device)
        targets = torch.zeros(batch_size, dtype=getattr(torch, declared.loss.labels), device=device)
        batch = Minibatch(inputs, targets)
        step = partial(_weighted_sum, build(config["engine"], "engine"), model, batch, task)
        times.append(_time(step, batch_size))
    return times


def _examples(declared: Declaration) -> int:
    """Mean number of examples in a batch: more than its units if a unit has several records or augmented copies."""
    from dpsweep.trainers.data.interface import nominal_units

    dataset = declared.dataset
    copies = 1 if declared.augmentation is None else declared.augmentation.multiplicity
    return max(1, round(copies * declared.sampler.batch_size * dataset.records / nominal_units(dataset)))


def _weighted_sum(engine: Engine, model: nn.Module, batch: Minibatch, task: Task, examples: int) -> None:
    engine.weighted_sum(model, batch[:examples], task)


def _time(step: Callable[[int], None], batch_size: int) -> float:
    """Seconds of `step(batch_size)`, scaled up from the fewest examples that take long enough; the faster of two."""
    step(2)
    examples = min(EXAMPLES, batch_size)
    while True:
        seconds = min(_seconds(step, examples), _seconds(step, examples))
        if seconds > LONG_ENOUGH or examples == batch_size:
            return seconds * batch_size / examples
        examples = min(4 * examples, batch_size)


def _seconds(step: Callable[[int], None], examples: int) -> float:
    started = time.perf_counter()
    step(examples)
    return time.perf_counter() - started


@contextmanager
def asked(
    configs: Sequence[Mapping[str, Any]], device: str, threads: int
) -> Iterator[Callable[[], list[float] | None]]:
    """`seconds_per_step` in a separate process that runs in the background.

    Yields a function that waits for the answer, None if there is none; the process is ended on exit.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "dpsweep.sweeper.planning.time_estimate"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if process.stdin is not None:
        json.dump({"configs": list(configs), "device": device, "threads": threads}, process.stdin)
        process.stdin.close()
        process.stdin = None

    def answer() -> list[float] | None:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            times: list[float] = json.loads(output.strip().splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError):
            return None
        return times

    try:
        yield answer
    finally:
        process.kill()
        process.communicate()


def kind_of(config: Mapping[str, Any]) -> str:
    """The settings that determine how long a step takes, as text."""
    parts = {name: config[name] for name in ("dataset", "model", "sampler", "engine")}
    parts |= {"augmentation": config["augmentation"]} if config.get("augmentation") else {}
    return json.dumps(parts | {"trainer": name_of(config["trainer"])}, sort_keys=True)


if __name__ == "__main__":
    print(json.dumps(seconds_per_step(**json.load(sys.stdin))))
