"""A Hydra launcher whose jobs are forked from the coordinator: modules stay loaded, and a lost job affects no other.

A job has one thread. A fork does not copy torch's worker threads, and OpenMP waits for them for ever if the parent has
used several, as the coordinator may when it times a step. A job with one thread never waits for them. A parent that
has used CUDA cannot be forked: its children get no device. So this process uses none, and each job leases its own.

Each job has its own process instead of a pool: the idle workers of a pool outlive a killed program, with all files
and locks that they inherited. Invariants:

* A child never returns into its parent's program: it always exits by `os._exit`.
* It has none of its parent's files, locks and connections. Their file descriptors lead to the null device; if they were
  closed, a new file could get the same number, and an object copied from the parent could close it.
* It uses no lock that another thread of its parent may have held at the fork: it prints through new stream objects.
* It does not finalise the parent's unreachable objects: a connection must not be closed twice.
* It is killed when its parent ends, so that its locks are free for the next program.
* It blocks SIGINT, which a terminal sends to it too, and handles no other signal until its function sets a handler.

Linux only: other systems have no signal for a parent's death, and their libraries do not support a fork.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import selectors
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.printing import escape_invisible_except_line_breaks
from dpsweep.sweeper.processes import function_to_die_with_parent

WAKE_SECONDS = 0.2
"""The longest sleep of this process: a signal that another of its threads receives does not wake this thread."""

DEFERRED = (signal.SIGINT, signal.SIGTERM)
CHUNK = 1 << 16
STDERR = 2

ForkWork = Callable[[], bytes]


def can_fork() -> bool:
    """Whether this system supports all invariants of this module."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def run_each_in_forked_process(works: Iterable[ForkWork], at_once: int) -> list[bytes | ChildProcessError]:
    """Runs the functions, at most `at_once` at a time, and returns their bytes, or an error for a lost process.

    A function is asked for when its process can start. An exception in this call kills all processes.
    """
    ends: dict[int, bytes | ChildProcessError] = {}
    waiting, come = enumerate(works), True
    with _Children() as children:
        while come or children.running:
            while come and len(children.running) < at_once:
                place, work = next(waiting, (0, None))
                if work is None:
                    come = False
                    break
                try:
                    children.fork_child(place, work)
                except OSError as cause:
                    ends[place] = ChildProcessError(f"A worker could not be started: {cause.strerror}.")
            ends |= children.wait_for_ended_outputs() if children.running else {}
    return [ends[place] for place in range(len(ends))]


@dataclass(kw_only=True, eq=False)
class _Child:
    """A running process; `pidfd` is readable when it has ended, `pipe` when it has written output."""

    place: int
    pid: int
    pidfd: int
    pipe: int
    output: bytearray = field(default_factory=bytearray)

    def read_output_and_tell_if_more_may_come(self) -> bool:
        """Reads the available output; returns False at end of file."""
        with suppress(BlockingIOError):
            while part := os.read(self.pipe, CHUNK):
                self.output += part
            return False
        return True

    def close_and_return_output(self) -> bytes | ChildProcessError:
        """Waits for an ended process, closes its descriptors, and returns its output or an error."""
        self.read_output_and_tell_if_more_may_come()
        for number in (self.pipe, self.pidfd):
            os.close(number)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # if this program ignores SIGCHLD, the system keeps no exit status
            code = 0
        if code < 0:
            return ChildProcessError(f"A worker was ended by {_signal_name(-code)}.")
        if code or not self.output:
            return ChildProcessError(f"A worker exited with code {code} and no result.")
        return bytes(self.output)


