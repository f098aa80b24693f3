"""Hydra's launchers behind one value: whatever they need is kept here, and nothing else in the sweeper reads it.

What Hydra hands over (its context, the task, the composed configuration) reaches no other module: a job is a mapping of
plain values, and what became of it is an exception or nothing.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.launchers.joblib_pool import tame
from dpsweep.sweeper.launchers.ray_cluster import start_ray

JOB: Mapping[str, Any] = {
    "block": None,  # the block to train, or `tries`, and which of its parts
    "part": 0,
    "parts": 1,
    "trusted": [],  # the classes that are not ours and that the command line named; no other one in a plan is imported
    "data": None,
    "store": None,  # the plan's private store, where receipts are claimed and steps are marked
    "compute": {"device": "auto", "threads": None, "chunk": None, "together": None, "processes": 1},
}
"""The configuration of a job: nothing but what the runner tells it. All else stands in the plan."""

Value = str | int | list[str] | None


@dataclass(frozen=True, kw_only=True)
class JobConfigs:
    """The loader that launchers ask for a job's configuration: `JOB`, the job's values, and the sweep's `hydra`.

    Hydra's own loader composes the configuration of every job anew, from all files.
    """

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """A job's configuration, by overrides that are all plain values; a key that no job has is refused."""
        config = OmegaConf.create({**JOB, "hydra": master_config.hydra})
        OmegaConf.set_struct(config, True)
        OmegaConf.set_readonly(config.hydra, False)
        for override in OverridesParser.create().parse_overrides(list(sweep_overrides)):
            OmegaConf.update(config, override.key_or_group, override.value())
        return config


@dataclass(frozen=True, kw_only=True)
class JobLauncher:
    """A launcher of Hydra's that is set up for one sweep folder."""

    launcher: Any

    def launch(self, jobs: Sequence[Mapping[str, Value]], first: int) -> list[Exception | None]:
        """Runs a job for each of these settings; what ended each that did not end well.

        Raises what the launcher itself complains of. `first` is the number of the first job.
        """
        start_ray(self.launcher)
        returned = self.launcher.launch([overrides(job) for job in jobs], initial_job_idx=first)
        return [_error(job) for job in returned]


@dataclass(frozen=True, kw_only=True)
class HydraJobs:
    """What Hydra needs to launch jobs."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def of_plan(self, plan_id: str) -> HydraJobs:
        """The same for the jobs of this plan."""
        config = copy.deepcopy(self.config)
        OmegaConf.update(config, "plan.id", plan_id, force_add=True)  # hydra.sweep.dir is named after it
        return HydraJobs(context=self.context, task=self.task, config=config)

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return Path(self.config.hydra.sweep.dir).expanduser().absolute()

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides of the command, as they were typed."""
        return tuple(map(str, self.config.hydra.overrides.task))

    def store(self, path: Path) -> None:
        """Writes down the command's configuration."""
        OmegaConf.save(self.config, path)

    def try_out(self) -> None:
        """Sets a launcher up and drops it: what is wrong with its settings shows before anything is charged."""
        self._instantiate(self.config)

    def launcher(self, root: Path) -> JobLauncher:
        """The launcher that was configured, with its own settings and the configuration that its jobs start from."""
        config = _for_jobs(self.config)
        config.hydra.sweep.dir = str(root)
        launcher = self._instantiate(config)
        tame(launcher)
        return JobLauncher(launcher=launcher)

    def _instantiate(self, config: DictConfig) -> Any:
        context: Any = HydraContext(config_loader=JobConfigs(), callbacks=self.context.callbacks)  # type: ignore[arg-type]
        return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=self.task, config=config)


def _for_jobs(config: DictConfig) -> DictConfig:
    """A copy without what no job reads: Hydra copies, and a pool pickles, all of `hydra` several times for each job."""
    config = copy.deepcopy(config)
    hydra = config.hydra
    OmegaConf.set_readonly(hydra, False)
    hydra.runtime.choices, hydra.runtime.config_sources = {}, []
    for text in ("header", "footer", "template"):
        hydra.help[text] = ""
    return config


def require_launcher(config: DictConfig) -> None:
    """Raises `BadInput` unless `hydra.launcher` names one of the launchers that Hydra has found; builds nothing."""
    target = OmegaConf.select(config, "hydra.launcher._target_", default=None)
    if target not in {f"{kind.__module__}.{kind.__name__}" for kind in Plugins.instance().discover(Launcher)}:
        raise BadInput(
            f"Expected hydra.launcher._target_={target} to be a launcher of Hydra's or of an installed plug-in: leave "
            "it out and choose one by name, as in hydra/launcher=fork."
        )


def overrides(values: Mapping[str, Value]) -> list[str]:
    """Hydra overrides that give back exactly these values; text is quoted: 488993726622 and 12e45 are names."""
    return [f"{key}={_literal(value)}" for key, value in values.items()]


def _literal(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    if isinstance(value, str):
        return QuotedString(text=value, quote=Quote.single).with_quotes()
    return str(value)


def _error(job: JobReturn) -> Exception | None:
    """What ended a job that did not end well; asking prints its overrides, which tell a user nothing."""
    try:
        with redirect_stderr(io.StringIO()):
            _ = job.return_value
    except Exception as error:  # noqa: BLE001 - it is handed on
        return error
    return None
