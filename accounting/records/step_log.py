"""How many steps an attempt has taken and may still take, by files that outlive a crash at any instant.

Before a stretch of steps runs, a mark says how many; before a private score is measured, a mark says so. A checkpoint
sums up: it knows how many steps had really run by then. Marks lie in the private store, checkpoints in the sweep
folder. What always holds:

* Spent is the checkpoint's own count and all that was marked since; without a checkpoint, all that was ever marked. It
  is never less than what ran, since a mark lies on the disk before its stretch begins. A stop at the user's wish ends
  with a checkpoint and wastes nothing; a killed process wastes its whole stretch, however little of it had run.
* A checkpoint that was restored from an older copy of the folder counts all steps that were marked since: those that it
  lost are spent.
* What would lead beyond the priced steps is refused before it runs, and so is what cannot be marked.
* A checkpoint is one of this plan, trial, attempt and charge, and whole, or it is none. Damage never makes an attempt
  cheaper: it makes it a killed one, all of whose priced steps count as taken. One thing does not show: a last mark that
  somebody took away to its full length, which no crash does.

The marks tell when and how often a process died, which may depend on the records (memory for a large batch, say) and
is covered by no price: they are the curator's, like all of the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.events.build import DpEvent, flatten, steps_of
from dpsweep.accounting.json_files import digest, flush_folder, write_json
from dpsweep.accounting.ledger.private_store import PRIVATE, TrialPlace, made_folder
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.numbers import whole
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.validation import DAMAGE, in_short, text

_MARK = re.compile(r"([1-9][0-9]{0,17}|score) ([0-9]{1,18})\n")
"""What is about to run, and how many steps were marked in all, so that a line that is gone or changed shows."""

_TENSORS = re.compile(r"weights-[\w.-]+")
"""The name of a file of tensors, which is in no other folder than its header."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a checkpoint says about itself: whose it is, how far it had come, and the digest of its tensors.

    The weights have `step` of `steps` behind them. By then `spent` steps had run in all sessions of the attempt, those
    that were lost counted at the full length of their stretch, and `marked` were the sum of its marks.
    """

    plan: str
    trial: str
    attempt: int
    charge: str
    step: int
    steps: int
    spent: int
    marked: int
    tensors: str
    sha256: str

    def __post_init__(self) -> None:
        for name in ("attempt", "step", "steps", "spent", "marked"):
            whole(name, getattr(self, name))
        if not _TENSORS.fullmatch(text("tensors", self.tensors)):
            raise ValueError(f"Expected tensors={self.tensors!r} to be the name of a file beside the checkpoint.")

    def write(self, place: Path) -> None:
        """Puts the header in the place of the one before it, for its owner alone."""
        form = asdict(self)
        write_json(_header(place, self.attempt), form | {"digest": digest(form)}, mode=0o600)

    @classmethod
    def read(cls, place: Path, attempt: int) -> Header | None:
        """The header of an attempt's checkpoint, None where there is none; a damaged one is `ContractBroken`."""
        path = _header(place, attempt)
        try:
            form = json.loads(path.read_text())
            known = form.pop("digest")
            header = cls(**form)
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGE) as cause:
            raise ContractBroken(f"Expected {path} to be whole and readable, got {in_short(cause)}.") from cause
        if known != digest(form):
            raise ContractBroken(f"Expected {path} to be as it was written: its digest is another.")
        return header

    def content(self, place: Path) -> bytes:
        """The file of the checkpoint's tensors, unless it is not the one that was written."""
        path = place / self.tensors
        try:
            content = path.read_bytes()
        except OSError as cause:
            raise ContractBroken(f"Expected {path} to be readable: {cause.strerror}.") from cause
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ContractBroken(f"Expected {path} to be as it was written: its SHA-256 is another.")
        return content


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """The steps of one attempt at a trial: how many were priced and marked, and what its checkpoint sums up."""

    place: TrialPlace
    attempt: int
    priced: int
    marked: int = 0
    scored: bool = False
    header: Header | None = None

    @classmethod
    def begin(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """Those of an attempt that begins: none so far. An attempt that began before is refused at its first mark."""
        return cls(place=place, attempt=attempt, priced=steps_priced(trial))

    @classmethod
    def read(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """Those of an attempt by its files; `ContractBroken` where these are damaged or contradict each other."""
        marked, scored = _read_marks(_marks(place.record, attempt))
        header = Header.read(place.files, attempt)
        if header is not None and not header.step <= header.spent <= header.marked <= marked:
            raise ContractBroken(
                f"Expected the checkpoint of attempt {attempt} in {place.files} to count no more than was marked."
            )
        return replace(cls.begin(place, trial, attempt), marked=marked, scored=scored, header=header)

    @property
    def spent(self) -> int:
        """How many steps count as taken: all that ran, and perhaps more."""
        return self.marked if self.header is None else self.header.spent + self.marked - self.header.marked

    def mark(self, steps: int) -> StepLog:
        """Writes down that so many steps are about to run; raises `ContractBroken` where they may not."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored, so no further step of it runs.")
        if self.spent + steps > self.priced:
            raise ContractBroken(
                f"Expected {self.spent} steps taken and {steps} to come to be at most the {self.priced} priced ones: "
                "nothing more runs."
            )
        self._append(f"{steps} {self.marked + steps}\n")
        return replace(self, marked=self.marked + steps)

    def mark_score(self) -> StepLog:
        """Writes down that a private score is about to be measured, after which the attempt never goes on."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored before; another score is another charge.")
        self._append(f"score {self.marked}\n")
        return replace(self, scored=True)

    def _append(self, line: str) -> None:
        """Adds a line that is on the disk when this returns; an attempt's first one makes the file."""
        path = _marks(self.place.record, self.attempt)
        first = not self.marked
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT | os.O_EXCL if first else 0), PRIVATE)
            try:
                written = os.write(handle, line.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            if first:
                flush_folder(self.place.record)
        except OSError as cause:
            raise ContractBroken(f"Nothing runs that was not marked in {path} before: {cause.strerror}.") from cause
        if written != len(line):
            raise ContractBroken(f"Nothing runs that was not marked in {path} before: no space left.")


def steps_priced(trial: Trial) -> int:
    """How many steps of training a trial's charge covers."""
    return steps_of(trial.event.training)


def is_charged(realised: DpEvent, declared: DpEvent, *, least: int) -> bool:
    """Whether what ran is `least` or more steps, and nothing that was not declared.

    A run takes all of its steps and, of those that were charged for lost ones, as many as were lost. A part of what was
    declared costs no more than all of it.
    """
    allowed, ran = dict(flatten(declared)), dict(flatten(realised))
    return steps_of(realised) >= least and all(count <= allowed.get(leaf, 0) for leaf, count in ran.items())


def steps_spent(place: TrialPlace, trial: Trial, attempt: int) -> int:
    """How many of its priced steps an attempt has taken, lost ones included: never less than what ran.

    All of them where its files are damaged.
    """
    try:
        return StepLog.read(place, trial, attempt).spent
    except ContractBroken:
        return steps_priced(trial)


def stretches(record: Path, attempt: int) -> int:
    """How many stretches of an attempt were marked, whatever became of them; raises where its marks are damaged."""
    path = _marks(record, attempt)
    _read_marks(path)
    return sum(not line.startswith("score") for line in path.read_text("ascii").splitlines()) if path.exists() else 0


def go_on(place: TrialPlace, trial: Trial, receipt: Receipt) -> StepLog:
    """The steps of an attempt that goes on from its checkpoint, or one sentence that says why it may not."""
    steps = StepLog.read(place, trial, receipt.attempt)
    header = steps.header
    if header is None:
        raise ContractBroken(f"Attempt {receipt.attempt} at trial {trial.id} has no checkpoint to go on from.")
    if _whose(header) != _whose(receipt) or header.trial != trial.id:
        raise NoReceipt(
            f"The checkpoint is one of {_named(header)}, not of {_named(receipt)}, which the receipt is for: "
            "nothing goes on."
        )
    if steps.scored:
        raise ContractBroken(f"Attempt {receipt.attempt} at trial {trial.id} was scored, so it does not go on.")
    missing = header.steps - header.step
    if steps.spent + missing > steps.priced:
        raise ContractBroken(
            f"Expected {steps.spent} steps taken and {missing} missing to be at most the {steps.priced} priced ones: "
            f"attempt {receipt.attempt} at trial {trial.id} does not go on."
        )
    header.content(place.files)
    return steps


def can_resume(place: TrialPlace, trial: Trial, attempt: int) -> bool:
    """Whether an interrupted attempt may go on on the charge that it has: by its files alone, damage counts as no.

    False too where the receipt in the folder is one for another attempt, for one that was scored, and for one that has
    lost more steps than were priced.
    """
    try:
        receipt = Receipt.read(place.files)
        if receipt is None or receipt.attempt != attempt:
            return False
        go_on(place, trial, receipt)
    except (ContractBroken, OSError):
        return False
    return True


def void_marks(record: Path, attempt: int) -> None:
    """Marks an attempt as scored where that was not marked, so that it never goes on."""
    path = _marks(record, attempt)
    try:
        marked, scored = _read_marks(path)
    except ContractBroken:
        return
    if scored:
        return
    made_folder(record)
    with path.open("a") as stream:
        stream.write(f"score {marked}\n")
    path.chmod(PRIVATE)


def adopt_marks(files: Path, record: Path) -> None:
    """Takes over the claims and marks of a trial that an earlier version kept in the sweep folder."""
    for path in sorted((*files.glob("claim-*"), *files.glob("steps-*"))):
        made_folder(record)
        target = record / path.name
        if not target.exists():
            target.write_bytes(path.read_bytes())
            target.chmod(PRIVATE)


def forget_checkpoints(place: Path) -> None:
    """Removes a trial's checkpoints, once it has a result; its marks stay."""
    for header in place.glob("checkpoint-*.json"):
        header.unlink(missing_ok=True)
    remove_tensors(place)


def remove_tensors(place: Path, but: str | None = None) -> None:
    """Removes the files of a trial's checkpoints but one, whole or not."""
    for path in place.glob("weights-*"):
        if path.name != but:
            path.unlink(missing_ok=True)


def _whose(paper: Header | Receipt) -> tuple[Any, ...]:
    return paper.plan, paper.trial, paper.attempt, paper.charge


def _named(paper: Header | Receipt) -> str:
    return f"plan {paper.plan}, trial {paper.trial}, attempt {paper.attempt}, charge {paper.charge[:12]}"


def _read_marks(path: Path) -> tuple[int, bool]:
    """How many steps were marked, and whether a score was; a torn last line is damage like any other."""
    try:
        lines = path.read_text("ascii").splitlines(keepends=True)
    except FileNotFoundError:
        return 0, False
    except (OSError, UnicodeDecodeError) as cause:
        raise ContractBroken(f"Expected {path} to be readable, got {cause!r}.") from cause
    marked, scored = 0, False
    for number, line in enumerate(lines, start=1):
        mark = _MARK.fullmatch(line)
        if mark is not None:
            marked += 0 if mark[1] == "score" else int(mark[1])
        if mark is None or scored or int(mark[2]) != marked:
            raise ContractBroken(f"Expected line {number} of {path} to be a mark that follows from those before it.")
        scored = mark[1] == "score"
    return marked, scored


def _marks(place: Path, attempt: int) -> Path:
    return place / f"steps-{attempt}"


def _header(place: Path, attempt: int) -> Path:
    return place / f"checkpoint-{attempt}.json"
