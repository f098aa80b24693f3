"""The step log of an attempt: the number of steps taken and left, in files that survive a crash at any instant.

Before a stretch of steps (those between two checkpoints) runs, a mark with their number is written; before a private
score is measured, a score mark is written. A checkpoint holds the number of steps that had really run. Marks are in the
private store, checkpoints in the sweep folder. Invariants:

* The spent steps are the checkpoint's count plus all steps marked since; without a checkpoint, all marked steps. They
  are never fewer than the steps that ran, since a mark is on the disk before its stretch begins. A stop by the user
  ends with a checkpoint and wastes no step; a killed process wastes its whole stretch, even if few steps of it ran.
* For a checkpoint from an older copy of the folder, all steps marked since count as spent, although they are lost.
* Steps beyond the priced ones are refused before they run, and so are steps that cannot be marked.
* A checkpoint is used only if it is undamaged and of this plan, trial, attempt and charge. Damage never makes an
  attempt cheaper: the attempt counts as killed, with all its priced steps taken. One change is not detected: the
  removal of a complete last mark, which no crash causes.

The marks show when and how often a process died. This may depend on the records (for example through memory for a large
batch), and no price covers it: only the curator may read the marks, like the rest of the store.
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

from dpsweep.accounting.codec import Count, Stored
from dpsweep.accounting.durable_files import (
    append_bytes,
    flush_folder,
    make_private_folder_durably,
    write_bytes,
)
from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.events.build import DpEvent, leaves_with_counts, number_of_steps
from dpsweep.accounting.ledger.private_store import TrialPlace
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.validation import DAMAGE, exception_as_short_line, turn_file_errors_into_refusal

_MARK = re.compile(rb"([1-9][0-9]{0,17}|score) ([0-9]{1,18})\n")
"""A mark: the steps about to run, and the sum of all marked steps, which reveals a lost or changed line."""


@dataclass(frozen=True, kw_only=True)
class Header(Stored):
    """The metadata of a checkpoint: its attempt and its progress.

    The weights are those after `step` of `steps` steps. At that time the sessions of the attempt had spent `spent`
    steps, with lost ones counted at the full length of their stretch, and `marked` was the sum of the marks.
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
        write_bytes(_checkpoint_path(files, self.attempt), content, mode=0o600)


