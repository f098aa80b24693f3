"""Estimate of a plan's wall time on this machine: the time of a training step on random inputs, times the steps.

A separate process times steps (`step_timing.py`), so that planning itself need not import torch. No data are read.
Step times of past plans and sweeps on this machine are kept, so that no plan times a step again; they are for the
curator only.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from dpsweep.accounting.codec import non_negative
from dpsweep.accounting.durable_files import mode_with_group, short_digest_of_json, write_json
from dpsweep.accounting.errors import DAMAGE
from dpsweep.accounting.printing import print_error
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.stored_names.stored_classes import KIND, tag_or_path_of_class
from dpsweep.trainers.methods.script import is_script_config
from dpsweep.trainers.user_modules import FINDER

if TYPE_CHECKING:
    from dpsweep.accounting.records.plan import Plan

TIMEOUT_SECONDS = 300

FIRST_STEP_FAILED = "A first step of training failed on random records"
"""How a refusal of a model, method or data set begins that cannot be trained."""

COMPANY = 16
"""The largest number of stacked points that are timed: a step of more takes as long for each of them."""

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of step: a configuration that has it, and the number of points that one job may train together.

    With `extracts`, features of records are
    still to be computed.
    """

    config: Config
    points: int
    extracts: bool = False

    @property
    def can_be_timed(self) -> bool:
        """Whether a step can be timed beforehand: a script's steps cannot."""
        return not is_script_config(self.config)


@dataclass(frozen=True)
class Cost:
    """Seconds of one point's step, and of all that a run does besides its steps: curves and scores.

    `record` is the time in which an extractor computes the features of one record; None if it was not timed.
    """

    step: float
    beside: float = 0.0
    record: float | None = None


def step_shapes_by_timing_key(
    configs: Iterable[Config],
    workers: int = 1,
    together: int | None = None,
    *,
    extracts: bool = False,
) -> dict[str, Shape]:
    """One shape for each kind of step, by its key, if the points of a kind are divided among these workers.

    At most `together` points are in one job, if it is given. `extracts` is that of each shape.
    """
    counts: Counter[str] = Counter()
    one_each: dict[str, Config] = {}
    for config in configs:
        kind = timing_key_of_config(config)
        counts[kind], one_each[kind] = counts[kind] + 1, config
        if not isinstance(config["steps"], int):  # the budget decides their number: one step takes as long
            one_each[kind] = {**config, "steps": 1}
    most = COMPANY if together is None else min(COMPANY, together)
    points = {kind: min(most, math.ceil(count / max(1, workers))) for kind, count in counts.items()}
    return {kind: Shape(config=one_each[kind], points=points[kind], extracts=extracts) for kind in counts}


def _seconds_of_trial(trial: Trial, costs: Mapping[str, Cost]) -> float:
    cost = costs[timing_key_of_config(trial.config)]
    return cost.step * float(trial.config["steps"]) + cost.beside


def mean_seconds_of_run(plan: Plan, costs: Mapping[str, Cost]) -> float | None:
    """Mean time of a point; None if the time of a step is unknown, as that of a script is before its first run."""
    if any(timing_key_of_config(trial.config) not in costs for trial in plan.trials):
        return None
    return sum(_seconds_of_trial(trial, costs) for trial in plan.trials) / len(plan.trials)


def estimated_wall_seconds_of_plan(
    plan: Plan, costs: Mapping[str, Cost], workers: int, missing: int = 0
) -> float | None:
    """Wall time of the plan: its expected runs, at the mean time of a point, over the workers; then the final run.

    Before them the features of so many `missing` records are extracted, which the workers divide among them. None if
    the mean time of a point is unknown.
    """
    from dpsweep.accounting.searches.interface import declared_search_class

    if (mean := mean_seconds_of_run(plan, costs)) is None:
        return None
    runs = declared_search_class(plan).expected_number_of_runs(plan)
    at_once = min(max(1, workers), math.ceil(runs))
    search = mean * runs / at_once
    finals = [final for final in plan.final_runs if timing_key_of_config(final.config) in costs]
    extraction = missing * max((cost.record or 0.0 for cost in costs.values()), default=0.0) / at_once
    return extraction + search + max((_seconds_of_trial(final, costs) for final in finals), default=0.0)


