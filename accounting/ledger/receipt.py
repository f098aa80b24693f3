"""Who may train: the receipt of one session of an attempt, its claim in the private store, and what a claim allows.

A sweep folder can be deleted, copied and restored, so it is only a record. The ledger cannot be, but several people
read it, and under a rule that hides its losers it must not reveal the number of tries. So the ledger and a plan's
private store together decide which trials may still train. Invariants:

* A receipt is written after the charge was committed. A worker claims it by exclusive creation of a file, in the sweep
  folder and then in the store: a second use is refused, in a copy of the folder and on another machine that shares the
  store. A claim that the store has and the folder lacks comes from no crash: the folder is an older copy.
* Every launch of a coordinator has a nonce, in the ledger and in the store. A store that lacks the ledger's last nonce
  is lost or was restored, and no attempt resumes from it. Receipts of earlier launches are void; an attempt that was
  never claimed has touched no data, so its receipt may be handed out again.
* A session is the only way to private records (`trainers/data/doors.py`), and only a claim makes one: of a receipt, or
  of a sealed part for a card (`accounting/records/card.py`).

The program never removes anything in a store, and only the owner can read it. A job needs no ledger. A curator who
forges receipts is outside the threat model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.codec import Count, Stored, parse_json_file_or_none
from dpsweep.accounting.durable_files import append_bytes, flush_folder, make_private_folder_durably, write_json
from dpsweep.accounting.errors import ContractBroken, NoReceipt, ReceiptUsed
from dpsweep.accounting.events.types import DpEvent, NoOpDpEvent, PlanEvent, leaves_with_counts
from dpsweep.accounting.ledger.bodies import Resumed, Started, read_body
from dpsweep.accounting.ledger.paid_events import digest_of_declared_events
from dpsweep.accounting.validation import require_text

if TYPE_CHECKING:
    from dpsweep.accounting.ledger.ledger import Ledger

LAUNCH_FILE, RECEIPT_FILE, PRIVATE = "launch.json", "receipt.json", 0o600
HOME_VARIABLE = "DPSWEEP_PRIVATE"  # names the folder of private stores


@dataclass(frozen=True, kw_only=True)
class TrialPlace:
    """The two places of a trial: `files` in the sweep folder, the record, and `record` in the store, which decides."""

    files: Path
    record: Path

    @property
    def name(self) -> str:
        """The trial's id."""
        return self.files.name


@dataclass(frozen=True, kw_only=True)
class PrivateStore:
    """The starts and ends of one plan's attempts; `root` is a folder that only its owner can read."""

    root: Path

    @classmethod
    def for_plan(cls, ledger: Ledger, account: str, plan: str) -> PrivateStore:
        """The store of a plan on an account of this ledger, in a folder of the ledger's identity.

        It lies beside a ledger's file, or in the user's data directory, or in `DPSWEEP_PRIVATE`, which all machines of
        a sweep must share. Rehearsals have a folder of their own.
        """
        folder, identity = ledger.home or os.environ.get(HOME_VARIABLE), ledger.chain.identity()
        home = (
            Path(folder).expanduser().absolute() / identity
            if folder
            else ledger.folder_for_local_files / f"{identity}.private"
        )
        return cls(root=home / f"{account}-{plan}")

    def exists(self) -> bool:
        """Whether it is there."""
        return self.root.is_dir()

    def shared_folder(self, name: str) -> Path:
        """A folder beside the stores, for what all plans and ledgers of a user share."""
        return self.root.parents[1] / name

    def trial_record_folder(self, trial: str) -> Path:
        """The folder of a trial's claims and step marks."""
        return self.root / "trials" / trial

    def has_launch_nonce(self, nonce: str | None) -> bool:
        """Whether the store knows the ledger's last launch; None means that there was none."""
        return nonce is None or nonce in self._nonces().values()

    def is_nonce_of_current_launch(self, nonce: str) -> bool:
        """Whether a receipt of the launch with this nonce is valid."""
        return bool(nonce) and self._nonces().get("nonce") == nonce

    def announce_launch(self, nonce: str, *, last: str | None) -> None:
        """Stores the nonce of a launch before the ledger records it; receipts of the launch are not valid yet.

        The ledger's `last` nonce stays, also if a kill kept it from being confirmed.
        """
        make_private_folder_durably(self.root)
        known = self._nonces()
        kept = {"last": last} if last is not None and last in known.values() else {}
        write_json(self.root / LAUNCH_FILE, {**known, **kept, "next": nonce}, mode=PRIVATE)

    def confirm_launch(self, nonce: str) -> None:
        """Makes receipts of this launch valid, and receipts of all other launches void."""
        write_json(self.root / LAUNCH_FILE, {"nonce": nonce}, mode=PRIVATE)

    def _nonces(self) -> dict[str, str]:
        path = self.root / LAUNCH_FILE
        return parse_json_file_or_none(path, lambda form: {k: require_text(k, text) for k, text in form.items()}) or {}