class _Children:
    """The running processes; on exit from the `with` block they are killed."""

    def __init__(self) -> None:
        self.running: set[_Child] = set()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.running:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        for child in self.running:
            child.close_and_return_output()
        self._selector.close()

    def fork_child(self, place: int, work: ForkWork) -> None:
        """Forks a process for this function."""
        with _signals_deferred() as mask:
            pid, pipe = _fork_with_output_pipe(work, (mask | {signal.SIGINT}) - {signal.SIGTERM})
            try:
                child = _Child(place=place, pid=pid, pidfd=os.pidfd_open(pid), pipe=pipe)
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(pipe)
                raise
            self.running.add(child)
            for number in (child.pipe, child.pidfd):
                self._selector.register(number, selectors.EVENT_READ, child)

    def wait_for_ended_outputs(self) -> dict[int, bytes | ChildProcessError]:
        """Waits for at most `WAKE_SECONDS` and returns the outputs or errors of processes that ended."""
        ready = self._selector.select(WAKE_SECONDS)
        ends = {}
        for child in {key.data for key, _ in ready if key.fd == key.data.pidfd}:
            for number in (child.pipe, child.pidfd):
                with suppress(KeyError):
                    self._selector.unregister(number)
            self.running.remove(child)
            ends[child.place] = child.close_and_return_output()
        for key, _ in ready:
            if key.data in self.running and not key.data.read_output_and_tell_if_more_may_come():
                self._selector.unregister(key.fd)
        return ends


@contextmanager
def _signals_deferred() -> Iterator[set[signal.Signals | int]]:
    """Defers SIGINT and SIGTERM until the parent has recorded the child and the child has reset the handlers.

    The mask alone is not enough: where native libraries have started threads, another thread receives the signal, and
    Python runs its handler in the main thread at once, whatever that thread blocks. There an exception could be lost,
    for example in the finaliser of an object. Yields the set of signals that were blocked before.
    """
    arrived: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    handlers = {}
    try:
        if threading.current_thread() is threading.main_thread():
            handlers = {one: known for one in DEFERRED if callable(known := signal.getsignal(one))}
            for one in handlers:
                signal.signal(one, lambda number, _: arrived.append(number))
        yield set(mask)
    finally:
        for one, known in handlers.items():
            signal.signal(one, known)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in arrived:  # also after a fork that failed, which is an ordinary result
            signal.raise_signal(number)


def _fork_with_output_pipe(work: ForkWork, mask: Collection[int]) -> tuple[int, int]:
    """Forks; returns the child's process id and the pipe of its output. The child blocks the signals in `mask`."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    die_with_parent = function_to_die_with_parent(os.getpid())
    collects = gc.isenabled()
    gc.disable()  # the child freezes the parent's objects before anything can collect them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of other threads: see above
            pid = os.fork()
        if not pid:
            _run_child(work, write, die_with_parent, mask)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
        if collects:
            gc.enable()
    return pid, read


def _run_child(work: ForkWork, write: int, die_with_parent: Callable[[], None], mask: Collection[int]) -> NoReturn:
    """Runs the child from the fork, where nothing is collected, to its exit."""
    try:
        gc.freeze()
        gc.enable()
        die_with_parent()
        _redirect_inherited_descriptors_to_null(write)
        _reset_signal_handlers()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(write, "wb") as pipe, _replace_stdout_and_stderr_in_block():
            pipe.write(work())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the stack frames above are the parent's
        os.write(STDERR, escape_invisible_except_line_breaks(traceback.format_exc()).encode())
    finally:
        os._exit(1)


def _redirect_inherited_descriptors_to_null(kept: int) -> None:
    """Redirects all inherited descriptors to the null device, except standard output, standard error and the pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in (1, 2, kept, null):
            os.dup2(null, number, inheritable=number == 0)


