"""As many jobs as a launcher runs, and no more threads than cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.launchers import ray_jobs
from dpsweep.sweeper.launchers.workers import FORKED, MOST, ROUNDS, Workers

SLURM = {"array_parallelism": 256, "tasks_per_node": 1, "nodes": 1}
LOCAL = {"tasks_per_node": 1, "nodes": 1}
MACHINES = (
    {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 4.0, "memory": 3e9}},
    {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 2.0, "memory": 2e9}},
    {"Alive": True, "Resources": {"CPU": 64.0, "memory": 1e9}},
    {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0, "memory": 1e12}},
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ray cluster of these machines; `tests/engines/test_ray.py` has a real one."""
    monkeypatch.setattr(ray_jobs, "_start_ray", lambda settings: SimpleNamespace(nodes=lambda: MACHINES))


@pytest.mark.parametrize(
    ("launcher", "jobs", "threads", "batch"),
    [
        ({"_target_": "basic"}, 1, 8, 1),
        ({"n_jobs": 2}, 2, 4, 2 * ROUNDS),
        ({"n_jobs": 3}, 3, 2, 3 * ROUNDS),
        ({"n_jobs": 20}, 20, 1, MOST),
        ({"n_jobs": -1}, 8, 1, 8 * ROUNDS),
        ({"n_jobs": -3}, 6, 1, 6 * ROUNDS),
        ({"_target_": FORKED, "n_jobs": 2}, 2, 1, 2 * ROUNDS),
        ({"_target_": FORKED, "n_jobs": -1}, 8, 1, 8 * ROUNDS),
        (SLURM | {"cpus_per_task": 4}, 256, 4, MOST),
        (SLURM | {"cpus_per_task": None}, 256, 1, MOST),
        (LOCAL | {"cpus_per_task": 3}, 2, 3, 2),
        (LOCAL | {"cpus_per_task": None}, 8, 1, 8),
        ({"ray": {"init": {"num_cpus": 6}, "remote": {"num_cpus": 2}}}, 3, 2, 3 * ROUNDS),
        ({"ray": {"init": {"address": "local"}, "remote": {}}}, 8, 1, 8 * ROUNDS),
        ({"ray": {"init": {"address": "FIRST:6379"}, "remote": {"num_cpus": 2, "num_gpus": 1}}}, 5, 2, 5 * ROUNDS),
        ({"ray": {"init": {"num_cpus": 6}, "remote": {"num_cpus": 0.5}}}, 6, 1, 6 * ROUNDS),
        ({"_target_": "another", "redis": "there"}, 1, 8, ROUNDS),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_a_launchers_settings_say_how_many(launcher: dict[str, Any], jobs: int, threads: int, batch: int) -> None:
    workers = Workers.from_launcher_settings(OmegaConf.create(launcher), cores=8)
    assert (workers.jobs, workers.threads, workers.batch) == (jobs, threads, batch)


@pytest.mark.parametrize(
    ("launcher", "elsewhere"),
    [
        ({"n_jobs": 2}, False),
        (LOCAL | {"cpus_per_task": 1}, False),
        (SLURM | {"cpus_per_task": 1}, True),
        ({"ray": {"init": {"num_cpus": 6}, "remote": {}}}, False),
        ({"ray": {"init": {"address": "auto"}, "remote": {}}}, True),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_a_queue_and_a_running_cluster_may_use_other_machines(launcher: dict[str, Any], elsewhere: bool) -> None:
    assert Workers.from_launcher_settings(OmegaConf.create(launcher), cores=8).elsewhere is elsewhere


@pytest.mark.parametrize(
    ("launcher", "memory", "runs"),
    [
        (SLURM | {"mem_gb": 16, "timeout_min": 60}, 16 * 2**30, 90),
        (SLURM | {"mem_gb": None, "timeout_min": 1}, None, 15),
        (LOCAL | {"cpus_per_task": 1}, None, 1),
        ({"n_jobs": 2}, None, 1),
        ({"ray": {"init": {"address": "auto"}, "remote": {"memory": 10**9}}}, 10**9, 1),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_a_job_of_a_queue_has_minutes_of_work_and_half_of_its_time_at_most(
    launcher: dict[str, Any], memory: int | None, runs: int
) -> None:
    workers = Workers.from_launcher_settings(OmegaConf.create(launcher), cores=8)
    assert workers.memory == memory
    assert workers.least_runs_per_job(2.0) == runs
    assert workers.least_runs_per_job(None) == 1
    assert workers.least_runs_per_job(1000.0) == 1
    alone = workers.limited_for_secret_draw()
    assert alone.jobs == (1 if not workers.here else workers.jobs)


@pytest.mark.parametrize("cores", [1, 2, 7, 64])
@pytest.mark.parametrize("launcher", [{"n_jobs": 2}, {"n_jobs": -1}, {"ray": {}}, LOCAL | {"cpus_per_task": 1}])
def test_workers_of_one_machine_share_its_cores(launcher: dict[str, Any], cores: int) -> None:
    workers = Workers.from_launcher_settings(OmegaConf.create(launcher), cores)
    assert workers.threads >= 1
    assert workers.jobs * workers.threads <= max(cores, workers.jobs)


@pytest.mark.parametrize("key", ["nodes", "tasks_per_node"])
def test_several_processes_of_one_job_are_refused(key: str) -> None:
    with pytest.raises(BadInput, match=f"hydra.launcher.{key}=2 to be 1"):
        Workers.from_launcher_settings(OmegaConf.create(SLURM | {"cpus_per_task": 1, key: 2}), cores=8)


def test_no_workers_are_refused() -> None:
    with pytest.raises(BadInput, match="n_jobs=0"):
        Workers.from_launcher_settings(OmegaConf.create({"n_jobs": 0}), cores=8)
