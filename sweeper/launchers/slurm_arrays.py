"""Arrays of jobs on Slurm: tried before the charge, divided by the site's limit, and waited for job by job.

submitit's launcher submits one array and waits for its jobs in turn: the first that died without a result ends the
wait, and nothing is known of the others. Here each job has an end of its own: only lost ones are launched again.

`squeue`, which every site has, says whether a job is still there; `sacct` needs an accounting. The ids of arrays lie
beside submitit's files until all of their jobs have ended. What is still pending there at the next launch was left by a
coordinator that died, and is cancelled: it would train nothing that the new jobs do not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.job.stop_requests import call_with_early_signals_noted

PATIENCE_SECONDS = 120
"""The longest time that a command of Slurm's may take."""

RESULT_SECONDS = 1.0
QUEUE_SECONDS = 10.0
"""The times between two looks for results, and between two at the queue."""

LARGEST_ARRAY = 1000
"""The most jobs of an array where the site does not say; Slurm's own `MaxArraySize` is one more."""

IDS = "arrays"
"""The file with the clusters and ids of arrays that may have pending jobs."""

Call = tuple[Any, ...]
"""The arguments by which a job calls the launcher."""


class LaunchFailed(Exception):
    """No job was started; what was charged stays charged, and can still be launched."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"{_one_line(str(reason))}; mend the launcher's settings, and the same plan goes on")


@contextmanager
def refuse_launcher_settings() -> Iterator[None]:
    """Turns an error of a launcher that tries its settings into `BadInput`."""
    try:
        yield
    except Exception as cause:  # a launcher is somebody else's, and nothing has been charged yet
        raise BadInput(
            f"Expected the launcher's settings (hydra.launcher) to be accepted, got: {_one_line(str(cause))}. "
            "Mend the launcher's settings; nothing was charged."
        ) from cause


@dataclass(frozen=True, kw_only=True)
class SlurmArrays:
    """The arrays of submitit's launcher with these settings."""

    settings: Mapping[str, Any]

    def try_submission(self, jobs: int) -> None:
        """Has Slurm judge the script of so many jobs without submitting it; raises `RuntimeError` if it refuses."""
        executor = make_submitit_executor("slurm", self.settings)._executor
        if (size := min(jobs, self._largest_array())) > 1:
            executor.parameters["map_count"] = size
        with TemporaryDirectory() as folder:
            script = Path(folder) / "script.sh"
            script.write_text(executor._make_submission_file_text(executor._submitit_command_str, "trial"))
            tried = _run("sbatch", "--test-only", str(script))
        if tried.returncode:
            raise RuntimeError(tried.stderr)

    def run_calls(self, launcher: Any, calls: Sequence[Call]) -> list[Any]:
        """What each of these calls of the launcher returned, in a job of its own, or the error that ended the job.

        At most `array_parallelism` jobs run at once, in however many arrays. If an array cannot be submitted, its jobs
        and all further ones end with `LaunchFailed`.
        """
        self._cancel_pending_jobs_of_dead_coordinator()
        size, at_once = self._largest_array(), max(1, int(self.settings["array_parallelism"]))
        ends: list[Any] = []
        for first in range(0, len(calls), size * at_once):
            wave = calls[first : first + size * at_once]
            arrays = [wave[start : start + size] for start in range(0, len(wave), size)]
            jobs: list[Any] = []
            try:
                for array in arrays:
                    jobs += self._submit_array(launcher, array, max(1, at_once // len(arrays)))
            except Exception as cause:  # noqa: BLE001 - submitit, Slurm or the disk; what was submitted is waited for
                failed: list[Any] = [LaunchFailed(cause)] * (len(calls) - first - len(jobs))
                return ends + self._wait_for_ends(jobs) + failed
            ends += self._wait_for_ends(jobs)
        return ends

    def _submit_array(self, launcher: Any, calls: Sequence[Call], at_once: int) -> list[Any]:
        """Submits a job for each of these calls, and notes the id of their array."""
        executor = make_submitit_executor("slurm", {**self.settings, "array_parallelism": at_once})
        jobs = submit_calls(executor, launcher, calls)
        line = f"{self._cluster_name()} {jobs[0].job_id.partition('_')[0]}\n"
        with self._ids_path.open("a") as ids:
            ids.write(line)
        return jobs

    def _wait_for_ends(self, jobs: Sequence[Any]) -> list[Any]:
        """What each job returned, or the error that ended it. A job is lost if two looks at the queue miss it."""
        ends: dict[str, Any] = {}
        missed: set[str] = set()
        next_look = 0.0
        while waiting := [job for job in jobs if job.job_id not in ends]:
            ends |= {job.job_id: _value_or_error(job.result) for job in waiting if job.paths.result_pickle.exists()}
            if time.monotonic() >= next_look and (queued := self._ids_in_queue()) is not None:
                absent = [job for job in waiting if job.job_id not in queued and job.job_id not in ends]
                ends |= {job.job_id: self._error_of_lost_job(job) for job in absent if job.job_id in missed}
                missed |= {job.job_id for job in absent}
                _refresh_folders({job.paths.folder for job in absent})
                next_look = time.monotonic() + QUEUE_SECONDS
            if len(ends) < len(jobs):
                time.sleep(RESULT_SECONDS)
        self._ids_path.unlink(missing_ok=True)
        return [ends[job.job_id] for job in jobs]

    def _ids_in_queue(self) -> set[str] | None:
        """The user's jobs that wait or run, each job of an array by its own id; None if Slurm does not answer."""
        with suppress(OSError, subprocess.SubprocessError):
            listed = _run("squeue", *self._clusters, "--me", "--noheader", "--array", "--format=%i")
            return None if listed.returncode else set(listed.stdout.split())
        return None

    def _error_of_lost_job(self, job: Any) -> ChildProcessError:
        listed = _run("squeue", *self._clusters, "--noheader", "--states=all", f"--jobs={job.job_id}", "--format=%T")
        state = listed.stdout.strip().partition("\n")[0] or "no longer listed"
        return ChildProcessError(f"Job {job.job_id} ended without a result ({state}); its log is {job.paths.stderr}.")

    def _cancel_pending_jobs_of_dead_coordinator(self) -> None:
        """Cancels pending jobs of earlier launches of this sweep; running ones go on."""
        with suppress(OSError, subprocess.SubprocessError):
            known = (line.split() for line in self._ids_path.read_text().splitlines())
            here = self._cluster_name()
            if ids := [number for cluster, number in known if cluster == here]:
                _run("scancel", *self._clusters, "--state=PENDING", *ids)
            self._ids_path.unlink()

    @property
    def _ids_path(self) -> Path:
        from submitit.core.utils import JobPaths

        folder: Path = JobPaths.get_first_id_independent_folder(self.settings["submitit_folder"])
        return folder / IDS

    @property
    def _clusters(self) -> tuple[str, ...]:
        """The option that names another cluster than the submitting machine's own, if the user gave one."""
        given = (self.settings.get("additional_parameters") or {}).get("clusters")
        return () if given is None else (f"--clusters={given}",)

    def _cluster_name(self) -> str:
        return ",".join(self._clusters) or _site_settings().get("ClusterName", "unknown")

    def _largest_array(self) -> int:
        """The most jobs that the site lets be in one array."""
        site = _site_settings()
        return max(1, min(int(site.get(name, LARGEST_ARRAY)) for name in ("MaxArraySize", "MaxJobCount")))


def run_calls_in_local_processes(settings: Mapping[str, Any], launcher: Any, calls: Sequence[Call]) -> list[Any]:
    """What each of these calls of the launcher returned, in a process of its own, or the error that ended the process.

    A process that ended has written its result: submitit waits for 15 s more, and its launcher for no other job then.
    """
    jobs = submit_calls(make_submitit_executor("local", settings), launcher, calls)
    for job in jobs:
        job._results_timeout_s = 0
    return [_value_or_error(job.result) for job in jobs]


def submit_calls(executor: Any, launcher: Any, calls: Sequence[Call]) -> list[Any]:
    """submitit's jobs for these calls of the launcher."""
    return list(executor.map_array(partial(call_with_early_signals_noted, launcher), *zip(*calls, strict=True)))


def make_submitit_executor(cluster: str, settings: Mapping[str, Any]) -> Any:
    """submitit's executor with a launcher's settings, as the launcher makes it; it submits nothing yet."""
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from submitit import AutoExecutor

    shared = {field.name for field in fields(BaseQueueConf)}
    named = {key if key in shared else f"{cluster}_{key}": value for key, value in settings.items()}
    first = {key: named.pop(key) for key in (f"{cluster}_max_num_timeout",) if key in named}
    executor = AutoExecutor(cluster=cluster, folder=named.pop("submitit_folder"), **first)
    executor.update_parameters(**named)
    return executor


def _site_settings() -> Mapping[str, str]:
    """The settings of the site, as `scontrol` shows them; none if it does not answer."""
    try:
        lines = _run("scontrol", "show", "config").stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


def _value_or_error(result: Callable[[], Any]) -> Any:
    try:
        return result()
    except Exception as error:  # noqa: BLE001 - it ends this job alone
        return error


def _refresh_folders(folders: Iterable[Path]) -> None:
    """Empties a network file system's cache of these folders, by setting their modes to what they are."""
    for folder in folders:
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode)


def _one_line(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")
