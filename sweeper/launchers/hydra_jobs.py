"""Hydra's launchers behind one value: whatever they need is kept here, and nothing else in the sweeper reads it.

What Hydra hands over (its context, the task, the composed configuration) reaches no other module: a job is a mapping of
plain values, and what became of it is an exception or nothing.

joblib's workers never receive Ctrl-C, and end when the coordinator ends. A terminal sends SIGINT to the workers too.
They inherit a mask that blocks it (`sweeper/coordinator/signals.py`), but joblib starts its resource trackers just
before its workers, and this unblocks SIGINT in the starting thread. A worker that receives SIGINT during its imports
prints a traceback, and its pool is lost. So the trackers are started earlier, and the mask is restored.

Each kind of launcher has a `LaunchEngine`, which tries its settings before the charge and hands its jobs over.
"""

from __future__ import annotations

import copy
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.launchers import ray_jobs
from dpsweep.sweeper.launchers.fork_launcher import Jobs
from dpsweep.sweeper.launchers.slurm_arrays import (
    Call,
    SlurmArrays,
    make_submitit_executor,
    refuse_launcher_settings,
    run_calls_in_local_processes,
)
from dpsweep.sweeper.launchers.workers import FORKED, JOBLIB
from dpsweep.sweeper.processes import end_process_with_parent

QUIET = "ignore:resource_tracker"
"""A killed pool leaves semaphores behind. The trackers remove them; their warning does not help the user."""


IDLE_SECONDS = 10
"""How long a worker of joblib's keeps its GPU when there is no job for it."""


def prepare_joblib_launcher(launcher: Any, devices: Sequence[str] = ()) -> None:
    """Prepares joblib's launcher before this thread starts its workers.

    joblib goes on with the workers of an earlier sweep only where they lease the same `devices`.
    """
    launcher.joblib |= {"initializer": end_process_with_parent, "initargs": (os.getpid(), *devices)}
    if devices:
        launcher.joblib |= {"idle_worker_timeout": IDLE_SECONDS}
    with _restore_signal_mask_at_end(), _suppress_tracker_warnings():
        _start_resource_trackers()


def _start_resource_trackers() -> None:
    """Starts the trackers; joblib does not start them again while they run."""
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    resource_tracker.ensure_running()
    loky_tracker.ensure_running()


@contextmanager
def _restore_signal_mask_at_end() -> Iterator[None]:
    """Restores this thread's mask of blocked signals at the end."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _suppress_tracker_warnings() -> Iterator[None]:
    """Suppresses the trackers' warnings in Python processes that are started inside the `with` block."""
    sys.warnoptions.append(QUIET)
    try:
        yield
    finally:
        sys.warnoptions.remove(QUIET)


Ends = Sequence[JobReturn | Exception]


def _launch_by_hydra(launcher: Any, jobs: Iterable[list[str]], first: int) -> Ends:
    ends: Ends = launcher.launch(jobs, initial_job_idx=first)
    return ends


def _try_nothing(launcher: Any, jobs: int) -> None:
    """Hydra's types have checked all settings of this launcher."""


@dataclass(frozen=True, kw_only=True)
class LaunchEngine:
    """How one kind of launcher tries its settings, and how it hands jobs over.

    `try_settings` raises an error if the launcher could not start so many jobs at once, as far as that shows before.
    `launch` returns what became of a job for each list of overrides, by the number of the first job. An engine that
    `refills` also takes an iterator of them, which it asks for the next one when a worker is free; others take a list.
    """

    try_settings: Callable[[Any, int], None] = _try_nothing
    launch: Callable[[Any, Iterable[list[str]], int], Ends] = _launch_by_hydra
    refills: bool = False


def _try_joblib(launcher: Any, jobs: int) -> None:
    from joblib import Parallel

    Parallel(**{**launcher.joblib, "n_jobs": 2, "prefer": "threads"})([])  # it reads some settings when it is called


