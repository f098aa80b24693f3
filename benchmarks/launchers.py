"""What a launcher takes to run jobs that do nothing: forked from a process that has torch, beside joblib's new ones.

Each time joblib's pool is a new one, as it is for a sweep, and its workers import torch as every trial's must. Hydra
composes each job's configuration and copies it about; what the basic launcher takes is that and nothing else, and what
bare forks take has none of it.

    python benchmarks/launchers.py [--toy] [--rounds 5] [--jobs 35]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass

import torch
from hydra import initialize
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.types import HydraContext, RunMode
from joblib.externals.loky import get_reusable_executor
from measuring.aims import Aim
from measuring.script import start
from omegaconf import DictConfig

from dpsweep.sweeper.launchers.fork_pool import fork_each

WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Size:
    rounds: int = 5
    jobs: int = 35


def nothing(config: DictConfig) -> int:
    return torch.get_num_threads()


def seconds(launcher: str, count: int) -> float:
    with tempfile.TemporaryDirectory() as folder, initialize(version_base="1.3", config_path=None):
        loader = GlobalHydra.instance().config_loader()
        asked = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}"]
        asked += [f"hydra.launcher.n_jobs={WORKERS}"] if launcher != "basic" else []
        quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
        config = loader.load_configuration(None, [*asked, *quiet], run_mode=RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks())
        ready = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=nothing, config=config)
        started = time.perf_counter()
        jobs = ready.launch([[f"+job={number}"] for number in range(count)], initial_job_idx=0)
        taken = time.perf_counter() - started
    assert [job.status for job in jobs] == [JobStatus.COMPLETED] * count
    return taken


def bare_seconds(count: int) -> float:
    started = time.perf_counter()
    assert fork_each([lambda: b"done"] * count, WORKERS) == [b"done"] * count
    return time.perf_counter() - started


def main(size: Size) -> list[Aim]:
    taken: dict[str, list[float]] = {"bare forks": [], "fork": [], "basic": [], "joblib": []}
    for _ in range(size.rounds):
        for launcher, times in taken.items():
            get_reusable_executor().shutdown()
            times.append(bare_seconds(size.jobs) if launcher == "bare forks" else seconds(launcher, size.jobs))
    print(f"{size.jobs} jobs that do nothing, {WORKERS} workers, seconds: median, least, most of {size.rounds} rounds")
    for launcher, times in taken.items():
        print(f"{launcher:<10}  {statistics.median(times):6.3f}  {min(times):6.3f}  {max(times):6.3f}")
    return []


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, jobs=2), about=__doc__)
