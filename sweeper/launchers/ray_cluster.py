"""The start of Ray for a sweep, so that its workers look for modules where other jobs do.

`ray.init` tells its workers to look in the coordinator's current folder before all others: any file there that bears a
library's name would run (`trainers/user_modules.py`). Ray leaves the folder out for a job that brings a folder of its
own, and has no other switch; so Ray is started here, before its launcher would, as for such a job.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

RAY = "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"
OBJECT_STORE_BYTES = 78_643_200
"""The memory of Ray's object store where the user gave none, as its launcher sets it."""


def start_ray(launcher: Any) -> None:
    """Starts Ray for its launcher, unless it runs; for other launchers nothing is done."""
    if f"{type(launcher).__module__}.{type(launcher).__name__}" != RAY:
        return
    import ray
    from ray.job_config import JobConfig

    class _OwnFolder(JobConfig):  # type: ignore[misc]
        """The configuration of a job that needs no folder of the coordinator's."""

        def _runtime_env_has_working_dir(self) -> bool:
            return True

    if not ray.is_initialized():
        launcher.ray_cfg.init.setdefault("object_store_memory", OBJECT_STORE_BYTES)
        settings: Any = OmegaConf.to_container(launcher.ray_cfg.init, resolve=True)
        ray.init(**settings, job_config=_OwnFolder())