def rough_duration_text(seconds: float) -> str:
    """An estimated time in one unit, by its length.

    >>> rough_duration_text(0.2), rough_duration_text(125), rough_duration_text(7322), rough_duration_text(4600000)
    ('about 1 s', 'about 2 min', 'about 2.0 h', 'about 53 days')
    """
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h" if seconds < 3 * 86400 else f"about {seconds / 86400:.0f} days"


def configs_of_plan_runs(plan: Plan) -> list[Config]:
    """The configurations of a plan's runs, of the final ones too."""
    return [trial.config for trial in plan.all_runs]


@contextmanager
def timing_process(
    shapes: Sequence[Shape],
    device: str,
    threads: int | None,
    most: int,
    *,
    known: Sequence[Cost | None] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Callable[[], dict[str, Any]]]:
    """A process with these environment variables that times shapes as `time_training_steps_of_shapes` does.

    Yields a function that waits for its answer: an empty one if it gave none. The process is ended on exit.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dpsweep.sweeper.timing.step_timing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables},
        text=True,
    )
    if process.stdin is not None:
        question = {"shapes": [asdict(shape) for shape in shapes], "device": device, "threads": threads, "most": most}
        costs = [cost and asdict(cost) for cost in known]
        json.dump(question | {"known": costs, "trusted": sorted(FINDER.trusted)}, process.stdin)
        process.stdin.close()
        process.stdin = None

    def wait_for_answer() -> dict[str, Any]:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            answer: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError):
            return {}
        return answer

    try:
        yield wait_for_answer
    finally:
        process.kill()
        process.communicate()


@contextmanager
def time_shapes_in_background(
    shapes: Sequence[Shape], device: str, threads: int | None, most: int, variables: Mapping[str, str]
) -> Iterator[Callable[[], list[Cost] | None]]:
    """The costs of these shapes, timed in a separate process that runs in the background.

    Yields a function that waits for the answer, None if there is none; the process is ended on exit. If a step fails,
    the function prints that a sweep would refuse the plan, and why.
    """
    with timing_process(shapes, device, threads, most, variables=variables) as answer:

        def wait_for_costs() -> list[Cost] | None:
            times = answer()
            if "refusal" in times:
                print_error(f"A sweep would refuse this plan. {FIRST_STEP_FAILED}: {times['refusal']}")
            return [Cost(**cost) for cost in times["costs"]] if times.get("costs") else None

        yield wait_for_costs


def timing_key_of_config(config: Config) -> str:
    """The settings that determine how long a step takes, as text; of our samplers only their batch size does."""
    parts = {name: config[name] for name in ("dataset", "model", "engine")}
    parts |= {"sampler": {name: value for name, value in config["sampler"].items() if name != KIND}}
    parts |= {name: config[name] for name in ("augmentation", "features", "adapter") if config.get(name)}
    script = {"script": config["trainer"]["sha256"]} if is_script_config(config) else {}
    return json.dumps(parts | {"trainer": tag_or_path_of_class(config["trainer"])} | script, sort_keys=True)


_LENGTHS = (2, 3)
"""The lengths of a stored cost: with the time of an extracted record, or without it."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds per step by kind of step, for one device and number of threads; in a small file beside the ledger.

    A file's values are seconds of a step, seconds beside the steps of a run, and, where records have frozen features,
    seconds to extract those of a record. `threads` is the number that the user gave, None if it follows from the work
    of a step; then it is at most `most`. So many `workers` share the points, and a job trains at most `together` of
    them, if it is given. With `extracts`, some features are still to be computed, and a kind of
    step whose extraction was not timed is unknown. A process that times steps has these environment `variables`.
    """

    path: Path
    device: str
    threads: int | None
    most: int
    workers: int = 1
    together: int | None = None
    extracts: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    def costs_if_all_known_else_none(self, configs: Iterable[Config]) -> dict[str, Cost] | None:
        """The cost of each kind of step among these; None unless all of them were timed or ran before."""
        costs = self.known_costs_of_shapes(self._step_shapes_of_configs(configs))
        return None if None in costs.values() else {kind: cost for kind, cost in costs.items() if cost is not None}

    @contextmanager
    def time_unknown_costs_in_background(
        self, configs: Iterable[Config]
    ) -> Iterator[Callable[[], Mapping[str, Cost] | None]]:
        """The cost of each kind of step: known ones, and the others timed in a separate process in the background.

        Yields a function that waits for the times, stores and returns them, or None if there are none.
        """
        shapes = self._step_shapes_of_configs(configs)
        costs = self.known_costs_of_shapes(shapes)
        known = {kind: cost for kind, cost in costs.items() if cost is not None}
        unknown = {kind: shape for kind, shape in shapes.items() if kind not in known and shape.can_be_timed}
        if not unknown:
            yield lambda: known
            return
        with time_shapes_in_background(
            list(unknown.values()), self.device, self.threads, self.most, self.variables
        ) as answer:

            def known_and_newly_timed_costs() -> Mapping[str, Cost] | None:
                new = answer()
                if new is None:
                    return None
                if self.path.parent.is_dir():  # a plan makes no folder beside the ledger
                    self._store_costs(
                        {self._cost_key(*one): cost for one, cost in zip(unknown.items(), new, strict=True)}
                    )
                return {**known, **dict(zip(unknown, new, strict=True))}

            yield known_and_newly_timed_costs

    def store_median_speeds_of_results(self, trials: Sequence[Trial], results: Sequence[TrialResult]) -> None:
        """Stores the median seconds per step of these trials' results, by kind of step."""
        configs = [trial.config for trial in trials]
        shapes = self._step_shapes_of_configs(configs)
        kinds = {trial.id: timing_key_of_config(trial.config) for trial in trials}
        times: dict[str, list[float]] = {}
        for result in results:
            if result.steps and (kind := kinds.get(result.trial, "")) in shapes:
                times.setdefault(kind, []).append(result.seconds / result.steps)
        costs = self.known_costs_of_shapes({kind: shapes[kind] for kind in times})
        self._store_costs(
            {
                self._cost_key(kind, shapes[kind]): replace(cost or Cost(step=0.0), step=median(seconds))
                for (kind, seconds), cost in zip(times.items(), costs.values(), strict=True)
            }
        )

    def _step_shapes_of_configs(self, configs: Iterable[Config]) -> Mapping[str, Shape]:
        return step_shapes_by_timing_key(configs, self.workers, self.together, extracts=self.extracts)

    def known_costs_of_shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Cost | None]:
        """The cost of each of these shapes, by kind, where it was timed or ran before."""
        stored = self._read_stored_costs()
        costs = {kind: stored.get(self._cost_key(kind, shape)) for kind, shape in shapes.items()}
        return {
            kind: None if cost is None or (shapes[kind].extracts and cost.record is None) else cost
            for kind, cost in costs.items()
        }

    def _store_costs(self, costs: Mapping[str, Cost]) -> None:
        lock = FileLock(f"{self.path}.lock", mode=mode_with_group(self.path))
        with suppress(OSError), lock:  # a full disk must not cost a sweep its report
            stored = {**self._read_stored_costs(), **costs}
            lists = {key: [one for one in astuple(cost) if one is not None] for key, cost in stored.items()}
            write_json(self.path, lists)

    def _read_stored_costs(self) -> Mapping[str, Cost]:
        try:
            times: dict[str, Any] = json.loads(self.path.read_text())
            return {key: Cost(*parts) for key, parts in times.items() if _is_list_of_times(parts)}
        except (OSError, *DAMAGE):
            return {}

    def _cost_key(self, kind: str, shape: Shape) -> str:
        threads = self.threads or self.most
        return short_digest_of_json({"kind": kind, "points": shape.points, "device": self.device, "threads": threads})


def _is_list_of_times(stored: object) -> bool:
    """Whether a stored value is a list of times."""
    if not isinstance(stored, list) or len(stored) not in _LENGTHS:
        return False
    try:
        for seconds in stored:
            non_negative("seconds", seconds)
    except (ValueError, TypeError):
        return False
    return True