def read_checkpoint_file(files: Path, attempt: int) -> tuple[Header, bytes] | None:
    """The header and the state of an attempt's checkpoint, None if there is none.

    Raises `ContractBroken` unless the file is as it was written: its first line is a digest of the others.
    """
    path = _checkpoint_path(files, attempt)
    try:
        digest, header, state = path.read_bytes().split(b"\n", 2)
        if _checkpoint_digest(header, state) != digest:
            raise ValueError("its SHA-256 is another")
        return Header.from_json(json.loads(header)), state
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGE) as cause:
        raise ContractBroken(f"Expected {path} to be as it was written: {exception_as_short_line(cause)}.") from cause


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
    def empty_for_attempt(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """The empty log of an attempt that begins. An attempt that began earlier is refused at its first mark."""
        return cls(place=place, attempt=attempt, priced=number_of_priced_steps(trial))

    @classmethod
    def read_for_attempt(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """The log of an attempt from its files; raises `ContractBroken` if they are damaged or inconsistent."""
        marked, scored, _ = _read_marks(_marks_path(place.record, attempt))
        stored = read_checkpoint_file(place.files, attempt)
        header = None if stored is None else stored[0]
        if header is not None and not header.step <= header.spent <= header.marked <= marked:
            raise ContractBroken(f"Expected the checkpoint in {place.files} to count no more than was marked.")
        return replace(cls.empty_for_attempt(place, trial, attempt), marked=marked, scored=scored, header=header)

    def read_checkpoint(self) -> tuple[Header, bytes]:
        """The header and the state of the checkpoint that the log knows; raises `ContractBroken` if it is not there."""
        stored = None if self.header is None else read_checkpoint_file(self.place.files, self.attempt)
        if stored is None or stored[0] != self.header:
            raise ContractBroken(f"Attempt {self.attempt} has no checkpoint in {self.place.files}.")
        return stored

    @property
    def number_of_spent_steps(self) -> int:
        """The number of steps that count as taken: all that ran, and perhaps more."""
        return self.marked if self.header is None else self.header.spent + self.marked - self.header.marked

    def mark_steps_before_run(self, steps: int) -> StepLog:
        """Writes a mark for steps that are about to run; raises `ContractBroken` if they may not run."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored, so no further step of it runs.")
        if self.number_of_spent_steps + steps > self.priced:
            taken = f"{self.number_of_spent_steps} steps taken and {steps} to come"
            raise ContractBroken(f"Expected {taken} to be at most the {self.priced} priced ones: nothing more runs.")
        self._append_line(f"{steps} {self.marked + steps}\n")
        return replace(self, marked=self.marked + steps)

    def mark_score_before_measuring(self) -> StepLog:
        """Writes a mark before a private score is measured; afterwards the attempt is never resumed."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored before; a second score needs a second charge.")
        self._append_line(f"score {self.marked}\n")
        return replace(self, scored=True)

    def _append_line(self, line: str) -> None:
        """Appends a line and flushes it to the disk; an attempt's first line creates the file.

        It follows the line that this process has seen, under a lock: of two processes at one attempt one goes on.
        """
        path = _marks_path(self.place.record, self.attempt)
        with turn_file_errors_into_refusal(ContractBroken, f"Nothing runs that was not marked in {path} before"):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(folder, fcntl.LOCK_EX)
                if self.marked and _read_marks(path)[:2] != (self.marked, False):
                    raise ContractBroken(f"Attempt {self.attempt} goes on in another process: nothing more runs here.")
                append_bytes(path, line.encode(), create=not self.marked)
                if not self.marked:
                    flush_folder(path.parent)
            finally:
                os.close(folder)


def number_of_priced_steps(trial: Trial) -> int:
    """The number of training steps that a trial's charge covers."""
    return number_of_steps(trial.event.training)


def has_enough_and_only_declared_steps(realised: DpEvent, declared: DpEvent, *, least: int) -> bool:
    """Whether the run took at least `least` steps, and all of its steps were declared.

    A run takes all of its steps, and as many of the spare steps as it lost. A part of the declared steps costs no more
    than all of them.
    """
    allowed, ran = dict(leaves_with_counts(declared)), dict(leaves_with_counts(realised))
    return number_of_steps(realised) >= least and all(count <= allowed.get(leaf, 0) for leaf, count in ran.items())


def steps_spent_by_attempt(place: TrialPlace, trial: Trial, attempt: int) -> int:
    """The number of priced steps that an attempt has spent, lost ones included: never fewer than ran.

    It is the number of all priced steps if the files are damaged.
    """
    try:
        return StepLog.read_for_attempt(place, trial, attempt).number_of_spent_steps
    except ContractBroken:
        return number_of_priced_steps(trial)


def count_marked_stretches_of_steps(record: Path, attempt: int) -> int:
    """The number of marked stretches of an attempt, completed or not; raises `ContractBroken` for damaged marks."""
    return _read_marks(_marks_path(record, attempt))[2]


def resume_step_log(place: TrialPlace, trial: Trial, receipt: Receipt) -> StepLog:
    """The step log of an attempt that resumes from its checkpoint; raises an error if it may not resume."""
    steps = StepLog.read_for_attempt(place, trial, receipt.attempt)
    header = steps.header
    if header is None:
        raise ContractBroken(f"Attempt {receipt.attempt} at trial {trial.id} has no checkpoint to go on from.")
    key, paid = ((one.plan, one.trial, one.attempt, one.charge) for one in (header, receipt))
    if key != paid or header.trial != trial.id:
        raise NoReceipt(f"The checkpoint is one of plan, trial, attempt and charge {key}, not {paid}: nothing goes on.")
    if steps.scored:
        raise ContractBroken(f"Attempt {receipt.attempt} at trial {trial.id} was scored, so it does not go on.")
    missing = header.steps - header.step
    if steps.number_of_spent_steps + missing > steps.priced:
        taken = f"{steps.number_of_spent_steps} steps taken and {missing} missing"
        raise ContractBroken(f"Expected {taken} to be at most the {steps.priced} priced ones: trial {trial.id} ends.")
    return steps


def can_attempt_resume(place: TrialPlace, trial: Trial, attempt: int) -> bool:
    """Whether an interrupted attempt may resume on its charge, judged by its files alone; False if they are damaged.

    Also False if the folder's receipt is for another attempt, if the attempt was scored, or if it has lost more steps
    than were priced.
    """
    try:
        receipt = Receipt.read(place.files)
        if receipt is None or receipt.attempt != attempt:
            return False
        resume_step_log(place, trial, receipt)
    except (ContractBroken, OSError):
        return False
    return True


def forbid_resuming_attempt(record: Path, attempt: int) -> None:
    """Marks an attempt as scored, if it is not marked yet, so that it is never resumed."""
    path = _marks_path(record, attempt)
    with suppress(ContractBroken):
        marked, scored, _ = _read_marks(path)
        if not scored:
            make_private_folder_durably(record)
            append_bytes(path, f"score {marked}\n".encode(), create=not path.exists())


def remove_checkpoints(place: Path) -> None:
    """Removes a trial's checkpoints after it has a result; its marks stay."""
    for path in place.glob("checkpoint-*"):
        path.unlink(missing_ok=True)


def _read_marks(path: Path) -> tuple[int, bool, int]:
    """The number of marked steps, whether a score is marked, and the number of marked stretches.

    Raises `ContractBroken` for damaged marks; an incomplete last line counts as damage.
    """
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


def _marks_path(place: Path, attempt: int) -> Path:
    return place / f"steps-{attempt}"


def _checkpoint_path(place: Path, attempt: int) -> Path:
    return place / f"checkpoint-{attempt}"


def _checkpoint_digest(header: bytes, state: bytes) -> bytes:
    return hashlib.sha256(header + hashlib.sha256(state).digest()).hexdigest().encode()
