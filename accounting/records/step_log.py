"""The step log of an attempt: the number of steps taken and left, in files that survive a crash at any instant.

Before a stretch of steps (those between two checkpoints) runs, a mark with their number is written; before a private
score is measured, a score mark is written. A checkpoint holds the number of steps that had really run. Marks are in the
private store, checkpoints in the sweep folder. Invariants:

* The spent steps are the checkpoint's count plus all steps marked since; without a checkpoint, all marked steps. They
  are never fewer than the steps that ran, since a mark is on the disk before its stretch begins. A stop by the user
  wastes no step; a killed process wastes its whole stretch, and an older checkpoint all steps marked since.
* Steps beyond the priced ones are refused before they run, and so are steps that cannot be marked.
* A checkpoint is used only if it is undamaged and of this plan, trial, attempt and charge. Damage never makes an
  attempt cheaper: the attempt counts as killed, with all its priced steps taken. One change is not detected: the
  removal of a complete last mark, which no crash causes.

The marks show when and how often a process died. This may depend on the records (by the memory of a large batch), and
no price covers it: only the curator may read the marks, like the rest of the store.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.codec import Count, Stored
from dpsweep.accounting.durable_files import append_bytes, flush_folder, write_bytes
from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.ledger.receipt import Receipt, TrialPlace
from dpsweep.accounting.validation import DAMAGE, exception_as_short_line, turn_file_errors_into_refusal

if TYPE_CHECKING:
    from dpsweep.accounting.records.plan import Trial

# the steps about to run, and the sum of all marked steps, which reveals a lost or changed line
_MARK = re.compile(rb"([1-9][0-9]{0,17}|score) ([0-9]{1,18})\n")


@dataclass(frozen=True, kw_only=True)
class Header(Stored):
    """A checkpoint's attempt and progress: its weights are those after `step` of `steps` steps.

    Then the attempt had spent `spent` steps, lost stretches counted in full, and `marked` was the sum of the marks.
    """

    plan: str
    trial: str
    attempt: Count
    charge: str
    step: Count
    steps: Count
    spent: Count
    marked: Count

    def write_checkpoint(self, files: Path, state: bytes) -> None:
        """Stores header and state in one file for its owner alone, which replaces the checkpoint before it."""
        header = json.dumps(self.to_json()).encode()
        content = b"\n".join((_checkpoint_digest(header, state), header, state))
        write_bytes(files / f"checkpoint-{self.attempt}", content, mode=0o600)


def read_checkpoint_file(files: Path, attempt: int) -> tuple[Header, bytes] | None:
    """The header and the state of an attempt's checkpoint, None if there is none; refuses an altered file."""
    path = files / f"checkpoint-{attempt}"
    try:
        digest, header, state = path.read_bytes().split(b"\n", 2)
        if _checkpoint_digest(header, state) != digest:
            raise ValueError("its SHA-256 is another")
        return Header.from_json(json.loads(header)), state
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as cause:
        raise ContractBroken(f"Expected {path} to be as it was written: {exception_as_short_line(cause)}.") from cause


