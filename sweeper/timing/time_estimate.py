"""Estimate of a plan's wall time on this machine: the time of a training step on random inputs, times the steps.

A separate process times steps (`timing_process.py`), so that planning itself need not import torch. It starts before
the plan is priced, since nothing that it times depends on the noise. No data are read.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.names.stored_classes import name_of
from dpsweep.trainers.methods.script import is_script

if TYPE_CHECKING:
    from dpsweep.accounting.pricing.priced_plan import PricedPlan
    from dpsweep.accounting.records.plan import Plan, Trial

TIMEOUT_SECONDS = 300

COMPANY = 16
"""The largest number of stacked points that are timed: a step of more takes as long for each of them."""

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of step: a configuration that has it, and the number of points that one job may train together.

    So many `processes` share the gradient sums of a model that is not stacked. With `extracts`, features of records are
    still to be computed.
    """

    config: Config
    points: int
    processes: int = 1
    extracts: bool = False

    @property
    def timeable(self) -> bool:
        """Whether a step can be timed beforehand: a script's steps cannot."""
        return not is_script(self.config)


@dataclass(frozen=True)
class Cost:
    """Seconds of one point's step, and of all that a run does besides its steps: curves and scores.

    `record` is the time in which an extractor computes the features of one record; None if it was not timed.
    """

    step: float
    beside: float = 0.0
    record: float | None = None


def shapes_of(
    configs: Iterable[Config],
    workers: int = 1,
    together: int | None = None,
    *,
    processes: int = 1,
    extracts: bool = False,
) -> dict[str, Shape]:
    """One shape for each kind of step, by its key, if the points of a kind are divided among these workers.

    At most `together` points are in one job, if it is given. `processes` and `extracts` are those of each shape.
    """
    counts: Counter[str] = Counter()
    one_each: dict[str, Config] = {}
    for config in configs:
        kind = kind_of(config)
        counts[kind], one_each[kind] = counts[kind] + 1, config
    most = COMPANY if together is None else min(COMPANY, together)
    points = {kind: min(most, math.ceil(count / max(1, workers))) for kind, count in counts.items()}
    return {
        kind: Shape(
            config=_with_a_number_of_steps(one_each[kind]), points=points[kind], processes=processes, extracts=extracts
        )
        for kind in counts
    }


def _with_a_number_of_steps(config: Config) -> Config:
    """The configuration, with one step where the budget decides their number: a step takes as long."""
    return config if isinstance(config["steps"], int) else {**config, "steps": 1}


def plan_seconds(priced: PricedPlan, costs: Mapping[str, Cost], workers: int, missing: int = 0) -> float | None:
    """Wall time of the plan: its expected runs, at the mean time of a point, over the workers; then the final run.

    Before them the features of so many `missing` records are extracted, which the workers divide among them.
    None if the time of a step is unknown, as that of a script is before its first run.
    """
    trials = priced.plan.trials
    if any(kind_of(trial.config) not in costs for trial in trials):
        return None

    def seconds(trial: Trial) -> float:
        cost = costs[kind_of(trial.config)]
        return cost.step * float(trial.config["steps"]) + cost.beside

    at_once = min(max(1, workers), math.ceil(priced.expected_runs))
    search = sum(map(seconds, trials)) * priced.expected_runs / len(trials) / at_once
    finals = [final for final in priced.plan.finals if kind_of(final.config) in costs]
    extraction = missing * max((cost.record or 0.0 for cost in costs.values()), default=0.0) / at_once
    return extraction + search + max(map(seconds, finals), default=0.0)


def configs_of(plan: Plan) -> list[Config]:
    """The configurations of a plan's runs, of the final ones too."""
    return [trial.config for trial in plan.trials + plan.finals]


@contextmanager
def asked(
    shapes: Sequence[Shape], device: str, threads: int | None, most: int
) -> Iterator[Callable[[], list[Cost] | None]]:
    """The costs of these shapes, timed in a separate process that runs in the background.

    Yields a function that waits for the answer, None if there is none; the process is ended on exit.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dpsweep.sweeper.timing.timing_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if process.stdin is not None:
        question = {"shapes": [asdict(shape) for shape in shapes], "device": device, "threads": threads, "most": most}
        json.dump(question, process.stdin)
        process.stdin.close()
        process.stdin = None

    def answer() -> list[Cost] | None:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            return [Cost(**cost) for cost in json.loads(output.strip().splitlines()[-1])["costs"]]
        except (subprocess.SubprocessError, OSError, ValueError, IndexError):
            return None

    try:
        yield answer
    finally:
        process.kill()
        process.communicate()


def kind_of(config: Config) -> str:
    """The settings that determine how long a step takes, as text."""
    parts = {name: config[name] for name in ("dataset", "model", "sampler", "engine")}
    parts |= {name: config[name] for name in ("augmentation", "features", "adapter") if config.get(name)}
    script = {"script": config["trainer"]["sha256"]} if is_script(config) else {}
    return json.dumps(parts | {"trainer": name_of(config["trainer"])} | script, sort_keys=True)
