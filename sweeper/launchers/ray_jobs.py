"""Jobs on a Ray cluster, which is joined, or which starts and ends with the command.

Ray's workers look for modules where other jobs do. `ray.init` tells them to look in the coordinator's current folder
before all others: any file there that bears a library's name would run (`trainers/user_modules.py`). Ray leaves the
folder out for a job that brings a folder of its own, and has no other switch; so Ray is started as for such a job.

A cluster that asks for its token (the default of `ray start` today) admits a process that has the token in its home
folder, and that `RAY_AUTH_MODE=token` tells to show it. A raylet and the coordinator need both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.launchers.slurm_arrays import LaunchFailed, refuse_launcher_settings

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction

LOCAL = "local"
"""The address of a cluster that starts and ends with the command."""

OBJECT_STORE_BYTES = 78_643_200
"""The memory of a local cluster's object store where the user gave none: jobs return nothing large."""

Settings = Mapping[str, Any]
"""`hydra.launcher.ray`: `init` for `ray.init`, and `remote`, the resources of a job."""


def is_local_cluster(settings: Settings) -> bool:
    """Whether the cluster starts and ends with the command, on this machine."""
    return bool(_given_settings(settings, "init").get("address", LOCAL) == LOCAL)


def jobs_that_fit_into_cluster(settings: Settings) -> int:
    """The number of jobs for which the machines of the cluster have room, if nobody else uses them.

    Joins the cluster; raises `BadInput` if that fails. The machines that an autoscaler would add are not known.
    """
    with refuse_launcher_settings():
        return sum(_jobs_by_machine(settings))


def require_room_for_a_job(settings: Settings) -> None:
    """Starts or joins the cluster, and raises `ValueError` if none of its machines has the resources of a job."""
    if not any(_jobs_by_machine(settings)):
        raise ValueError(
            "no machine of the Ray cluster has the resources of a job (hydra.launcher.ray.remote): "
            f"{_resources_of_a_job(settings)}"
        )


def run_jobs(launcher: Any, jobs: Iterable[list[str]], first: int) -> list[JobReturn]:
    """Runs a job for each of these overrides; a job that was lost counts as failed, and the others continue.

    `first` is the number of the first job. Raises `LaunchFailed` if there is no cluster.
    """
    config, state = launcher.config, Singleton.get_state()
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    try:
        ray = _start_ray(launcher.ray_cfg)
    except Exception as cause:
        raise LaunchFailed(cause) from cause
    run = ray.remote(**_given_settings(launcher.ray_cfg, "remote"))(_run_job)
    calls = []
    for number, overrides in enumerate(jobs, first):
        job = launcher.hydra_context.config_loader.load_sweep_config(launcher.config, list(overrides))
        with open_dict(job):
            job.hydra.job.id, job.hydra.job.num = f"job_id_for_{number}", number
        calls.append((overrides, run.remote(launcher.hydra_context, launcher.task_function, job, state)))
    return [_end_of_call(ray, call, overrides) for overrides, call in calls]


def _run_job(context: HydraContext, task: TaskFunction, config: DictConfig, state: Any) -> JobReturn:
    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(config)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _end_of_call(ray: Any, call: Any, overrides: list[str]) -> JobReturn:
    try:
        end: JobReturn = ray.get(call)
    except ray.exceptions.RayError as error:
        lost = ChildProcessError(" ".join(f"{type(error).__name__}: {error}".split()))
        end = JobReturn(overrides=overrides, status=JobStatus.FAILED, _return_value=lost)
    return end


def _start_ray(settings: Settings) -> Any:
    """Ray's module, once Ray runs; it is started here unless it does."""
    try:
        import ray
        from ray.job_config import JobConfig
    except ImportError as cause:
        raise BadInput("hydra/launcher=ray needs pip install 'dpsweep[ray]'.") from cause

    class _OwnFolder(JobConfig):  # type: ignore[misc]
        """The configuration of a job that needs no folder of the coordinator's."""

        def _runtime_env_has_working_dir(self) -> bool:
            return True

    if not ray.is_initialized():
        defaults = {"address": LOCAL, "object_store_memory": OBJECT_STORE_BYTES} if is_local_cluster(settings) else {}
        ray.init(**defaults | _given_settings(settings, "init"), job_config=_OwnFolder())
    return ray


def _jobs_by_machine(settings: Settings) -> list[int]:
    """For each living machine of the cluster, the number of jobs for which it has room."""
    asked = _resources_of_a_job(settings)
    machines = [machine["Resources"] for machine in _start_ray(settings).nodes() if machine["Alive"]]
    return [int(min(machine.get(name, 0) / number for name, number in asked.items())) for machine in machines]


def _resources_of_a_job(settings: Settings) -> dict[str, float]:
    """What a job takes of a machine, by Ray's names of resources."""
    remote = _given_settings(settings, "remote")
    asked = {"CPU": remote.get("num_cpus", 1), "GPU": remote.get("num_gpus"), "memory": remote.get("memory")}
    return {name: number for name, number in {**asked, **(remote.get("resources") or {})}.items() if number}


def _given_settings(settings: Settings, part: str) -> dict[str, Any]:
    """The settings of this part that have a value."""
    node = settings.get(part) or {}
    plain: Any = OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else node
    return {key: value for key, value in plain.items() if value is not None}
