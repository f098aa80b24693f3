"""A session: the part of an attempt that one process trains, with its machine, its log, its progress and its checks.

The checks hold a run to exactly the accesses that were charged: its steps, its company, and its score.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.ledger.permit import PrivateStore, Receipt, Session
from dpsweep.accounting.records.plan import Trial, is_integer_at_least
from dpsweep.accounting.records.sweep_folder import SweepFolder, TrialPlace
from dpsweep.accounting.records.taken_steps import took_declared_steps
from dpsweep.accounting.searches.interface import SURE
from dpsweep.accounting.searches.stored_draw import coin_bits_of_secret_part
from dpsweep.sweeper.trial.spec import Declaration, declaration_from_config
from dpsweep.trainers.training.run_records import RecordStore

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.models.weights import WeightDelta
    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.checkpoint import TrialJournal
    from dpsweep.trainers.training.run import Progress, Run

log = logging.getLogger("dpsweep")

PROGRESS, PROGRESS_SECONDS = "progress", 0.5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device, threads, chunk size and data folder of a job; not part of any identity."""

    device: str
    threads: int
    chunk: int | None
    data: Path | None

    def __post_init__(self) -> None:
        for name, value in (("threads", self.threads), ("chunk", self.chunk)):
            if value is not None and not is_integer_at_least(value, 1):
                raise BadInput(f"Expected compute.{name}={value!r} to be null or an integer >= 1.")


@dataclass(frozen=True, kw_only=True)
class TrialSession:
    """The part of an attempt that this process trains: a trial, what its claim allows, and its two folders.

    `told_level` is the level of the interval that is told of its score if it wins.
    """

    trial: Trial
    claimed: Session
    place: TrialPlace
    told_level: float = SURE

    @property
    def receipt(self) -> Receipt:
        """The claimed receipt."""
        if self.claimed.receipt is None:
            raise ContractBroken(f"Expected trial {self.trial.id} to hold a receipt.")
        return self.claimed.receipt

    @cached_property
    def declaration(self) -> Declaration:
        """The trial's declaration."""
        return declaration_from_config(self.trial.config)

    def open_split(self, machine: Machine, on_rows: Callable[[int, int], None] | None = None) -> Split:
        """The records of the trial, split as its score requires; `on_rows` is that of `RecordStore`."""
        sweep = SweepFolder(root=self.place.files.parents[1])
        store = RecordStore(
            folder=machine.data,
            private=PrivateStore(root=self.place.record.parents[1]),
            device=machine.device,
            coins=coin_bits_of_secret_part(self.trial, self.receipt.plan, sweep),
            on_rows=on_rows,
        )
        return self.declaration.records.open_split(self.claimed, store)

    @property
    def trial_logger(self) -> logging.Logger:
        """The logger for messages about this trial alone."""
        return log.getChild(self.trial.id)

    @contextmanager
    def write_log_to_trial_file(self) -> Iterator[None]:
        """Writes dpsweep's log to the trial's file; on a full disk the trial continues without a log."""
        logging.raiseExceptions = False
        handler = logging.FileHandler(self.place.files / "train.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.trial_logger.propagate = False
        for logger in (log, self.trial_logger):
            logger.addHandler(handler)
        if log.level != logging.INFO:  # inherited by the loggers of trials; setting a level visits all loggers
            log.setLevel(logging.INFO)
        log.propagate = False
        try:
            yield
        finally:
            for logger in (log, self.trial_logger):
                logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()


def progress_writer(places: Sequence[Path], steps: int) -> Callable[[int], None]:
    """Writes the trials' progress for the coordinator's display, at intervals that grow with the number of trials."""
    last, seconds = 0.0, PROGRESS_SECONDS * max(1, len(places) / 16)

    def write_progress_if_due(done: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > seconds:
            last = now
            for place in places:
                (place / PROGRESS).write_text(f"step {done}/{steps}")
            log.info("step %d of %d", done, steps)

    return write_progress_if_due


def check_realised_dp_event_was_charged(realised: DpEvent, declared: DpEvent, *, least: int) -> None:
    """Raises `ContractBroken` unless the run made at least `least` accesses, and all of them were charged."""
    if not took_declared_steps(realised, declared, least=least):
        raise ContractBroken(f"The run differs from its charge: realised {realised}, declared {declared}.")


def check_subsample_sharing_was_charged(company: int, *, shared: bool) -> None:
    """Raises `ContractBroken` if runs shared subsamples but were charged for independent subsamples."""
    if company != 1 and not shared:
        raise ContractBroken(f"The run differs from its charge: {company} runs had the same subsamples.")


def check_score_dp_event_was_charged(measured: DpEvent | None, declared: DpEvent | None) -> None:
    """Raises `ContractBroken` unless the score about to be measured is the one that was charged."""
    same = measured is declared if measured is None or declared is None else events.are_same_events(measured, declared)
    if not same:
        raise ContractBroken(f"The score differs from its charge: measured {measured}, declared {declared}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadySession:
    """A session, its run, model, streams and journal, and the progress that it continues, None for a new run.

    `initial` are the digests of the weights that training starts from.
    """

    session: TrialSession
    run: Run
    model: nn.Module
    initial: WeightDelta
    streams: Streams
    journal: TrialJournal
    since: Progress | None

    @property
    def steps_already_taken(self) -> int:
        """The steps that earlier sessions took."""
        return 0 if self.since is None else self.since.step
