"""How a job learns that it shall stop: by a file, which it looks for, or by a signal to its own process.

The file in the sweep's folder asks all jobs, wherever they run; the coordinator makes it. SIGTERM and SIGUSR2, which a
cluster sends before it takes a machine away, ask the one job that they are sent to. A worker is deaf to SIGINT, which a
terminal sends to the coordinator and to its workers alike. In the coordinator's own process, where the basic launcher
runs its jobs, all signals stay the coordinator's.
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
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR2") if hasattr(signal, name))


@contextmanager
def stop_requests(file: Path) -> Iterator[Callable[[], bool]]:
    """Yields the question whether to stop, cheap enough to be asked after every step; a yes is never taken back."""
    asked, looked = False, -math.inf

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    def should_stop() -> bool:
        nonlocal looked
        if not asked and (now := time.monotonic()) - looked >= LOOK_SECONDS:
            looked = now
            if file.exists():
                ask()
        return asked

    with _handled(dict.fromkeys(SIGNALS, ask) | {signal.SIGINT: signal.SIG_IGN} if _is_worker() else {}):
        yield should_stop


def _is_worker() -> bool:
    """Whether nobody in this process waits for an interrupt; only a main thread may set handlers."""
    unheard = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)
    return unheard and threading.current_thread() is threading.main_thread()


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Signals come to these handlers, and afterwards to those before them; what is no handler of Python's stays."""
    before = {number: old for number in handlers if (old := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
