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
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.names.stored_classes import name_of
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.trainers.methods.script import is_script

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.sweeper.trial.spec import Declaration
    from dpsweep.trainers.engines.interface import Engine, Minibatch, Task

EXAMPLES = 64
LONG_ENOUGH = 0.2
"""Seconds; a shorter measurement is repeated with more examples, up to the whole batch."""

TIMEOUT_SECONDS = 300


def shapes_of(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """One configuration for each kind of step in a plan: data set, model, batch size; none for a script's steps."""
    trials = plan.trials + plan.finals
    return {kind_of(trial.config): trial.config for trial in trials if not is_script(trial.config)}


def plan_seconds(priced: PricedPlan, per_step: Mapping[str, float], workers: int) -> float | None:
    """Wall time of the plan: its expected runs, at the mean time of a point, over the workers; then the final run.

    None if the time of a step is unknown, as that of a script is before its first run.
    """
    trials = priced.plan.trials
    if any(kind_of(trial.config) not in per_step for trial in trials):
        return None

    def seconds(trial: Trial) -> float:
        return per_step[kind_of(trial.config)] * float(trial.config["steps"])

    search = sum(map(seconds, trials)) * priced.expected_runs / len(trials) / max(1, workers)
    finals = [final for final in priced.plan.finals if kind_of(final.config) in per_step]
    return search + max(map(seconds, finals), default=0.0)


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Seconds per step of some configurations, in their order, and the number of threads that steps were given."""

    seconds: tuple[float, ...]
    threads: int


def time_steps(configs: Sequence[Mapping[str, Any]], device: str, threads: int | None, most: int) -> StepTimes:
    """Times a training step of each configuration on random inputs; also refuses models that cannot be trained.

    `threads` is the number that the user gave; without one it is `most`, or 1 if all steps are small.
    Raises ValueError if a model mixes examples or does not fit its data set's shape.
    """
    import torch

    from dpsweep.sweeper.job.machine import resolve_device
    from dpsweep.sweeper.trial.build import make_model
    from dpsweep.sweeper.trial.spec import build, declare
    from dpsweep.sweeper.trial.step_work import threads_for, work_of
    from dpsweep.trainers.declarations.next_token import target_shape
    from dpsweep.trainers.engines.interface import Minibatch, Task
    from dpsweep.trainers.models.checks.modules import refuse_mixing, require_outputs
    from dpsweep.trainers.training.weight_delta import check_saving

    torch.set_num_threads(threads or 1)
    device = resolve_device(device)
    works, steps = [], []
    for config in configs:
        declared = declare(config)
        shape = tuple(declared.dataset.shape)
        positions = target_shape(declared.loss, shape)
        batch_size = _examples(declared)
        model = make_model(config, "estimate")
        refuse_mixing(model, shape)
        require_outputs(model, shape, declared.dataset.classes, positions)
        check_saving(model)
        task = Task(transform=declared.trainer.transform, loss=declared.loss)
        generator = torch.Generator().manual_seed(0)
        inputs = torch.rand(batch_size, *shape, generator=generator)
        if threads is None:
            works.append(batch_size * work_of(model, inputs[:1]))
        targets = torch.zeros(batch_size, *positions, dtype=getattr(torch, declared.loss.labels), device=device)
        batch = Minibatch(inputs.to(device), targets)
        engine = build(config["engine"], "engine")
        steps.append((partial(_weighted_sum, engine, model.to(device), batch, task), batch_size))
    threads = threads_for(works, most) if threads is None else threads
    torch.set_num_threads(threads)
    return StepTimes(seconds=tuple(_time(step, batch_size) for step, batch_size in steps), threads=threads)


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
    configs: Sequence[Mapping[str, Any]], device: str, threads: int | None, most: int
) -> Iterator[Callable[[], list[float] | None]]:
    """The seconds of `time_steps` in a separate process that runs in the background.

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
        json.dump({"configs": list(configs), "device": device, "threads": threads, "most": most}, process.stdin)
        process.stdin.close()
        process.stdin = None

    def answer() -> list[float] | None:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            times: list[float] = json.loads(output.strip().splitlines()[-1])["seconds"]
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
    parts |= {name: config[name] for name in ("augmentation", "features", "adapter") if config.get(name)}
    script = {"script": config["trainer"]["sha256"]} if is_script(config) else {}
    return json.dumps(parts | {"trainer": name_of(config["trainer"])} | script, sort_keys=True)


if __name__ == "__main__":
    print(json.dumps(asdict(time_steps(**json.load(sys.stdin)))))