def _launch_on_joblib(launcher: Any, jobs: Iterable[list[str]], first: int) -> Ends:
    """Does what joblib's launcher does, which lists all jobs before it starts the first one: a list goes to it.

    joblib asks an iterator for a job in a thread of its own.
    """
    from joblib import Parallel, delayed

    config = launcher.config
    prepare_joblib_launcher(launcher, OmegaConf.select(config, "compute.devices") or ())
    if isinstance(jobs, Sequence):
        return _launch_by_hydra(launcher, jobs, first)
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    common = Jobs(context=launcher.hydra_context, task=launcher.task_function, config=config)
    state = Singleton.get_state()
    settings = {**launcher.joblib, "backend": "loky", "pre_dispatch": "n_jobs", "batch_size": 1}
    ends: Ends = Parallel(**settings)(
        delayed(_run_job_in_worker)(common, job, number, state) for number, job in enumerate(jobs, first)
    )
    return ends


def _run_job_in_worker(common: Jobs, job: list[str], number: int, state: Any) -> JobReturn:
    setup_globals()
    Singleton.set_state(state)
    return common.run_job(job, number)


def _launch_on_slurm(launcher: Any, jobs: Iterable[list[str]], first: int) -> Ends:
    return SlurmArrays(settings=launcher.params).run_calls(launcher, _calls_of_submitit_launcher(jobs, first))


def _launch_in_local_processes(launcher: Any, jobs: Iterable[list[str]], first: int) -> Ends:
    return run_calls_in_local_processes(launcher.params, launcher, _calls_of_submitit_launcher(jobs, first))


def _calls_of_submitit_launcher(jobs: Iterable[list[str]], first: int) -> list[Call]:
    state = Singleton.get_state()
    return [(job, "hydra.sweep.dir", number, f"job_id_for_{number}", state) for number, job in enumerate(jobs, first)]


_RAY = LaunchEngine(
    try_settings=lambda launcher, jobs: ray_jobs.require_room_for_a_job(launcher.ray_cfg), launch=ray_jobs.run_jobs
)

_ENGINES: Mapping[str, LaunchEngine] = {
    FORKED: LaunchEngine(refills=True),
    JOBLIB: LaunchEngine(try_settings=_try_joblib, launch=_launch_on_joblib, refills=True),
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": LaunchEngine(
        try_settings=lambda launcher, jobs: make_submitit_executor("local", launcher.params),
        launch=_launch_in_local_processes,
    ),
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": LaunchEngine(
        try_settings=lambda launcher, jobs: SlurmArrays(settings=launcher.params).try_submission(jobs),
        launch=_launch_on_slurm,
    ),
    "hydra_plugins.hydra_ray_jobs_launcher.RayLauncher": _RAY,
    "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher": _RAY,  # Hydra's own, if the user has installed it
}
"""The engines that do more than Hydra, by the launcher's class."""


def engine_of_launcher(launcher: Any) -> LaunchEngine:
    """The engine of this launcher; that of Hydra alone for one that is not known."""
    return _ENGINES.get(f"{type(launcher).__module__}.{type(launcher).__name__}", LaunchEngine())


JOB: Mapping[str, Any] = {
    "block": None,  # the block to train, or `tries`, and which of its parts
    "part": 0,
    "parts": 1,
    "trusted": [],  # the classes that are not ours and that the command line named; no other one in a plan is imported
    "data": None,
    "store": None,  # the plan's private store, where receipts are claimed and steps are marked
    "compute": {
        **{"device": "auto", "threads": None, "chunk": None, "together": None},
        **{"devices": None, "per_device": 1},
    },
}
"""The configuration of a job: nothing but what the runner tells it. All else stands in the plan."""

Value = str | int | list[str] | tuple[str, ...] | None


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

    @property
    def refills(self) -> bool:
        """Whether the launcher takes an iterator of jobs, and asks for the next one when a worker is free."""
        return engine_of_launcher(self.launcher).refills

    def launch(self, jobs: Iterable[Mapping[str, Value]], first: int) -> list[Exception | None]:
        """Runs a job for each of these settings; what ended each that did not end well.

        Raises what the launcher itself complains of. `first` is the number of the first job. Jobs of an iterator are
        handed over one by one if the launcher `refills`.
        """
        overrides: Iterable[list[str]] = map(overrides_from_values, jobs)
        if isinstance(jobs, Sequence) or not self.refills:
            overrides = list(overrides)
        ends = engine_of_launcher(self.launcher).launch(self.launcher, overrides, first)
        return [end if isinstance(end, Exception) else _error_of_failed_job(end) for end in ends]


