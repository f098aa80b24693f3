"""The processes of a command: their garbage, their end, and what they print when nobody reads.

Garbage is collected seldom while a command imports, plans and draws, as usual while it trains, and not at its end.
Imports, plans and pages make hundreds of thousands of objects that live as long as the process. Python's usual
thresholds look through them again and again, and once more at the end, which took a fifth of a command's processor
time. While it trains, what was there before is left out, and only newer objects are looked through.

A worker ends when its parent ends, so that a killed sweep leaves no training and no lock behind. On Linux the system
kills the worker at once (`PR_SET_PDEATHSIG` of prctl(2)). It does so when the *thread* that started the worker ends, so
the starting thread has to live as long as its program or its pool. On other systems a thread of the worker checks
regularly whether its parent is still the same process.

Processes that a script started and that left its group end with its run: they hold records of a run that is over. A
process that calls `setsid`, and whose parent ends, becomes a child of init: neither its group nor its parent leads to
it. So while a script runs, its job adopts orphans (`PR_SET_CHILD_SUBREAPER` of prctl(2)), and kills all that it has
adopted when the script ends; its own children share its session, and go on. A killed job can kill nothing. The
coordinator then finds what is left by the variable that names the attempt in every process's environment. Linux only.

The reader of standard output may go, as in `dpsweep sweep | head -1`: the rest is dropped, and the command goes on. A
sweep must not stop because a pager was closed. Other errors of writing, such as a full disk, stay errors.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

SELDOM = 50_000
"""New containers between two collections of the youngest; Python's own number is 700."""

_USUAL = gc.get_threshold()


@contextmanager
def seldom_garbage_collection() -> Iterator[None]:
    """Within it garbage is collected seldom."""
    with _temporary_gc_thresholds(SELDOM, *_USUAL[1:]):
        yield


@contextmanager
def usual_garbage_collection() -> Iterator[None]:
    """Within it garbage is collected as Python does by itself: training may keep large tensors in cycles.

    Objects that exist at its beginning are not looked at until its end.
    """
    gc.freeze()
    try:
        with _temporary_gc_thresholds(*_USUAL):
            yield
    finally:
        gc.unfreeze()


@contextmanager
def process_exit_without_memory_cleanup() -> Iterator[None]:
    """Leaves what is in memory to the operating system when the process ends with the exit code of what runs within.

    What is registered with `atexit` after this begins, and threads that are not daemons, end as always; then Python
    would give back its objects one by one, which takes a third of the time of importing torch. An exception that is no
    exit ends the process as always.
    """
    codes: list[int] = []

    def exit_without_cleanup() -> None:
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed from the beginning
                stream.flush()
        except (OSError, ValueError):
            if not any(codes[-1:]):  # a success that nobody can read is none: Python says so
                return
        if codes:
            os._exit(codes[-1])

    atexit.register(exit_without_cleanup)
    try:
        yield
    except SystemExit as stop:
        codes.append(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
        raise
    codes.append(0)


@contextmanager
def _temporary_gc_thresholds(*numbers: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*numbers)
    try:
        yield
    finally:
        gc.set_threshold(*before)


PARENT_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""

LOOK_SECONDS = 0.5


def function_to_die_with_parent(parent: int) -> Callable[[], None]:
    """A function that a child of process `parent` calls so that the system kills it when its parent ends; Linux only.

    The C library is loaded here, so that a forked child does not have to. The function raises `ChildProcessError` if
    the system refuses, and exits if the parent has already ended.
    """
    import ctypes  # two milliseconds, which help need not wait for

    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        if libc.prctl(PARENT_DEATH_SIGNAL, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0))):
            raise ChildProcessError("Expected prctl to be allowed: a worker must not outlive its sweep.")
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


def end_process_with_parent(parent: int, *_: str) -> None:
    """Ends this process when its parent, the process `parent`, ends; on all POSIX systems.

    joblib compares all arguments to tell one kind of worker from another.
    """
    if os.name != "posix":
        return
    if sys.platform == "linux":
        try:
            function_to_die_with_parent(parent)()
            return
        except ChildProcessError:
            pass
    threading.Thread(target=wait_for_parent_end_then_exit, args=(parent,), daemon=True).start()


def wait_for_parent_end_then_exit(parent: int) -> None:
    """Ends this process at once when the process `parent` is no longer its parent."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


SET_CHILD_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER` of prctl(2)."""

GET_CHILD_SUBREAPER = 37
"""`PR_GET_CHILD_SUBREAPER` of prctl(2)."""

PROCESSES = Path("/proc")


@contextmanager
def adopt_orphans_and_kill_at_end() -> Iterator[None]:
    """Within it this process adopts the orphans of its children; at its end it kills those of other sessions.

    What a program in a session of its own started can never enter this process's session: children in it are this
    process's own, and are left alone. So are children that it had before, and processes with rights of another user.
    """
    if sys.platform != "linux":
        yield
        return
    import ctypes

    libc, before, adopted = ctypes.CDLL(None), _children_outside_session(), ctypes.c_int()
    libc.prctl(GET_CHILD_SUBREAPER, ctypes.byref(adopted), 0, 0, 0)
    libc.prctl(SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    try:
        yield
    finally:
        _kill_all_children_except(but=before)
        libc.prctl(SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (adopted.value, 0, 0, 0)))


def kill_processes_with_variable(name: str, value: str) -> None:
    """Kills every process of this user whose environment has this variable, but this one."""
    words = f"{name}={value}".encode()
    for place in PROCESSES.glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if words in place.read_bytes().split(b"\0") and int(place.parent.name) != os.getpid():
                os.kill(int(place.parent.name), signal.SIGKILL)


def _kill_all_children_except(but: set[int]) -> None:
    """Kills children until there are no others: those of a killed child are adopted in turn."""
    spared = set(but)
    while strays := _children_outside_session() - spared:
        for pid in strays:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:
                spared.add(pid)
            except (ProcessLookupError, ChildProcessError):
                pass  # it has ended, and where this program ignores SIGCHLD, the system waits for it


def _children_outside_session() -> set[int]:
    """The children of this process that are in another session than it is."""
    found, session = set(), os.getsid(0)
    for place in PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError):
            _, parent, _, own, *_ = place.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid() and int(own) != session:
                found.add(int(place.parent.name))
    return found


class _FileIgnoringBrokenPipe(io.FileIO):
    """A file descriptor that leads to the null device once its reader has gone."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), self.fileno())
            return super().write(data)


def ignore_broken_pipe_on_stdout() -> None:
    """Lets this process write to standard output without an error when nobody reads it any more."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or not isinstance(out.buffer, (io.BufferedWriter, io.FileIO)):
        return  # replaced by a program that runs us, or none at all
    out.flush()
    raw = _FileIgnoringBrokenPipe(out.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if out.write_through else io.BufferedWriter(raw),  # as Python does it
        encoding=out.encoding,
        errors=out.errors,
        line_buffering=out.line_buffering,
        write_through=out.write_through,
    )
