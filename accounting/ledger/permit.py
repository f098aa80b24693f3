"""What a claim allows: the receipt of one session of an attempt, claimed once, and the steps that the session takes.

A sweep folder can be deleted, copied and restored, so it is only a record. The ledger cannot be, but several people
read it, and it must not reveal the number of hidden tries. So the ledger and a plan's private store, where nothing is
removed, decide together what may train. Invariants:

* A receipt is written after the charge was committed, and claimed by exclusive creation of a file, in the sweep folder
  and then in the store: a second use is refused, in a copy of the folder and on another machine that shares the store.
* Each launch has a nonce, in the ledger and in the store. Receipts of earlier launches are void. A store that lacks the
  ledger's last nonce is lost or was restored, and no attempt resumes from it.
* A session is the only way to private records (`trainers/data/doors.py`), and only a claim makes one: of a receipt, or
  of a sealed part for a card (`accounting/records/card.py`).
* A mark is on the disk before its stretch of steps (those between two checkpoints) runs, or before a private score is
  measured. The spent steps are the checkpoint's count and all steps marked since, never fewer than ran.
* Damage never makes an attempt cheaper: it counts as killed, with all its priced steps taken. One change is not
  detected: the removal of a complete last mark, which no crash causes.

The marks show when a process died. This may depend on the records (by the memory of a large batch), and no price covers
it: only the curator may read the store. A curator who forges receipts is outside the threat model.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting import durable_files, errors
from dpsweep.accounting.chain.hash_chain import End, Entry
from dpsweep.accounting.codec import Count, Stored, parse_json_file_or_none, require_text
from dpsweep.accounting.errors import ContractBroken, NoReceipt
from dpsweep.accounting.events.types import DpEvent, NoOpDpEvent, PlanEvent, leaves_with_counts
from dpsweep.accounting.ledger.book import Resumed, Started, read_body
from dpsweep.accounting.ledger.charges import digest_of_declared_events

if TYPE_CHECKING:
    from dpsweep.accounting.records.plan import Trial
    from dpsweep.accounting.records.sweep_folder import TrialPlace

LAUNCH_FILE, RECEIPT_FILE = "launch.json", "receipt.json"
HOME_VARIABLE = "DPSWEEP_PRIVATE"  # names the folder of private stores
_MARK = re.compile(rb"([1-9][0-9]{0,17}|score) ([0-9]{1,18})\n")  # the steps about to run, the sum of all marked ones


@dataclass(frozen=True, kw_only=True)
class PrivateStore:
    """The starts and ends of one plan's attempts; `root` is a folder that only its owner can read."""

    root: Path

    def trial_record_folder(self, trial: str) -> Path:
        """The folder of a trial's claims and step marks."""
        return self.root / "trials" / trial

    def nonces(self) -> dict[str, str]:
        """The `nonce` of the valid launch; within a launch also its own, `next`, and the ledger's `last` one."""
        path = self.root / LAUNCH_FILE
        return parse_json_file_or_none(path, lambda form: {k: require_text(k, text) for k, text in form.items()}) or {}

    def has_launch_nonce(self, nonce: str | None) -> bool:
        """Whether the store knows the ledger's last launch; None means that there was none."""
        return nonce is None or nonce in self.nonces().values()

    def is_current_launch(self, nonce: str) -> bool:
        """Whether a receipt of the launch with this nonce is valid."""
        return bool(nonce) and self.nonces().get("nonce") == nonce

    def announce_launch(self, nonce: str, *, last: str | None) -> None:
        """Stores a launch's nonce before the ledger records it: its receipts are not valid yet, and `last` stays."""
        durable_files.make_private_folder_durably(self.root)
        known = self.nonces()
        kept = {"last": last} if last is not None and last in known.values() else {}
        durable_files.write_json(self.root / LAUNCH_FILE, {**known, **kept, "next": nonce}, mode=durable_files.PRIVATE)

    def confirm_launch(self, nonce: str) -> None:
        """Makes receipts of this launch valid, and receipts of all other launches void."""
        durable_files.write_json(self.root / LAUNCH_FILE, {"nonce": nonce}, mode=durable_files.PRIVATE)


