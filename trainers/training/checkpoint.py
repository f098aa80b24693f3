"""Checkpoints: a run's progress on disk, from which another job continues the same attempt.

Invariants:

* A checkpoint contains no generator state and no random numbers: noise that can be computed again protects nothing. The
  job that continues has new streams, and the lost steps since the checkpoint count as run.
* It consists of plain tensors, numbers and text, is read without running code, and is readable by its owner alone.
* It is one file, which replaces the one before it by one rename: at every instant there is one complete checkpoint or
  none. If writing fails, the previous checkpoint remains.

A checkpoint reveals the weights after some step and the moments of the noisy gradients, which the price of the steps
covers. It also reveals the sizes of the batches, which no price covers: it never leaves the curator's folder.
"""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dpsweep.accounting.events.build import compose, from_json, leaves_with_counts, repeat, to_json
from dpsweep.accounting.ledger.permit import Header, Receipt, StepLog
from dpsweep.accounting.records.taken_steps import read_checkpoint_of_log
from dpsweep.trainers.training.run import Drawn, Progress, Run

log = logging.getLogger("dpsweep")


@dataclass(kw_only=True)
class TrialJournal:
    """Marks steps in the log before they run, and writes a checkpoint after every interval of steps.

    An interval has `every` steps, or all remaining steps if it is None. `steps` is the attempt's log of marked and
    saved steps, in all of its jobs.
    """

    receipt: Receipt
    run: Run
    every: int | None
    steps: StepLog

    def __post_init__(self) -> None:
        _update_state_as_dict(self.run.trainer.update.start(torch.zeros(1)))

    def mark_next_interval(self, missing: int) -> int:
        """Marks the next interval; raises `ContractBroken` if it was not priced or cannot be marked."""
        interval = missing if self.every is None else min(self.every, missing)
        self.steps = self.steps.take(interval)
        return interval

    def save_progress(self, progress: Progress) -> None:
        """Writes a checkpoint; if writing fails, the previous one stays and the steps marked since then count."""
        try:
            header = write_checkpoint(self.steps, self.receipt, self.run, progress)
        except OSError as cause:
            log.warning("no checkpoint after step %d: %s", progress.step, cause)
            return
        self.steps = replace(self.steps, header=header)

    def mark_private_score(self) -> None:
        """Marks that a private score is about to be measured."""
        self.steps = self.steps.score()


def write_checkpoint(steps: StepLog, receipt: Receipt, run: Run, progress: Progress) -> Header:
    """Replaces the previous checkpoint by one atomic rename."""
    header = Header(
        plan=receipt.plan,
        trial=receipt.trial,
        attempt=receipt.attempt,
        charge=receipt.charge,
        step=progress.step,
        steps=run.steps,
        spent=progress.ran.total() * run.steps_per_period,
        marked=steps.marked,
    )
    header.write_checkpoint(steps.place.files, _checkpoint_bytes(progress))
    return header


def read_checkpoint(steps: StepLog, run: Run, device: torch.device | str) -> Progress:
    """The progress in the attempt's checkpoint; the steps lost since then count among those that ran."""
    header, state = read_checkpoint_of_log(steps)
    saved = torch.load(io.BytesIO(state), map_location=device, weights_only=True)
    ran = Counter(dict(leaves_with_counts(from_json(json.loads(saved["ran"])))))
    ran[run.event_of_one_period] += -(-(steps.spent - header.spent) // run.steps_per_period)
    return Progress(
        weights=saved["weights"],
        average=saved.get("average"),
        fixed=tuple(saved["fixed"]),
        state=_restore_update_state(run.trainer.update.start(saved["weights"]), saved["state"]),
        step=header.step,
        ran=ran,
        drawn=Drawn(**saved["drawn"]),
        seconds=saved["seconds"],
        curve=tuple(json.loads(saved["curve"])),
    )


def _checkpoint_bytes(progress: Progress) -> bytes:
    """The bytes of everything but the step number, which is in the header."""
    ran = compose(repeat(event, count) for event, count in progress.ran.items())
    buffer = io.BytesIO()
    torch.save(
        {
            "weights": progress.weights.cpu(),
            "average": None if progress.average is None else progress.average.cpu(),
            "fixed": [tensor.cpu() for tensor in progress.fixed],
            "state": _update_state_as_dict(progress.state),
            "ran": json.dumps(to_json(ran)),
            "drawn": asdict(progress.drawn),
            "seconds": progress.seconds,
            "curve": json.dumps(progress.curve),
        },
        buffer,
    )
    return buffer.getvalue()


def _update_state_as_dict(state: Any) -> dict[str, Tensor | float] | None:
    """An update's state as a dict of its fields; None without a state."""
    if state is None:
        return None
    if not is_dataclass(state):
        raise TypeError(f"Expected state={type(state).__name__} to be None or a dataclass of tensors and numbers.")
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    for name, value in values.items():
        if not isinstance(value, (Tensor, int, float)):
            raise TypeError(f"Expected state.{name}={value!r} to be a tensor or a number.")
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in values.items()}


def _restore_update_state(initial: Any, saved: Mapping[str, Tensor | float] | None) -> Any:
    return initial if saved is None else replace(initial, **saved)
