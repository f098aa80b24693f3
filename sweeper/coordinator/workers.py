"""How many jobs a launcher runs at once, and how many threads each may use so that they do not fight for cores.

Read from the launcher's own settings, so that a launcher needs no code here: one without a word about workers is taken
to run one job after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.errors import BadInput

ROUNDS = 64
"""Jobs that are handed over for each worker: so many that waiting for the last costs nothing, so few that a stop, for
which each that waits is begun in vain, is soon over."""

MOST = 1000
"""Jobs that are handed over at once at most; Slurm refuses larger arrays."""

Settings = Mapping[str, Any]
"""A launcher's own settings."""

FORKED = "hydra_plugins.hydra_fork_launcher.ForkLauncher"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """`jobs` run at once with `threads` each; `batch` are handed over together.

    `elsewhere` says that jobs may run on other machines than the coordinator.
    """

    jobs: int
    threads: int
    batch: int
    elsewhere: bool = False

    @classmethod
    def of(cls, launcher: Settings, cores: int) -> Workers:
        """What a launcher with these settings does, from a machine with so many cores.

        >>> Workers.of({"n_jobs": 2}, cores=8)
        Workers(jobs=2, threads=4, batch=128, elsewhere=False)
        """
        for key, read in _READ.items():
            if launcher.get(key) is not None:
                return read(launcher, cores)
        return cls(jobs=1, threads=cores, batch=1 if set(launcher) <= {"_target_"} else ROUNDS)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool_size(asked: int, cores: int) -> int:
    """The processes that joblib's `n_jobs` asks for; less than none leaves so many cores free, less one."""
    if not asked:
        raise BadInput("Expected hydra.launcher.n_jobs=0 to be a number of workers; -1 is one for each core.")
    return asked if asked > 0 else max(1, cores + 1 + asked)


def is_forked(launcher: Settings) -> bool:
    """Whether this launcher's jobs are forked from the coordinator, with one thread each."""
    return bool(launcher.get("_target_") == FORKED)


def _processes(launcher: Settings, cores: int) -> Workers:
    """A pool of processes on this machine."""
    jobs = pool_size(launcher["n_jobs"], cores)
    threads = 1 if is_forked(launcher) else max(1, cores // jobs)
    return Workers(jobs=jobs, threads=threads, batch=_batch(jobs))


def _queue(launcher: Settings, cores: int) -> Workers:
    """A queue that starts so many jobs, each on the cores that it was granted."""
    _one_process(launcher)
    jobs = launcher["array_parallelism"]
    return Workers(jobs=jobs, threads=launcher.get("cpus_per_task") or 1, batch=_batch(jobs), elsewhere=True)


def _at_once(launcher: Settings, cores: int) -> Workers:
    """Processes on this machine that are all started at once, so no more are handed over than there is room for."""
    _one_process(launcher)
    threads = launcher.get("cpus_per_task") or 1
    jobs = max(1, cores // threads)
    return Workers(jobs=jobs, threads=threads, batch=jobs)


def _cluster(launcher: Settings, cores: int) -> Workers:
    """A cluster that gives a job what it asks for; one of unknown size is taken to be as large as this machine."""
    threads = max(1, int(_setting(launcher, "ray.remote.num_cpus") or 1))
    jobs = max(1, (_setting(launcher, "ray.init.num_cpus") or cores) // threads)
    elsewhere = _setting(launcher, "ray.init.address") is not None
    return Workers(jobs=jobs, threads=threads, batch=_batch(jobs), elsewhere=elsewhere)


def _one_process(launcher: Settings) -> None:
    for key in ("nodes", "tasks_per_node"):
        if launcher.get(key, 1) != 1:
            raise BadInput(
                f"Expected hydra.launcher.{key}={launcher[key]} to be 1: a job is one process. More of them at once: "
                "hydra.launcher.array_parallelism."
            )


def _setting(launcher: Settings, key: str) -> Any:
    """The setting of this dotted key, None where it or what holds it is not there."""
    node: Any = launcher
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _batch(jobs: int) -> int:
    return min(MOST, ROUNDS * jobs)


_READ: Mapping[str, Callable[[Settings, int], Workers]] = {
    "n_jobs": _processes,
    "array_parallelism": _queue,
    "tasks_per_node": _at_once,
    "ray": _cluster,
}
"""The setting by which each kind of launcher is known."""