@dataclass(frozen=True, kw_only=True)
class Receipt(Stored):
    """One attempt at one trial of one plan, the digest of the entry that charged it, and the chain's end at its start.

    `resume` is 0 for the first session, n for the n-th resume. `entries` and `head` are the chain's end at the start:
    a ledger that lost lines since is detected. `launch` is the nonce of the launch that handed the receipt out.
    `accesses` is the digest of the events that the start declared.
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
        return cls(
            account=entry.account,
            plan=entry.plan,
            trial=start.trial,
            attempt=start.attempt,
            resume=body.resume if isinstance(body, Resumed) else 0,
            charge=start.charge,
            accesses=start.accesses,
            entries=entry.seq,
            head=entry.digest,
        )

    def write(self, folder: Path) -> None:
        """Writes the receipt into the trial's folder."""
        write_json(folder / RECEIPT_FILE, self.to_json(), indent=None)

    @classmethod
    def read(cls, folder: Path) -> Receipt | None:
        """The receipt in a trial's folder, claimed or not, None if there is none; raises `NoReceipt` if damaged."""
        return parse_json_file_or_none(folder / RECEIPT_FILE, cls.from_json, NoReceipt)

    def is_claimed(self, place: TrialPlace) -> bool:
        """Whether a worker has claimed this session."""
        return any(is_session_claimed(one, self.attempt, self.resume) for one in (place.files, place.record))

    @classmethod
    def claim(cls, files: Path, store: PrivateStore, *, plan: str, trial: str) -> Receipt:
        """Takes the receipt in the trial's folder for this process, once and for ever; else raises `NoReceipt`."""
        receipt = cls.read(files)
        if receipt is None:
            raise NoReceipt(f"Trial {trial} holds no receipt of a charge, so it does not train; start it by a sweep.")
        if (receipt.plan, receipt.trial) != (plan, trial):
            raise NoReceipt(f"The receipt is for trial {receipt.trial}, plan {receipt.plan}: nothing trains.")
        if not store.exists():
            raise NoReceipt(
                f"Expected the private store {store.root} to be there: without it nothing trains. {HOME_VARIABLE} "
                "names the folder of private stores, which all machines of a sweep share."
            )
        if not store.is_nonce_of_current_launch(receipt.launch):
            raise NoReceipt(
                f"The receipt of attempt {receipt.attempt} at trial {trial} is void: the sweep was launched again "
                "since, in this folder or in a copy of it. The same command issues a new receipt where one is due."
            )
        make_private_folder_durably(record := store.trial_record_folder(trial))
        for folder in (files, record):
            try:
                append_bytes(claim_path(folder, receipt.attempt, receipt.resume), receipt.launch.encode(), create=True)
            except FileExistsError:
                raise ReceiptUsed(f"Attempt {receipt.attempt} at trial {trial} was already used.") from None
            flush_folder(folder)
        return receipt


@dataclass(frozen=True, kw_only=True)
class Session:
    """The right to make the accesses of `event` once; `receipt` is the claimed one, None for a sealed part."""

    event: PlanEvent
    receipt: Receipt | None = None

    @classmethod
    def claim(
        cls, files: Path, store: PrivateStore, *, plan: str, trial: str, event: PlanEvent, declared: Sequence[PlanEvent]
    ) -> Session:
        """Takes the receipt in the trial's folder, which must be for these events, as `Receipt.claim` does.

        `event` is that of this run, `declared` what its start declared, which the ledger compared with its charge.
        """
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


def is_session_claimed(folder: Path, attempt: int, resume: int = 0) -> bool:
    """Whether a worker has claimed this session, by the files in a trial's folder or record."""
    return claim_path(folder, attempt, resume).exists()


def claim_path(folder: Path, attempt: int, resume: int) -> Path:
    """The file that whoever claims a session creates."""
    return folder / (f"claim-{attempt}-{resume}" if resume else f"claim-{attempt}")
