"""Checkpoints: a run's progress on disk, from which another session of the same attempt goes on.

What always holds:

* No generator's state is in them, nor anything that a stream has drawn: noise that can be computed again is none. The
  session that goes on has new streams, and the steps since the checkpoint, whose results are lost, count as run.
* They are plain tensors, numbers and text, read without running any code, and for their owner alone.
* The tensors lie on the disk under a name of their own before the header names them, and those before them are removed
  after: at every instant there is one whole checkpoint or none. One that cannot be written leaves the one before it.

A checkpoint reveals the weights after some step and the moments of the noisy gradients, which the steps' price covers,
and the sizes of the batches drawn, which no price covers: it never leaves the curator's folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import compose, flatten, from_json, repeat, to_json
from dpsweep.accounting.json_files import flush_folder
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.step_log import Header, StepLog, remove_tensors
from dpsweep.trainers.training.run import Drawn, Progress, Run

log = logging.getLogger("dpsweep")


@dataclass(kw_only=True)
class TrialJournal:
    """Marks before each stretch of a trial's attempt, and a checkpoint after it.

    A stretch has `every` steps, or all that are missing where it is None. `steps` is what the attempt has marked and
    kept so far, in all of its sessions.
    """

    receipt: Receipt
    run: Run
    every: int | None
    steps: StepLog

    def __post_init__(self) -> None:
        _plain(self.run.trainer.update.start(torch.zeros(1)))

    def begin(self, missing: int) -> int:
        """Marks the next stretch; raises `ContractBroken` where it was not priced or cannot be marked."""
        stretch = missing if self.every is None else min(self.every, missing)
        self.steps = self.steps.mark(stretch)
        return stretch

    def keep(self, progress: Progress) -> None:
        """Writes a checkpoint; where the disk takes none, the one before it stays and what was marked since counts."""
        try:
            header = write_checkpoint(self.steps, self.receipt, self.run, progress)
        except OSError as cause:
            log.warning("no checkpoint after step %d: %s", progress.step, cause)
            return
        self.steps = replace(self.steps, header=header)

    def score(self) -> None:
        """Marks that a private score is about to be measured."""
        self.steps = self.steps.mark_score()


def write_checkpoint(steps: StepLog, receipt: Receipt, run: Run, progress: Progress) -> Header:
    """Puts a checkpoint in the place of the one before it, in one rename of its header."""
    content = _content(progress)
    sha256 = hashlib.sha256(content).hexdigest()
    header = Header(
        plan=receipt.plan,
        trial=receipt.trial,
        attempt=receipt.attempt,
        charge=receipt.charge,
        step=progress.step,
        steps=run.steps,
        spent=progress.ran.total() * run.period,
        marked=steps.marked,
        tensors=f"weights-{receipt.attempt}-{sha256[:16]}.pt",
        sha256=sha256,
    )
    files = steps.place.files
    _write(files / header.tensors, content)
    header.write(files)
    remove_tensors(files, but=header.tensors)
    return header


def read_checkpoint(steps: StepLog, run: Run, device: torch.device | str) -> Progress:
    """The progress that the attempt's checkpoint holds, with the steps lost since then among those that ran."""
    header = steps.header
    if header is None:
        raise ContractBroken(f"Attempt {steps.attempt} has no checkpoint in {steps.place.files}.")
    kept = torch.load(io.BytesIO(header.content(steps.place.files)), map_location=device, weights_only=True)
    ran = Counter(dict(flatten(from_json(json.loads(kept["ran"])))))
    ran[run.step_event] += -(-(steps.spent - header.spent) // run.period)
    if not kept.get("rounded", False):
        log.warning(
            "an earlier version began this run with float32 noise: its page says so, and no seed repeats the run"
        )
    return Progress(
        weights=kept["weights"],
        average=kept.get("average"),
        fixed=tuple(kept["fixed"]),
        state=_restored(run.trainer.update.start(kept["weights"]), kept["state"]),
        step=header.step,
        ran=ran,
        drawn=Drawn(**kept["drawn"]),
        seconds=kept["seconds"],
        curve=tuple(json.loads(kept["curve"])),
        rounded=kept.get("rounded", False),
    )


def _content(progress: Progress) -> bytes:
    """Everything but the step, which the header says."""
    ran = compose(repeat(event, count) for event, count in progress.ran.items())
    buffer = io.BytesIO()
    torch.save(
        {
            "weights": progress.weights.cpu(),
            "average": None if progress.average is None else progress.average.cpu(),
            "fixed": [tensor.cpu() for tensor in progress.fixed],
            "state": _plain(progress.state),
            "ran": json.dumps(to_json(ran)),
            "drawn": asdict(progress.drawn),
            "seconds": progress.seconds,
            "curve": json.dumps(progress.curve),
            "rounded": progress.rounded,
        },
        buffer,
    )
    return buffer.getvalue()


def _plain(state: Any) -> dict[str, Tensor | float] | None:
    """An update's state by its fields."""
    if state is None:
        return None
    if not is_dataclass(state):
        raise TypeError(f"Expected state={type(state).__name__} to be None or a dataclass of tensors and numbers.")
    found = {field.name: getattr(state, field.name) for field in fields(state)}
    for name, value in found.items():
        if not isinstance(value, (Tensor, int, float)):
            raise TypeError(f"Expected state.{name}={value!r} to be a tensor or a number.")
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in found.items()}


def _restored(fresh: Any, kept: Mapping[str, Tensor | float] | None) -> Any:
    return fresh if kept is None else replace(fresh, **kept)


def _write(path: Path, content: bytes) -> None:
    """A file for its owner alone that is on the disk, whole, when it has its name."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
    flush_folder(path.parent)