@contextmanager
def _replace_stdout_and_stderr_in_block() -> Iterator[None]:
    """Prints through new stream objects: the parent's have unprinted text, and perhaps a lock of another thread."""
    with (
        open(1, "w", buffering=1, closefd=False) as out,
        open(2, "w", buffering=1, closefd=False, errors="backslashreplace") as errors,
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        yield


def _reset_signal_handlers() -> None:
    """Removes the parent's signal handlers; signals that it ignores stay ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


log = logging.getLogger("dpsweep")

NEEDED = (
    "dpsweep.trainers.data.split",
    "dpsweep.trainers.models.weights",
    "dpsweep.trainers.training.checkpoint",
    "dpsweep.trainers.training.loop",
)
"""Modules that every trial imports."""

ADVICE = "hydra/launcher=joblib starts new processes, which can."


def import_trial_modules_before_fork(device: str, threads: int) -> None:
    """Imports the modules of a trial, or raises `BadInput` if trials on this device cannot be forked from here."""
    refuse_jobs_that_cannot_fork(device, threads)
    for name in NEEDED:
        import_module(name)


def refuse_jobs_that_cannot_fork(device: str = "cpu", threads: int = 1) -> None:
    """Raises `BadInput` if jobs with this device and number of threads cannot be forked from this process."""
    if not can_fork():
        raise BadInput(
            f"Expected hydra/launcher=fork on Linux only, got {sys.platform}; hydra/launcher=joblib runs here."
        )
    if _has_initialised_cuda():
        raise BadInput(f"Expected this process not to use CUDA yet: forked jobs cannot go on with it. {ADVICE}")
    if device != "cpu":
        raise BadInput(f"Expected compute.device={device} to be cpu where no GPU is visible to forked jobs. {ADVICE}")
    if threads != 1:
        raise BadInput(f"Expected compute.threads={threads} to be 1 or null: more can hang a forked job. {ADVICE}")


def _has_initialised_cuda() -> bool:
    """Whether this process has begun to use CUDA."""
    return "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The common data of a launcher's jobs: Hydra's context and configuration, and the task."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def launch(self, overrides: Iterable[Sequence[str]], first: int, at_once: int) -> list[JobReturn]:
        """Runs a job for each list of overrides, which is asked for as it can start.

        An error in one job does not end the others.
        """
        refuse_jobs_that_cannot_fork()
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        make_folder_and_missing_parents(Path(str(self.config.hydra.sweep.dir)))
        log.info("Forking jobs, %d at once", at_once)
        launched: list[Sequence[str]] = []

        def works() -> Iterator[ForkWork]:
            for number, job in enumerate(overrides, first):
                launched.append(job)
                yield partial(self._run_to_bytes, job, number)

        ends = run_each_in_forked_process(works(), at_once)
        return [_job_return_from_process_output(end, job) for end, job in zip(ends, launched, strict=True)]

    def _run_to_bytes(self, overrides: Sequence[str], number: int) -> bytes:
        """Runs a job in its process, from its overrides to its pickled `JobReturn`."""
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        try:
            return _pickle_job_return(self.run_job(overrides, number))
        except Exception as error:  # noqa: BLE001 - the parent gets it
            return _pickle_job_return(_failed_job_return(error, overrides))
        except BaseException as error:  # noqa: BLE001 - it ends this job only
            return _pickle_job_return(
                _failed_job_return(ChildProcessError(f"A job left by {_error_type_and_message(error)}"), overrides)
            )

    def run_job(self, overrides: Sequence[str], number: int) -> JobReturn:
        """Runs the job with these overrides in this process."""
        log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
        config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return run_job(
            hydra_context=self.context,
            task_function=self.task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )


def _pickle_job_return(job: JobReturn) -> bytes:
    """The pickled `JobReturn`; an error that cannot be pickled is replaced by a `RuntimeError` with its message."""
    if job.status is not JobStatus.FAILED:
        return pickle.dumps(job)
    error = job._return_value
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickled = pickle.dumps(job)
        pickle.loads(pickled)
    except Exception:  # noqa: BLE001 - the pickling of a user's class may raise any exception
        job.return_value = RuntimeError(_error_type_and_message(error))
        pickled = pickle.dumps(job)
    return pickled


def _job_return_from_process_output(end: bytes | ChildProcessError, overrides: Sequence[str]) -> JobReturn:
    """The job's `JobReturn`; a failed one if its process was lost."""
    if isinstance(end, ChildProcessError):
        return _failed_job_return(end, overrides)
    try:
        job: JobReturn = pickle.loads(end)
    except Exception as error:  # noqa: BLE001 - an unreadable value fails one job only
        return _failed_job_return(
            ChildProcessError(f"A job's return value cannot be read: {_error_type_and_message(error)}"), overrides
        )
    return job


def _failed_job_return(error: Exception, overrides: Sequence[str]) -> JobReturn:
    return JobReturn(overrides=list(overrides), status=JobStatus.FAILED, _return_value=error)


def _error_type_and_message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
