"""Work in processes that are forked from this one: what is loaded stays loaded, and a lost one takes no other along.

There is one process for each piece of work, not a pool: a pool's idle workers outlive the program that is killed, with
all that they inherited. What always holds:

* A child never returns into its parent's program: it leaves by `os._exit`, whatever happened.
* It has none of its parent's files, locks and connections. Their numbers lead to the null device; had they been closed,
  another file could get such a number, and an object of the parent's that knows it would close that one.
* It uses no lock that another thread of its parent's may have held when it was born: it prints by objects of its own.
* What its parent has forgotten is not finalised in it too: a connection must not say goodbye twice.
* It dies when its parent does, at once, so that its own locks are free for the next program.
* It is deaf to SIGINT, which a terminal sends to it too, and handles no other signal until its work asks for it.

Linux only: elsewhere no signal tells of a parent's death, and system libraries forbid a fork.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from dpsweep.sweeper.job.parent_death import killed_with

WAKE_SECONDS = 0.2
"""How long this process sleeps at most: where another of its threads hears a signal, nothing else wakes this one."""

CHUNK = 1 << 16
STDERR = 2

ForkWork = Callable[[], bytes]


def can_fork() -> bool:
    """Whether this system has all that is promised here."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def fork_each(works: Sequence[ForkWork], at_once: int) -> list[bytes | ChildProcessError]:
    """What each piece of work says, at most `at_once` at a time; where its process was lost, one sentence on how.

    Whatever ends this call early ends them all.
    """
    ends: dict[int, bytes | ChildProcessError] = {}
    waiting = deque(enumerate(works))
    with _Children() as children:
        while waiting or children.running:
            while waiting and len(children.running) < at_once:
                place, work = waiting.popleft()
                try:
                    children.start(place, work)
                except OSError as cause:
                    ends[place] = ChildProcessError(f"A worker could not be started: {cause.strerror}.")
            ends |= children.ended()
    return [ends[place] for place in range(len(works))]


@dataclass(kw_only=True, eq=False)
class _Child:
    """A process at work; `over` can be read once it has ended, `pipe` whenever it says something."""

    place: int
    pid: int
    over: int
    pipe: int
    said: bytearray = field(default_factory=bytearray)

    def listen(self) -> bool:
        """Takes up what it has said so far; False where it has nothing more to say."""
        with suppress(BlockingIOError):
            while part := os.read(self.pipe, CHUNK):
                self.said += part
            return False
        return True

    def end(self) -> bytes | ChildProcessError:
        """Lets go of a process that has ended."""
        self.listen()
        for number in (self.pipe, self.over):
            os.close(number)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # where this program ignores SIGCHLD, the system keeps no word of how it ended
            code = 0
        if code < 0:
            return ChildProcessError(f"A worker was ended by {_name(-code)}.")
        if code or not self.said:
            return ChildProcessError(f"A worker left with code {code} and no result.")
        return bytes(self.said)


class _Children:
    """The processes that run; those that do when the block is left are killed."""

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
                signal.pidfd_send_signal(child.over, signal.SIGKILL)
        for child in self.running:
            child.end()
        self._selector.close()

    def start(self, place: int, work: ForkWork) -> None:
        """Forks a process for this work."""
        with _unheard() as mask:
            pid, pipe = _fork(work, (mask | {signal.SIGINT}) - {signal.SIGTERM})
            try:
                child = _Child(place=place, pid=pid, over=os.pidfd_open(pid), pipe=pipe)
            except BaseException:  # Ctrl-C too, which another thread may hear
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(pipe)
                raise
            self.running.add(child)
            for number in (child.pipe, child.over):
                self._selector.register(number, selectors.EVENT_READ, child)

    def ended(self) -> dict[int, bytes | ChildProcessError]:
        """Waits a while, and returns what became of those that ended."""
        ready = self._selector.select(WAKE_SECONDS)
        found = {}
        for child in {key.data for key, _ in ready if key.fd == key.data.over}:
            for number in (child.pipe, child.over):
                with suppress(KeyError):
                    self._selector.unregister(number)
            self.running.remove(child)
            found[child.place] = child.end()
        for key, _ in ready:
            if key.data in self.running and not key.data.listen():
                self._selector.unregister(key.fd)
        return found


@contextmanager
def _unheard() -> Iterator[set[signal.Signals | int]]:
    """Signals wait until a new process is known to its parent, and until it has put away its parent's handlers.

    Yields those that waited before.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield set(mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _fork(work: ForkWork, mask: Collection[int]) -> tuple[int, int]:
    """A new process's number, and the pipe by which it says what its work says; these signals wait in it for ever."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    be_mortal = killed_with(os.getpid())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, from Python 3.12 on: see above
            pid = os.fork()
        if not pid:
            _live(work, write, be_mortal, mask)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return pid, read


def _live(work: ForkWork, write: int, be_mortal: Callable[[], None], mask: Collection[int]) -> NoReturn:
    """The whole life of a child."""
    try:
        be_mortal()
        gc.freeze()
        _let_go(write)
        _forget_handlers()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(write, "wb") as pipe, _own_output():
            pipe.write(work())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - all that is above belongs to the parent
        os.write(STDERR, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _let_go(kept: int) -> None:
    """Leads all that was inherited to the null device, but the standard output and errors, and the pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in (1, 2, kept, null):
            os.dup2(null, number, inheritable=number == 0)


@contextmanager
def _own_output() -> Iterator[None]:
    """Prints by objects of its own: the parent's hold what it has yet to print, and maybe a lock of another thread."""
    with (
        open(1, "w", buffering=1, closefd=False) as out,
        open(2, "w", buffering=1, closefd=False, errors="backslashreplace") as errors,
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        yield


def _forget_handlers() -> None:
    """Takes the parent's handlers away; what it ignores stays ignored."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