def _checkpoint_digest(header: bytes, state: bytes) -> bytes:
    return hashlib.sha256(header + hashlib.sha256(state).digest()).hexdigest().encode()


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """The steps of one attempt at a trial: the priced and the marked ones, and the header of its checkpoint."""

    place: TrialPlace
    attempt: int
    priced: int
    marked: int = 0
    scored: bool = False
    header: Header | None = None

    @classmethod
    def begin(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """The empty log of an attempt that begins. An attempt that began earlier is refused at its first mark."""
        return cls(place=place, attempt=attempt, priced=trial.priced_steps)

    @classmethod
    def read(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """The log in an attempt's files; raises `ContractBroken` if they are damaged or inconsistent."""
        marked, scored, _ = read_marks(place.record, attempt)
        stored = read_checkpoint_file(place.files, attempt)
        header = None if stored is None else stored[0]
        if header is not None and not header.step <= header.spent <= header.marked <= marked:
            raise ContractBroken(f"Expected the checkpoint in {place.files} to count no more than was marked.")
        return replace(cls.begin(place, trial, attempt), marked=marked, scored=scored, header=header)

    @classmethod
    def resume(cls, place: TrialPlace, trial: Trial, receipt: Receipt) -> StepLog:
        """The log of an attempt that resumes from its checkpoint; raises an error if it may not resume."""
        steps = cls.read(place, trial, receipt.attempt)
        header, attempt = steps.header, f"Attempt {receipt.attempt} at trial {trial.id}"
        if header is None:
            raise ContractBroken(f"{attempt} has no checkpoint to go on from.")
        key, paid = ((one.plan, one.trial, one.attempt, one.charge) for one in (header, receipt))
        if key != paid or header.trial != trial.id:
            raise NoReceipt(
                f"The checkpoint is one of plan, trial, attempt and charge {key}, not {paid}: nothing goes on."
            )
        if steps.scored:
            raise ContractBroken(f"{attempt} was scored, so it does not go on.")
        steps._require_room(header.steps - header.step, "missing")
        return steps

    def read_checkpoint(self) -> tuple[Header, bytes]:
        """The checkpoint that the log knows; raises `ContractBroken` if it is not there."""
        stored = None if self.header is None else read_checkpoint_file(self.place.files, self.attempt)
        if stored is None or stored[0] != self.header:
            raise ContractBroken(f"Attempt {self.attempt} has no checkpoint in {self.place.files}.")
        return stored

    @property
    def spent(self) -> int:
        """The number of steps that count as taken: all that ran, and perhaps more."""
        return self.marked if self.header is None else self.header.spent + self.marked - self.header.marked

    def take(self, steps: int) -> StepLog:
        """Writes a mark for steps that are about to run; raises `ContractBroken` if they may not run."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored, so no further step of it runs.")
        self._require_room(steps, "to come")
        self._append_line(f"{steps} {self.marked + steps}\n")
        return replace(self, marked=self.marked + steps)

    def score(self) -> StepLog:
        """Writes a mark before a private score is measured; afterwards the attempt is never resumed."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored before; a second score needs a second charge.")
        self._append_line(f"score {self.marked}\n")
        return replace(self, scored=True)

    def _require_room(self, steps: int, what: str) -> None:
        if self.spent + steps > self.priced:
            taken = f"{self.spent} steps taken and {steps} {what}"
            raise ContractBroken(f"Expected {taken} to be at most the {self.priced} priced ones: nothing more runs.")

    def _append_line(self, line: str) -> None:
        """Refuses a line after others than this process has seen: of two processes at one attempt one goes on."""
        path = self.place.record / f"steps-{self.attempt}"
        with turn_file_errors_into_refusal(ContractBroken, f"Nothing runs that was not marked in {path} before"):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(folder, fcntl.LOCK_EX)
                if self.marked and read_marks(path.parent, self.attempt)[:2] != (self.marked, False):
                    raise ContractBroken(f"Attempt {self.attempt} goes on in another process: nothing more runs here.")
                append_bytes(path, line.encode(), create=not self.marked)
                if not self.marked:
                    flush_folder(path.parent)
            finally:
                os.close(folder)


def read_marks(record: Path, attempt: int) -> tuple[int, bool, int]:
    """The number of marked steps, whether a score is marked, and the number of marked stretches; refuses damage."""
    path = record / f"steps-{attempt}"
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0, False, 0
    except OSError as cause:
        raise ContractBroken(f"Expected {path} to be readable, got {cause!r}.") from cause
    marked, scored = 0, False
    for number, line in enumerate(lines, start=1):
        mark = _MARK.fullmatch(line)
        if mark is not None:
            marked += 0 if mark[1] == b"score" else int(mark[1])
        if mark is None or scored or int(mark[2]) != marked:
            raise ContractBroken(f"Expected line {number} of {path} to be a mark that follows from those before it.")
        scored = mark[1] == b"score"
    return marked, scored, len(lines) - scored
