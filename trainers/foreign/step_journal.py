"""A script's step marks and checkpoints: the files of `accounting/records/step_log.py`, written by the script itself.

The first stretch of a session is marked by its job, before the script starts. Each later one is marked here before its
first step. A checkpoint holds the bytes that the script gives, which dpsweep never reads.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from dpsweep.accounting.json_files import write_bytes
from dpsweep.accounting.ledger.private_store import PRIVATE, TrialPlace
from dpsweep.accounting.records.step_log import Header, StepLog, remove_tensors
from dpsweep.trainers.foreign.handover import Handover


@dataclass(kw_only=True)
class StepJournal:
    """The steps of one session: `done` of the run's steps are taken, those up to `allowed` are marked."""

    handover: Handover
    log: StepLog
    done: int
    allowed: int

    @classmethod
    def of(cls, handover: Handover) -> StepJournal:
        """The journal of a session that begins, with its first stretch marked."""
        place = TrialPlace(files=Path(handover.files), record=Path(handover.record))
        log = StepLog(
            place=place,
            attempt=handover.attempt,
            priced=handover.priced,
            marked=handover.marked,
            header=Header.read(place.files, handover.attempt),
        )
        return cls(handover=handover, log=log, done=handover.step, allowed=handover.step + first_stretch(handover))

    def begin_step(self) -> None:
        """Marks the next stretch if the marked one is over; raises `ContractBroken` if no further step may run."""
        if self.done < self.allowed:
            return
        stretch = _stretch(self.handover.every, self.handover.steps - self.done)
        self.log = self.log.mark(stretch)
        self.allowed += stretch

    def end_step(self) -> bool:
        """Counts a step; whether it was the last of its stretch and not of the run."""
        self.done += 1
        return self.done == self.allowed < self.handover.steps

    def keep(self, state: bytes) -> None:
        """Writes a checkpoint after the steps that are done; the one before it is replaced by one rename."""
        given, files = self.handover, self.log.place.files
        sha256 = hashlib.sha256(state).hexdigest()
        header = Header(
            plan=given.plan,
            trial=given.trial,
            attempt=given.attempt,
            charge=given.charge,
            step=self.done,
            steps=given.steps,
            spent=given.spent + self.done - given.step,
            marked=self.log.marked,
            tensors=f"weights-{given.attempt}-{sha256[:16]}.bin",
            sha256=sha256,
        )
        write_bytes(files / header.tensors, state, PRIVATE)
        header.write(files)
        remove_tensors(files, but=header.tensors)
        self.log = replace(self.log, header=header)


def first_stretch(handover: Handover) -> int:
    """The number of steps that the job of a session marks before it starts the script."""
    return _stretch(handover.every, handover.steps - handover.step)


def _stretch(every: int | None, missing: int) -> int:
    return missing if every is None else min(every, missing)