@dataclass(frozen=True, kw_only=True)
class HydraJobs:
    """What Hydra needs to launch jobs."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def for_plan(self, plan_id: str) -> HydraJobs:
        """The same for the jobs of this plan."""
        config = copy.deepcopy(self.config)
        OmegaConf.update(config, "plan.id", plan_id, force_add=True)  # hydra.sweep.dir is named after it
        return replace(self, config=config)

    @property
    def sweep_folder_path(self) -> Path:
        """The sweep's folder."""
        return Path(self.config.hydra.sweep.dir).expanduser().absolute()

    @property
    def named_folder_sentence(self) -> str:
        """Where a plan is written if the command names a folder; else empty."""
        if not any("hydra.sweep.dir" in word for word in self.config.hydra.overrides.hydra):
            return ""
        return f"The plan is in {self.sweep_folder_path}, where a sweep with this hydra.sweep.dir runs."

    @property
    def command_overrides(self) -> tuple[str, ...]:
        """The overrides of the command, as they were typed."""
        return tuple(map(str, self.config.hydra.overrides.task))

    def write_config(self, path: Path) -> None:
        """Writes down the command's configuration."""
        OmegaConf.save(self.config, path)

    def try_launcher(self, jobs: int) -> None:
        """Sets a launcher up and has its engine try so many jobs; raises `BadInput` if it could not start them."""
        with refuse_launcher_settings():
            launcher = self._instantiate_launcher(self.config)
            engine_of_launcher(launcher).try_settings(launcher, jobs)

    def job_launcher_for_folder(self, root: Path) -> JobLauncher:
        """The launcher that was configured, with its own settings and the configuration that its jobs start from."""
        config = _config_without_parts_no_job_reads(self.config)
        config.hydra.sweep.dir = str(root)
        return JobLauncher(launcher=self._instantiate_launcher(config))

    def _instantiate_launcher(self, config: DictConfig) -> Any:
        context: Any = HydraContext(config_loader=JobConfigs(), callbacks=self.context.callbacks)  # type: ignore[arg-type]
        return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=self.task, config=config)


def _config_without_parts_no_job_reads(config: DictConfig) -> DictConfig:
    """A copy without what no job reads: Hydra copies, and a pool pickles, all of `hydra` several times for each job."""
    config = copy.deepcopy(config)
    hydra = config.hydra
    OmegaConf.set_readonly(hydra, False)
    hydra.runtime.choices, hydra.runtime.config_sources = {}, []
    for text in ("header", "footer", "template"):
        hydra.help[text] = ""
    return config


def require_known_launcher_in_config(config: DictConfig) -> None:
    """Raises `BadInput` unless `hydra.launcher` names one of the launchers that Hydra has found; builds nothing."""
    target = OmegaConf.select(config, "hydra.launcher._target_", default=None)
    if target not in {f"{kind.__module__}.{kind.__name__}" for kind in Plugins.instance().discover(Launcher)}:
        raise BadInput(
            f"Expected hydra.launcher._target_={target} to be a launcher of Hydra's or of an installed plug-in: leave "
            "it out and choose one by name, as in hydra/launcher=fork."
        )
    for name, fixed in _FIXED_BY_JOBLIB_LAUNCHER.items() if target == JOBLIB else ():
        if (value := config.hydra.launcher[name]) != fixed:
            raise BadInput(f"Expected hydra.launcher.{name}={value} to be left out: joblib's jobs are processes here.")


_FIXED_BY_JOBLIB_LAUNCHER = {"backend": None, "prefer": "processes", "require": None}
"""The settings that joblib's launcher overrides, at their defaults."""


def overrides_from_values(values: Mapping[str, Value]) -> list[str]:
    """Hydra overrides that give back exactly these values; text is quoted: 488993726622 and 12e45 are names."""
    return [f"{key}={_override_literal(value)}" for key, value in values.items()]


def _override_literal(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_override_literal, value))}]"
    if isinstance(value, str):
        return QuotedString(text=value, quote=Quote.single).with_quotes()
    return str(value)


def _error_of_failed_job(job: JobReturn) -> Exception | None:
    """What ended a job that did not end well; asking prints its overrides, which tell a user nothing."""
    try:
        with redirect_stderr(io.StringIO()):
            _ = job.return_value
    except Exception as error:  # noqa: BLE001 - it is handed on
        return error
    return None
