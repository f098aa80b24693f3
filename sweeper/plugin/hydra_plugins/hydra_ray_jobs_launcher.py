"""Hydra launcher plugin for a Ray cluster: `hydra/launcher=ray` passes the jobs on and does nothing else.

It needs Ray alone; Hydra's own launcher for Ray demands an old `cloudpickle` and Amazon's client. Every Hydra program
on the machine imports this file, so it imports nothing heavy, and `hydra_fork_launcher.py` says why it postpones no
annotations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


@dataclass
class RayConf:
    """`init`: how the cluster is joined (`address`) or started, as `ray.init` has it. `remote`: what each job takes."""

    init: dict[str, Any] = field(
        default_factory=lambda: {"address": "local", "num_cpus": None, "num_gpus": None, "object_store_memory": None}
    )
    remote: dict[str, Any] = field(
        default_factory=lambda: {"num_cpus": 1, "num_gpus": None, "memory": None, "resources": None}
    )


@dataclass
class RayLauncherConf:
    """The launcher's settings."""

    _target_: str = "hydra_plugins.hydra_ray_jobs_launcher.RayLauncher"
    ray: RayConf = field(default_factory=RayConf)


ConfigStore.instance().store(group="hydra/launcher", name="ray", node=RayLauncherConf, provider="dpsweep")


class RayLauncher(Launcher):
    """Jobs on the machines of a Ray cluster."""

    def __init__(self, ray: Mapping[str, Any]) -> None:
        self.ray_cfg = ray

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        """Stores the inputs of the jobs."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs these jobs; a lost job counts as failed, and the others continue."""
        from dpsweep.sweeper.launchers.ray_jobs import run_jobs

        return run_jobs(self, map(list, job_overrides), initial_job_idx)
