"""Hydra's jobs in processes that are forked from the coordinator: what it has imported, no job imports again.

A job has one thread. The threads that torch works with are not copied by a fork, and OpenMP waits for them for ever
once the parent has used several, as the coordinator may when it times a step. A job that never asks for a second thread
meets none of them. A parent that has begun to use CUDA can not be forked at all: its children get no device.
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
from dpsweep.sweeper.launchers.fork_pool import can_fork, fork_each

log = logging.getLogger("dpsweep")

NEEDED = (
    "dpsweep.trainers.data.split",
    "dpsweep.trainers.models.weights_file",
    "dpsweep.trainers.training.checkpoint",
    "dpsweep.trainers.training.loop",
)
"""Modules that every trial imports."""

ELSE = "hydra/launcher=joblib starts new processes, which may."


def prepare(device: str, threads: int) -> None:
    """Imports what a trial needs, or raises `BadInput` where trials on this device can not be forked from here."""
    refuse(device, threads)
    for name in NEEDED:
        import_module(name)


def refuse(device: str = "cpu", threads: int = 1) -> None:
    """Raises `BadInput` where jobs with this device and so many threads, or any, would not survive a fork from here."""
    if not can_fork():
        raise BadInput(
            f"Expected hydra/launcher=fork on Linux only, got {sys.platform}; hydra/launcher=joblib runs here."
        )
    if _has_cuda():
        raise BadInput(f"Expected this process not to use CUDA yet: forked jobs cannot go on with it. {ELSE}")
    if device != "cpu":
        raise BadInput(f"Expected compute.device={device} to be cpu: a forked job can use no other. {ELSE}")
    if threads != 1:
        raise BadInput(f"Expected compute.threads={threads} to be 1 or null: more can hang a forked job. {ELSE}")


def _has_cuda() -> bool:
    """Whether this process has begun to use CUDA."""
    return "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """What all jobs of a launcher share: Hydra's context and configuration, and the task."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def launch(self, overrides: Sequence[Sequence[str]], first: int, at_once: int) -> list[JobReturn]:
        """Runs a job for each list of overrides; what ends one of them ends that one alone."""
        refuse()
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        log.info("Forking %d jobs, %d at once", len(overrides), at_once)
        works = [partial(self._work, one, number) for number, one in enumerate(overrides, first)]
        ends = fork_each(works, at_once)
        return [_job_return(end, one) for end, one in zip(ends, overrides, strict=True)]

    def _work(self, overrides: Sequence[str], number: int) -> bytes:
        """A job in a process of its own, from its overrides to what it hands back."""
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        try:
            return _to_bytes(self._run(overrides, number))
        except Exception as error:  # noqa: BLE001 - it is handed back
            return _to_bytes(_failed(error, overrides))
        except BaseException as error:  # noqa: BLE001 - it ends a job and nothing else
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
    """The job's end, pickled; where its error can not be, a plain one that says the same."""
    if job.status is not JobStatus.FAILED:
        return pickle.dumps(job)
    error = job._return_value
    error.add_note("".join(traceback.format_exception(error)))
    try:
        said = pickle.dumps(job)
        pickle.loads(said)
    except Exception:  # noqa: BLE001 - anything may happen while somebody's class is pickled
        job.return_value = RuntimeError(_sentence(error))
        said = pickle.dumps(job)
    return said


def _job_return(end: bytes | ChildProcessError, overrides: Sequence[str]) -> JobReturn:
    """What the job handed back; where its process was lost, a failed job."""
    if isinstance(end, ChildProcessError):
        return _failed(end, overrides)
    try:
        job: JobReturn = pickle.loads(end)
    except Exception as error:  # noqa: BLE001 - a value that can not be read back is the loss of one job
        return _failed(ChildProcessError(f"What a job handed back cannot be read: {_sentence(error)}"), overrides)
    return job


def _failed(error: Exception, overrides: Sequence[str]) -> JobReturn:
    return JobReturn(overrides=list(overrides), status=JobStatus.FAILED, _return_value=error)


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
