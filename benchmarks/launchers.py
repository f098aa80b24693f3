"""What a launcher takes to run jobs that do nothing: forked from a process that has torch, beside joblib's new ones.

Jobs are launched as those of a sweep are, by `HydraJobs`. Each time joblib's pool is a new one, as it is for a sweep,
and its workers import torch as every trial's must. What bare forks take has no job in it. Printed are processor seconds
of this process and its children, and multiples of `import torch` in the same round; "wall" is seconds on the clock. The
aims are about the multiples divided by the two workers: what the clock of a machine shows whose two cores do nothing
else.

    python benchmarks/launchers.py [--toy] [--rounds 5] [--jobs 35]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from hydra import initialize
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode
from joblib.externals.loky import get_reusable_executor
from measuring.aims import Aim
from measuring.clock import children_seconds, processor_seconds, wall_seconds
from measuring.script import start
from omegaconf import DictConfig

from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.launchers.fork_launcher import run_each_in_forked_process
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs

WORKERS = 2
TORCH, BARE, FORK, BASIC, JOBLIB = "import torch", "bare forks", "fork", "basic", "joblib"
AIMS = {FORK: 0.6, JOBLIB: 2.5}
"""Multiples of `import torch` for 35 jobs, a worker's share."""


@dataclass(frozen=True, kw_only=True)
class Size:
    rounds: int = 5
    jobs: int = 35


def nothing(config: DictConfig) -> int:
    return torch.get_num_threads()


def run_jobs(launcher: str, count: int) -> None:
    """Everything that a sweep needs for its jobs but the task: Hydra's configuration, the launcher, and each job's."""
    with tempfile.TemporaryDirectory() as folder, initialize(None, "benchmark", 1, **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()
        asked = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}"]
        asked += [f"hydra.launcher.n_jobs={WORKERS}"] if launcher != BASIC else []
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
        config = loader.load_configuration(None, [*asked, *quiet], run_mode=RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks())
        ready = HydraJobs(context=context, task=nothing, config=config).job_launcher_for_folder(Path(folder))
        errors = ready.launch([{"part": number} for number in range(count)], 0)
        get_reusable_executor().shutdown()
    assert errors == [None] * count


def run_bare(count: int) -> None:
    assert run_each_in_forked_process([lambda: b"done"] * count, WORKERS) == [b"done"] * count


def import_torch() -> None:
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


def contenders(count: int) -> dict[str, Callable[[], None]]:
    return {
        TORCH: import_torch,
        BARE: partial(run_bare, count),
        FORK: partial(run_jobs, FORK, count),
        BASIC: partial(run_jobs, BASIC, count),
        JOBLIB: partial(run_jobs, JOBLIB, count),
    }


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Processor seconds of this process and its children, and those on the clock."""
    before, walls = children_seconds(), list[float]()
    own = processor_seconds(lambda: walls.append(wall_seconds(work)))
    return own + children_seconds() - before, walls[0]


def main(size: Size) -> list[Aim]:
    works = contenders(size.jobs)
    run_jobs(FORK, 1)  # Hydra's plugins are found once for all
    rounds = [{name: seconds(work) for name, work in works.items()} for _ in range(size.rounds)]
    print(f"{size.jobs} jobs that do nothing, {WORKERS} workers: medians of {size.rounds} rounds")
    print(f"{'':15}{'s':>8}{'x torch':>9}{'wall':>8}")
    aims = []
    for name in works:
        ratio = statistics.median(turn[name][0] / turn[TORCH][0] for turn in rounds)
        processor, wall = (statistics.median(turn[name][which] for turn in rounds) for which in (0, 1))
        print(f"{name:15}{processor:8.3f}{ratio:9.2f}{wall:8.3f}")
        if name in AIMS:
            aims.append(
                Aim(name=f"{size.jobs} jobs, {name}, a worker, x torch", measured=ratio / WORKERS, at_most=AIMS[name])
            )
    return aims


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, jobs=2), about=__doc__)
