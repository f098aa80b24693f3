"""One go at an attempt at a trial, where it runs, and what it says about itself while it does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.private_store import TrialPlace
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.numbers import is_whole
from dpsweep.accounting.records.plan import Trial
from dpsweep.sweeper.trial.spec import Declaration, declare

log = logging.getLogger("dpsweep")

PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a job runs; no part of any identity."""

    device: str
    threads: int
    chunk: int | None
    data: Path | None

    def __post_init__(self) -> None:
        for name, value in (("threads", self.threads), ("chunk", self.chunk)):
            if value is not None and not is_whole(value, 1):
                raise BadInput(f"Expected compute.{name}={value!r} to be null or an integer >= 1.")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One go at an attempt at a trial, whose receipt this process has claimed, in the trial's two places."""

    trial: Trial
    receipt: Receipt
    place: TrialPlace

    @cached_property
    def declaration(self) -> Declaration:
        """What the trial declares."""
        return declare(self.trial.config)

    @property
    def log(self) -> logging.Logger:
        """For what concerns this trial alone."""
        return log.getChild(self.trial.id)

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Sends our log to the trial's own file; where the disk takes no more of it, the trial goes on without."""
        logging.raiseExceptions = False
        handler = logging.FileHandler(self.place.files / "train.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.log.propagate = False
        for logger in (log, self.log):
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        log.propagate = False
        try:
            yield
        finally:
            for logger in (log, self.log):
                logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()


def progress(places: Sequence[Path], steps: int) -> Callable[[int], None]:
    """Writes how far the trials are, for the coordinator's display: now and then, and the rarer the more they are."""
    last, seconds = 0.0, PROGRESS_SECONDS * max(1, len(places) / 16)

    def on_step(done: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > seconds:
            last = now
            for place in places:
                (place / "progress").write_text(f"{done}/{steps}")
            log.info("step %d of %d", done, steps)

    return on_step
