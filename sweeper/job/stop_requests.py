"""Stop requests to jobs: a file in the sweep's folder, or a signal to the job's process.

The coordinator creates the file, which stops all jobs on all machines. SIGTERM, SIGUSR1 and SIGUSR2, which a cluster
sends before it takes a machine away, stop the job that receives them. One that comes while a job of submitit's still
imports is noted (`call_with_early_signals_noted`): submitit drops SIGTERM, and the run would begin and then be killed.
Elsewhere a job without handlers dies of it, and has claimed nothing. A worker ignores SIGINT, which a terminal sends to
the coordinator and to its workers. Jobs of the basic launcher run in the coordinator's process, where the coordinator
handles all signals.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.2
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name))


_early: list[int] = []
"""The signals that this process received before it asked for a checker."""


def call_with_early_signals_noted(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the function; a signal that comes before its `stop_request_checker` is a stop request then."""
    with _temporary_signal_handlers(dict.fromkeys(SIGNALS, lambda number, _: _early.append(number))):
        return function(*arguments)


@contextmanager
def stop_request_checker(file: Path) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether to stop: cheap to call after every step, never False after True."""
    requested, last_look = bool(_early), -math.inf

    def record_stop_request(*_: object) -> None:
        nonlocal requested
        requested = True

    def should_stop() -> bool:
        nonlocal last_look
        if not requested and (now := time.monotonic()) - last_look >= LOOK_SECONDS:
            last_look = now
            if file.exists():
                record_stop_request()
        return requested

    with _temporary_signal_handlers(
        dict.fromkeys(SIGNALS, record_stop_request) | {signal.SIGINT: signal.SIG_IGN}
        if _may_set_interrupt_handler()
        else {}
    ):
        requested = requested or bool(_early)
        yield should_stop


def _may_set_interrupt_handler() -> bool:
    """Whether SIGINT has no special handler, and this is the main thread, which alone can set one."""
    default = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)
    return default and threading.current_thread() is threading.main_thread()


@contextmanager
def _temporary_signal_handlers(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Sets these signal handlers and later restores the earlier ones; handlers set outside Python stay in place."""
    before = {number: old for number in handlers if (old := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
