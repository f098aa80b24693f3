"""A Hydra launcher whose jobs are forked from the coordinator, so that no job imports the coordinator's modules again.

A job has one thread. A fork does not copy torch's worker threads, and OpenMP waits for them for ever if the parent has
used several, as the coordinator may when it times a step. A job with one thread never waits for them. A parent that
has used CUDA cannot be forked: its children get no device.
"""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.folders import make_folder
from dpsweep.sweeper.launchers.fork_pool import can_fork, fork_each

log = logging.getLogger("dpsweep")

NEEDED = (
    "dpsweep.trainers.data.split",
    "dpsweep.trainers.models.weights_file",
    "dpsweep.trainers.training.checkpoint",
    "dpsweep.trainers.training.loop",
)
"""Modules that every trial imports."""

ADVICE = "hydra/launcher=joblib starts new processes, which can."


def prepare(device: str, threads: int) -> None:
    """Imports the modules of a trial, or raises `BadInput` if trials on this device cannot be forked from here."""
    refuse(device, threads)
    for name in NEEDED:
        import_module(name)


def refuse(device: str = "cpu", threads: int = 1) -> None:
    """Raises `BadInput` if jobs with this device and number of threads cannot be forked from this process."""
    if not can_fork():
        raise BadInput(
            f"Expected hydra/launcher=fork on Linux only, got {sys.platform}; hydra/launcher=joblib runs here."
        )
    if _has_cuda():
        raise BadInput(f"Expected this process not to use CUDA yet: forked jobs cannot go on with it. {ADVICE}")
    if device != "cpu":
        raise BadInput(f"Expected compute.device={device} to be cpu: a forked job can use no other. {ADVICE}")
    if threads != 1:
        raise BadInput(f"Expected compute.threads={threads} to be 1 or null: more can hang a forked job. {ADVICE}")


def _has_cuda() -> bool:
    """Whether this process has begun to use CUDA."""
    return "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The common data of a launcher's jobs: Hydra's context and configuration, and the task."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def launch(self, overrides: Sequence[Sequence[str]], first: int, at_once: int) -> list[JobReturn]:
        """Runs a job for each list of overrides; an error in one job does not end the others."""
        refuse()
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        make_folder(Path(str(self.config.hydra.sweep.dir)))
        log.info("Forking %d jobs, %d at once", len(overrides), at_once)
        works = [partial(self._work, job, number) for number, job in enumerate(overrides, first)]
        ends = fork_each(works, at_once)
        return [_job_return(end, job) for end, job in zip(ends, overrides, strict=True)]

    def _work(self, overrides: Sequence[str], number: int) -> bytes:
        """Runs a job in its process, from its overrides to its pickled `JobReturn`."""
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        try:
            return _to_bytes(self._run(overrides, number))
        except Exception as error:  # noqa: BLE001 - the parent gets it
            return _to_bytes(_failed(error, overrides))
        except BaseException as error:  # noqa: BLE001 - it ends this job only
            return _to_bytes(_failed(ChildProcessError(f"A job left by {_sentence(error)}"), overrides))

    def _run(self, overrides: Sequence[str], number: int) -> JobReturn:
        log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = number
            config.hydra.job.num = number
        return run_job(
            hydra_context=self.context,
            task_function=self.task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


def _to_bytes(job: JobReturn) -> bytes:
    """The pickled `JobReturn`; an error that cannot be pickled is replaced by a `RuntimeError` with its message."""
    if job.status is not JobStatus.FAILED:
        return pickle.dumps(job)
    error = job._return_value
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickled = pickle.dumps(job)
        pickle.loads(pickled)
    except Exception:  # noqa: BLE001 - the pickling of a user's class may raise any exception
        job.return_value = RuntimeError(_sentence(error))
        pickled = pickle.dumps(job)
    return pickled


def _job_return(end: bytes | ChildProcessError, overrides: Sequence[str]) -> JobReturn:
    """The job's `JobReturn`; a failed one if its process was lost."""
    if isinstance(end, ChildProcessError):
        return _failed(end, overrides)
    try:
        job: JobReturn = pickle.loads(end)
    except Exception as error:  # noqa: BLE001 - an unreadable value fails one job only
        return _failed(ChildProcessError(f"A job's return value cannot be read: {_sentence(error)}"), overrides)
    return job


def _failed(error: Exception, overrides: Sequence[str]) -> JobReturn:
    return JobReturn(overrides=list(overrides), status=JobStatus.FAILED, _return_value=error)


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
