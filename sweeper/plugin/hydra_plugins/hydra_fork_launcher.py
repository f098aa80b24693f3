"""Hydra launcher plugin for forked jobs: `hydra/launcher=fork` passes the jobs on and does nothing else.

Every Hydra program on the machine imports this file, so it imports nothing heavy. Hydra executes it outside
`sys.modules`, where dataclasses cannot resolve postponed annotations: they are not postponed here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


@dataclass
class ForkLauncherConf:
    """The launcher's settings. `n_jobs`: jobs at once, -1 for one per core, with joblib's meaning."""

    _target_: str = "hydra_plugins.hydra_fork_launcher.ForkLauncher"
    n_jobs: int = -1


ConfigStore.instance().store(group="hydra/launcher", name="fork", node=ForkLauncherConf, provider="dpsweep")


class ForkLauncher(Launcher):
    """Jobs of one thread each, forked from this process; they start in milliseconds."""

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        """Stores the inputs of the jobs."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs these jobs, which may also be an iterator; a lost job counts as failed, and the others continue."""
        from dpsweep.sweeper.job.machine import usable_core_count
        from dpsweep.sweeper.launchers.fork_launcher import Jobs
        from dpsweep.sweeper.launchers.workers import pool_size_from_n_jobs

        if self.hydra_context is None or self.config is None or self.task_function is None:
            raise RuntimeError("Expected setup() before launch().")
        jobs = Jobs(context=self.hydra_context, task=self.task_function, config=self.config)
        return jobs.launch(job_overrides, initial_job_idx, pool_size_from_n_jobs(self.n_jobs, usable_core_count()))
