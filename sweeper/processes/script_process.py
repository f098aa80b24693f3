"""The process of a script: its own group, a bare environment, and an end that leaves nothing running.

The script dies with the job that started it, as workers do (`sweeper/processes/parent_death.py`), and what it started
itself is killed when it ends, in whatever group it is (`sweeper/processes/strays.py`). Its output goes to a file that
only the curator may read. A stop request is passed on as SIGTERM, once. The script starts with SIGTERM blocked, and
`dpsweep.attempt` unblocks it: a request that comes earlier waits, and a script that never listens runs to its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import dpsweep
from dpsweep.accounting.ledger.private_store import PRIVATE
from dpsweep.sweeper.processes.parent_death import killed_with
from dpsweep.sweeper.processes.strays import orphans_adopted
from dpsweep.trainers.foreign.handover import ATTEMPT_FILE, VARIABLE, WORK

LOOK_SECONDS = 0.05

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "HF_HOME", "SYSTEMROOT")
"""The variables of the job's environment that a script needs to find programs, its caches and its language."""

OFFLINE = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "WANDB_MODE": "disabled",
}
"""What keeps usual libraries from sending or fetching anything; a script that wants to can still open a connection."""


def bare_environment(folder: Path, modules: Sequence[Path], *, device: str, threads: int) -> dict[str, str]:
    """The environment of a script in this folder, which may import from the folders `modules` too."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    devices = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    if device == "cpu":
        devices = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    package = Path(str(dpsweep.__file__)).parents[1]
    return {
        **kept,
        **devices,
        **OFFLINE,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(map(str, (*modules, package))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / WORK),
        VARIABLE: str(folder / ATTEMPT_FILE),
    }


@orphans_adopted()
def run_script(
    program: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    output: Path,
    should_stop: Callable[[], bool],
) -> int:
    """Runs a Python program in `folder`/work to its end; its exit status, or minus the number of a signal.

    Whatever ends this function ends the script and all processes that it started.
    """
    handle = os.open(output, os.O_CREAT | os.O_APPEND | os.O_WRONLY, PRIVATE)
    try:
        process = subprocess.Popen(
            [sys.executable, "-u", str(program), *arguments],
            cwd=folder / WORK,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
            preexec_fn=_first(killed_with(os.getpid()) if sys.platform == "linux" else None),
        )
    finally:
        os.close(handle)
    asked = False
    try:
        while not _has_ended(process.pid):
            if not asked and should_stop():
                asked = True
                process.send_signal(signal.SIGTERM)
            time.sleep(LOOK_SECONDS)
    finally:
        with suppress(ProcessLookupError):  # before the process is waited for, since then its number may be another's
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return status


def _first(bind: Callable[[], None] | None) -> Callable[[], None]:
    """What the script's process does before the program starts: it blocks SIGTERM, and binds itself to its job."""

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if bind is not None:
            bind()

    return prepare


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it keeps its number until it is waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
