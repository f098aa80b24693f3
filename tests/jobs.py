"""Jobs as a launcher starts them, without a launcher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.launchers.hydra_jobs import JobConfigs


def job_config(words: Sequence[str], cwd: Path) -> DictConfig:
    """The configuration of a job in this working folder, which Hydra then knows as the present one."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        sweep = compose("config", return_hydra_config=True)
    config = JobConfigs().load_sweep_config(sweep, [*words, f"hydra.runtime.cwd={cwd}"])
    HydraConfig.instance().set_config(config)
    return config