@dataclass(frozen=True, kw_only=True)
class Receipt(Stored):
    """One session of an attempt, the n-th `resume` of it or 0, and the digest of the entry that charged it.

    `entries` and `head` are the chain's end at its start, `launch` the nonce of the launch that handed the receipt out,
    `accesses` the digest of the events that the start declared.
    """

    account: str
    plan: str
    trial: str
    attempt: Count
    charge: str
    entries: Count
    head: str
    resume: Count = 0
    launch: str = ""
    accesses: str = ""

    @classmethod
    def from_entry(cls, entry: Entry, start: Started) -> Receipt:
        """The receipt for the ledger's entry of a start, or of a resume of an attempt that began by `start`."""
        body = read_body(entry)
        resume = body.resume if isinstance(body, Resumed) else 0
        end = End(entries=entry.seq, head=entry.digest)
        return cls(account=entry.account, plan=entry.plan, resume=resume, **asdict(end), **asdict(start))

    def write(self, folder: Path) -> None:
        """Writes the receipt into the trial's folder."""
        durable_files.write_json(folder / RECEIPT_FILE, self.to_json(), indent=None)

    @classmethod
    def read(cls, folder: Path) -> Receipt | None:
        """The receipt in a trial's folder, claimed or not, None if there is none; raises `NoReceipt` if damaged."""
        return parse_json_file_or_none(folder / RECEIPT_FILE, cls.from_json, NoReceipt)

    @classmethod
    def claim(cls, files: Path, store: PrivateStore, *, plan: str, trial: str) -> Receipt:
        """Takes the receipt in the trial's folder for this process, once and for ever; else raises `NoReceipt`."""
        receipt = cls.read(files)
        if receipt is None:
            raise NoReceipt(f"Trial {trial} holds no receipt of a charge, so it does not train; start it by a sweep.")
        if (receipt.plan, receipt.trial) != (plan, trial):
            raise NoReceipt(f"The receipt is for trial {receipt.trial}, plan {receipt.plan}: nothing trains.")
        if not store.root.is_dir():
            raise NoReceipt(
                f"Expected the private store {store.root} to be there: without it nothing trains. {HOME_VARIABLE} "
                "names the folder of private stores, which all machines of a sweep share."
            )
        if not store.is_current_launch(receipt.launch):
            raise NoReceipt(
                f"The receipt of attempt {receipt.attempt} at trial {trial} is void: the sweep was launched again "
                "since, in this folder or in a copy of it. The same command issues a new receipt where one is due."
            )
        durable_files.make_private_folder_durably(record := store.trial_record_folder(trial))
        for folder in (files, record):
            try:
                path = claim_path(folder, receipt.attempt, receipt.resume)
                durable_files.append_bytes(path, receipt.launch.encode(), create=True)
            except FileExistsError:
                raise errors.ReceiptUsed(f"Attempt {receipt.attempt} at trial {trial} was already used.") from None
            durable_files.flush_folder(folder)
        return receipt


def claim_path(folder: Path, attempt: int, resume: int = 0) -> Path:
    """The file that whoever claims a session creates, in the trial's folder and in its record."""
    return folder / (f"claim-{attempt}-{resume}" if resume else f"claim-{attempt}")


@dataclass(frozen=True, kw_only=True)
class Session:
    """The right to make the accesses of `event` once; `receipt` is the claimed one, None for a sealed part."""

    event: PlanEvent
    receipt: Receipt | None = None

    @classmethod
    def claim(
        cls, files: Path, store: PrivateStore, *, plan: str, trial: str, event: PlanEvent, declared: Sequence[PlanEvent]
    ) -> Session:
        """As `Receipt.claim`: `event` is that of this run, among those `declared` at its start, which were charged."""
        receipt = Receipt.read(files)
        final = PlanEvent(training=NoOpDpEvent(), final=event)
        known = any(one in (event, final) or event in (replace(one, final=None), one.final) for one in declared)
        if receipt is not None and (not known or receipt.accesses != digest_of_declared_events(declared)):
            raise NoReceipt(f"The receipt of trial {trial} is for other accesses than its plan has: nothing trains.")
        return cls(event=event, receipt=Receipt.claim(files, store, plan=plan, trial=trial))

    def require_declared(self, run: PlanEvent) -> None:
        """Raises `ContractBroken` unless each access of a run that is about to begin was declared and charged."""
        declared = self.event.events_by_population
        for name, part in run.events_by_population.items():
            if not is_declared(part, declared.get(name, NoOpDpEvent())):
                raise ContractBroken(f"The run differs from its charge: it would make {part}, declared {self.event}.")


def is_declared(run: DpEvent, declared: DpEvent) -> bool:
    """Whether a run makes declared accesses alone: a part of them costs no more than all of them."""
    allowed = dict(leaves_with_counts(declared))
    return all(count <= allowed.get(leaf, 0) for leaf, count in leaves_with_counts(run))


@dataclass(frozen=True, kw_only=True)
class Header(Stored):
    """A checkpoint after `step` of `steps` steps: until then `spent` steps were spent, lost ones too, and `marked`."""

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
        durable_files.write_bytes(files / f"checkpoint-{self.attempt}", content, durable_files.PRIVATE)


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
    except (OSError, *errors.DAMAGE) as cause:
        raise ContractBroken(
            f"Expected {path} to be as it was written: {errors.exception_as_short_line(cause)}."
        ) from cause


