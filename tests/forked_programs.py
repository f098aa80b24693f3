"""The program in a process of its own, which may be struck, without the seconds that its imports take.

A server imports all that the program ever imports and forks a process for each run; it runs nothing itself, so that a
fork finds neither threads nor anything that an earlier run left behind.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import cycle
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.faults.syscalls import Fault, arm
from tests.fork_server import PRELOAD, SERVER, start_server
from tests.waiting import HANGS

CLI = "dpsweep.sweeper.commands.cli"
"""The module behind the console script."""

CLOCK = "FAULTS_CLOCK"
"""The variable that says by how many days the clock jumps."""

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a run ended: its exit code, minus the signal where one ended it, and what it said."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Path:
        """The report, by the last line printed."""
        return Path(self.out.strip().splitlines()[-1])


class Run:
    """A run that goes on."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        fault: Fault | None = None,
        module: str = CLI,
        first: Callable[[], None] | None = None,
    ) -> None:
        """Starts it; `first`, a function of a module, is called before the program."""
        start_server()
        pipes = [SERVER.Pipe(duplex=False) for _ in range(2)]
        ends = [end for _, end in pipes]
        self._reads = [read for read, _ in pipes]
        rest = (dict(environment), fault, module, first, ends)
        self._process = SERVER.Process(target=_run, args=(tuple(words), folder, *rest))
        self._process.start()
        for end in ends:
            end.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        """The process's number."""
        self._over = False

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves no process behind, also where the test failed while it ran."""
        if not self._over:
            self.kill()
            self.wait()

    def poll(self) -> int | None:
        """The exit code, minus the signal where one ended it; None as long as it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends it a signal, unless it has ended."""
        if not self._over and self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process, unless it has ended."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def kill_after(self, seconds: float) -> None:
        """Kills the process by the clock, unless it has ended by then."""
        wait([self._process.sentinel], seconds)
        self.kill()

    def wait(self, seconds: float = HANGS) -> Done:
        """Reads what it says until it ends; orphans that it leaves behind may go on."""
        said: dict[Connection, list[bytes]] = {read: [] for read in self._reads}
        deadline = time.monotonic() + seconds
        while self._process.is_alive() and time.monotonic() < deadline:
            _drain(said, [self._process.sentinel], deadline)
        hung = self._process.is_alive()
        self.kill()
        self._process.join()
        self._over = True
        code = self._process.exitcode
        self._process.close()
        _drain(said, [], time.monotonic())
        out, err = (b"".join(said[read]).decode(errors="replace") for read in self._reads)
        for read in self._reads:
            read.close()
        assert code is not None
        assert not hung, f"it hung\n{out}\n{err}"
        return Done(code=code, out=out, err=err)


def _drain(said: Mapping[Connection, list[bytes]], until: Sequence[int], deadline: float) -> None:
    """Reads until nothing comes, or one of `until` is ready, or it is late."""
    open_ones = list(said)
    while ready := wait([*open_ones, *until], max(0.0, deadline - time.monotonic())):
        for read in [one for one in ready if isinstance(one, Connection)]:
            chunk = os.read(read.fileno(), _CHUNK)
            said[read].append(chunk)
            if not chunk:
                open_ones.remove(read)
        if set(until) & set(ready) or not open_ones:
            return


def swing_clock(days: float) -> None:
    """Sets the clock of this process on and back by turns, whenever it is looked at: that of the calendar.

    People and machines set that one; the clock that only runs on is left alone.
    """
    jumps = cycle((days, -days))

    class Swung(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=next(jumps))

    ours = [module for name, module in sys.modules.items() if name.startswith("dpsweep.")]
    for module in ours:
        if getattr(module, "datetime", None) is datetime:
            module.datetime = Swung  # type: ignore[attr-defined]
    now = time.time
    time.time = lambda: now() + 86400 * next(jumps)


def _run(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    fault: Fault | None,
    module: str,
    first: Callable[[], None] | None,
    ends: Sequence[Connection],
) -> None:
    """What `python -m MODULE WORDS...` does in this folder."""
    assert PRELOAD in sys.modules, "every run would import all of it anew"
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, end in enumerate(ends, start=1):
        os.dup2(end.fileno(), number)
        end.close()
    sys.argv = [module, *words]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    if module != CLI:  # the console script does not look for modules in the current folder
        sys.path.insert(0, str(folder))
    if days := environment.get(CLOCK):
        swing_clock(float(days))
    if first is not None:
        first()
    if fault is not None:
        arm(fault)
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as an interpreter ends: pools of workers end here
