"""Number of jobs that a launcher runs at once, threads per job, and whether all of them run on this machine.

The numbers are read from the launcher's own settings, so that a launcher needs no code here: a launcher without a
setting for workers is assumed to run one job after another. A launcher that is not listed in `HERE` is assumed to show
its jobs to other users, as a queue does in its accounting and a cluster in its temporary folder. So under a secret draw
it runs one job, which makes the whole search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.launchers.ray_jobs import is_local_cluster, jobs_that_fit_into_cluster

ROUNDS = 64
"""Jobs that are handed over per worker: enough that waiting for the last job costs little, and few enough that a stop,
after which each waiting job still starts and exits, is fast."""

MOST = 1000
"""Largest number of jobs that are handed over at once; Slurm refuses larger arrays."""

GIB = 2**30
"""The bytes of a `GB` of Slurm's."""

WORK_SECONDS = 180.0
"""The work that a job of a queue should have: it waits for a machine, and starts Python and torch there."""

Settings = Mapping[str, Any]
"""A launcher's own settings."""

FORKED = "hydra_plugins.hydra_fork_launcher.ForkLauncher"

JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"

HERE = frozenset({"hydra._internal.core_plugins.basic_launcher.BasicLauncher", JOBLIB, FORKED})
"""The launchers that are known to run their jobs on this machine and to write only to the sweep's folder.

joblib's semaphores are as many as the jobs, whatever runs in them.
"""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """`jobs` run at once with `threads` each; `batch` jobs are handed over together.

    `elsewhere` says that jobs may run on other machines than the coordinator's, `here` that they are known to run on
    the coordinator's alone. Neither holds for a launcher that is not known. `memory` is the bytes that each job asks
    for, None if the launcher does not say. A job should have at least `work` seconds of work, 0 where a start is cheap.
    """

    jobs: int
    threads: int
    batch: int
    elsewhere: bool = False
    here: bool = False
    memory: int | None = None
    work: float = 0.0

    @classmethod
    def from_launcher_settings(cls, launcher: Settings, cores: int) -> Workers:
        """The workers of a launcher with these settings, started from a machine with this number of cores.

        >>> Workers.from_launcher_settings({"n_jobs": 2}, cores=8)
        Workers(jobs=2, threads=4, batch=128, elsewhere=False, here=False, memory=None, work=0.0)
        """
        known = next((read(launcher, cores) for key, read in _READ.items() if launcher.get(key) is not None), None)
        one_by_one = cls(jobs=1, threads=cores, batch=1 if set(launcher) <= {"_target_"} else ROUNDS)
        return replace(known or one_by_one, here=launcher.get("_target_") in HERE)

    def least_runs_per_job(self, seconds: float | None) -> int:
        """The number of runs, each of so many seconds, that one job should make; 1 if the time is not known.

        >>> Workers(jobs=256, threads=1, batch=1000, work=180.0).least_runs_per_job(0.4)
        450
        """
        return max(1, int(self.work / seconds)) if self.work and seconds else 1

    def limited_for_secret_draw(self) -> Workers:
        """The workers that share the tries of a secret draw: one where others may see a list of jobs.

        *Guarantee*: `Runner` starts a number of jobs that no draw changes, and where jobs are listed it is one. A list
        tells its length, and whether it died.
        """
        return self if self.here else replace(self, jobs=1, batch=1)

    def refusal_sentence_of_secret_draw(self, rule: str, resume: int) -> str:
        """Why these workers may not run a secret draw; empty if they may.

        `resume` is how often an interrupted try is launched again.
        """
        if resume and (jobs := self.limited_for_secret_draw().jobs) > 1:
            return (
                f"Expected hydra.sweeper.resume={resume} to be 0 under {rule} with {jobs} workers: a new worker for "
                "one that ended shows other users of this machine that it was at a try, and its tries are secret; one "
                "worker (hydra.launcher.n_jobs=1) is resumed."
            )
        return ""


def pool_size_from_n_jobs(asked: int, cores: int) -> int:
    """The number of processes for joblib's `n_jobs`; a negative -n leaves n - 1 cores free."""
    if not asked:
        raise BadInput("Expected hydra.launcher.n_jobs=0 to be a number of workers; -1 is one for each core.")
    return asked if asked > 0 else max(1, cores + 1 + asked)


def is_fork_launcher(launcher: Settings) -> bool:
    """Whether this launcher's jobs are forked from the coordinator, with one thread each."""
    return bool(launcher.get("_target_") == FORKED)


def _process_pool_workers(launcher: Settings, cores: int) -> Workers:
    """A pool of processes on this machine."""
    jobs = pool_size_from_n_jobs(launcher["n_jobs"], cores)
    threads = 1 if is_fork_launcher(launcher) else max(1, cores // jobs)
    return Workers(jobs=jobs, threads=threads, batch=_jobs_per_batch(jobs))


def _job_queue_workers(launcher: Settings, cores: int) -> Workers:
    """A queue that runs `array_parallelism` jobs at once, each on its granted cores."""
    _require_one_process_per_job(launcher)
    jobs, limit, memory = launcher["array_parallelism"], launcher.get("timeout_min"), launcher.get("mem_gb")
    return Workers(
        jobs=jobs,
        threads=launcher.get("cpus_per_task") or 1,
        batch=_jobs_per_batch(jobs),
        elsewhere=True,
        memory=None if memory is None else int(memory * GIB),
        work=WORK_SECONDS if limit is None else min(WORK_SECONDS, limit * 60 / 2),
    )


def _local_workers_started_at_once(launcher: Settings, cores: int) -> Workers:
    """Processes on this machine that all start at once, so a batch has no more jobs than the cores allow."""
    _require_one_process_per_job(launcher)
    threads = launcher.get("cpus_per_task") or 1
    jobs = max(1, cores // threads)
    return Workers(jobs=jobs, threads=threads, batch=jobs)


def _ray_cluster_workers(launcher: Settings, cores: int) -> Workers:
    """A cluster that grants each job its requested cores: as many jobs as its machines, or this one, have room for."""
    settings, local = launcher["ray"], is_local_cluster(launcher["ray"])
    threads = max(1, int(_nested_setting(settings, "remote.num_cpus") or 1))
    local_cores = _nested_setting(settings, "init.num_cpus") or cores
    jobs = max(1, local_cores // threads if local else jobs_that_fit_into_cluster(settings))
    memory = _nested_setting(settings, "remote.memory")
    return Workers(jobs=jobs, threads=threads, batch=_jobs_per_batch(jobs), elsewhere=not local, memory=memory)


def _require_one_process_per_job(launcher: Settings) -> None:
    for key in ("nodes", "tasks_per_node"):
        if launcher.get(key, 1) != 1:
            raise BadInput(
                f"Expected hydra.launcher.{key}={launcher[key]} to be 1: a job is one process. More of them at once: "
                "hydra.launcher.array_parallelism."
            )


def _nested_setting(launcher: Settings, key: str) -> Any:
    """The setting with this dotted key; None if the key or one of its parents is missing."""
    node: Any = launcher
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _jobs_per_batch(jobs: int) -> int:
    return min(MOST, ROUNDS * jobs)


_READ: Mapping[str, Callable[[Settings, int], Workers]] = {
    "n_jobs": _process_pool_workers,
    "array_parallelism": _job_queue_workers,
    "tasks_per_node": _local_workers_started_at_once,
    "ray": _ray_cluster_workers,
}
"""The setting that identifies each kind of launcher, and the function that reads its workers."""