def _checkpoint_digest(header: bytes, state: bytes) -> bytes:
    return hashlib.sha256(header + hashlib.sha256(state).digest()).hexdigest().encode()


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """The steps of one attempt; an empty log of one that began earlier is refused at its first mark."""

    place: TrialPlace
    attempt: int
    priced: int
    marked: int = 0
    scored: bool = False
    header: Header | None = None

    @classmethod
    def read(cls, place: TrialPlace, trial: Trial, attempt: int) -> StepLog:
        """The log in an attempt's files; raises `ContractBroken` if they are damaged or inconsistent."""
        marked, scored, _ = read_marks(place.record, attempt)
        stored = read_checkpoint_file(place.files, attempt)
        header = None if stored is None else stored[0]
        if header is not None and not header.step <= header.spent <= header.marked <= marked:
            raise ContractBroken(f"Expected the checkpoint in {place.files} to count no more than was marked.")
        return cls(place=place, attempt=attempt, priced=trial.priced_steps, marked=marked, scored=scored, header=header)

    @classmethod
    def resume(cls, place: TrialPlace, trial: Trial, receipt: Receipt) -> StepLog:
        """The log of an attempt that resumes from its checkpoint; raises an error if it may not resume."""
        log = cls.read(place, trial, receipt.attempt)
        header, attempt = log.header, f"Attempt {receipt.attempt} at trial {trial.id}"
        if header is None:
            raise ContractBroken(f"{attempt} has no checkpoint to go on from.")
        key, paid = ((one.plan, one.trial, one.attempt, one.charge) for one in (header, receipt))
        if key != paid or header.trial != trial.id:
            raise NoReceipt(f"The checkpoint has plan, trial, attempt and charge {key}, not {paid}: nothing goes on.")
        if log.scored:
            raise ContractBroken(f"{attempt} was scored, so it does not go on.")
        log._require_room(header.steps - header.step, "missing")
        return log

    @property
    def spent(self) -> int:
        """The number of steps that count as taken: all that ran, and perhaps more."""
        return self.marked if self.header is None else self.header.spent + self.marked - self.header.marked

    def take(self, steps: int) -> StepLog:
        """Writes a mark for steps that are about to run; raises `ContractBroken` if they may not run."""
        self._require_room(steps, "to come")
        return self._mark(str(steps), replace(self, marked=self.marked + steps))

    def score(self) -> StepLog:
        """Writes a mark before a private score is measured; afterwards the attempt is never resumed."""
        return self._mark("score", replace(self, scored=True))

    def _require_room(self, steps: int, what: str) -> None:
        if self.spent + steps > self.priced:
            taken = f"{self.spent} steps taken and {steps} {what}"
            raise ContractBroken(f"Expected {taken} to be at most the {self.priced} priced ones: nothing more runs.")

    def _mark(self, what: str, after: StepLog) -> StepLog:
        """Refuses a mark after others than this process has seen: of two processes at one attempt one goes on."""
        if self.scored:
            raise ContractBroken(f"Attempt {self.attempt} was scored: it takes no step, and no second score.")
        path = self.place.record / f"steps-{self.attempt}"
        with errors.turn_file_errors_into_refusal(ContractBroken, f"Nothing runs that was not marked in {path} before"):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(folder, fcntl.LOCK_EX)
                if self.marked and read_marks(path.parent, self.attempt)[:2] != (self.marked, False):
                    raise ContractBroken(f"Attempt {self.attempt} goes on in another process: nothing more runs here.")
                durable_files.append_bytes(path, f"{what} {after.marked}\n".encode(), create=not self.marked)
                if not self.marked:
                    durable_files.flush_folder(path.parent)
            finally:
                os.close(folder)
        return after


def read_marks(record: Path, attempt: int) -> tuple[int, bool, int]:
    """The number of marked steps, whether a score is marked, and the number of marked stretches; refuses damage."""
    path = record / f"steps-{attempt}"
    marked, scored, lines = 0, False, list[bytes]()
    with errors.turn_file_errors_into_refusal(ContractBroken, f"{path} cannot be read"), suppress(FileNotFoundError):
        lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        mark = _MARK.fullmatch(line)
        if mark is not None:
            marked += 0 if mark[1] == b"score" else int(mark[1])
        if mark is None or scored or int(mark[2]) != marked:
            raise ContractBroken(f"Expected line {number} of {path} to be a mark that follows from those before it.")
        scored = mark[1] == b"score"
    return marked, scored, len(lines) - scored
