"""The receipt that a job needs: one session of one attempt at one trial, written after the charge was committed.

A worker claims a receipt by creating a file exclusively, in the sweep folder and then in the private store; a second
use is refused, also in a copy of the folder and on another machine that shares the store. A receipt is valid for one
launch of the coordinator: handing it out again voids every other copy of the folder. An attempt that was launched but
never claimed has touched no data, so its receipt may be handed out again. An interrupted attempt may resume from its
checkpoint, on a new receipt with the next `resume`. A job needs the receipt and the store, and not the ledger.
A curator who forges receipts is outside the threat model.

A receipt also stores the length and the end of the ledger's chain at the attempt's start, so that a ledger that was cut
short or replaced since is detected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from dpsweep.accounting.chain.hash_chain import Entry
from dpsweep.accounting.codec import Count, Stored
from dpsweep.accounting.durable_files import (
    append_bytes,
    flush_folder,
    make_private_folder_durably,
    write_compact_json,
)
from dpsweep.accounting.errors import LedgerDamaged, NoReceipt, ReceiptUsed
from dpsweep.accounting.ledger.bodies import Resumed, Started, read_body
from dpsweep.accounting.ledger.private_store import PrivateStore, TrialPlace
from dpsweep.accounting.team_folder import mode_with_group
from dpsweep.accounting.validation import DAMAGE, exception_as_short_line

RECEIPT_FILE = "receipt.json"


@dataclass(frozen=True, kw_only=True)
class Receipt(Stored):
    """One attempt at one trial of one plan, the digest of the entry that charged it, and the chain's end at its start.

    `resume` is 0 for the first session, n for the n-th resume. `entries` and `head` are the number of entries in the
    ledger at the start, and the digest of the last of them. `launch` is the nonce of the coordinator's launch that
    handed the receipt out, empty before the first one. `accesses` is the digest of the events that the start declared.
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
        if not isinstance(body, (Started, Resumed)):
            raise LedgerDamaged(f"Expected entry {entry.seq} of the ledger to start an attempt, got {entry.kind}.")
        return cls(
            account=entry.account,
            plan=entry.plan,
            trial=body.trial,
            attempt=body.attempt,
            resume=body.resume if isinstance(body, Resumed) else 0,
            charge=start.charge,
            accesses=start.accesses,
            entries=entry.seq,
            head=entry.digest,
        )

    def write(self, folder: Path) -> None:
        """Writes the receipt into the trial's folder."""
        write_compact_json(folder / RECEIPT_FILE, self.to_json())

    @classmethod
    def claim_from_folder(cls, files: Path, store: PrivateStore, *, plan: str, trial: str) -> Receipt:
        """Takes the receipt in the trial's folder for this process, once and for ever.

        Raises `NoReceipt` if there is no receipt or no private store, and if the receipt is for another plan or trial,
        was used before, or is void because a later launch handed it out again.
        """
        receipt = cls.read(files)
        if receipt is None:
            raise NoReceipt(f"Trial {trial} holds no receipt of a charge, so it does not train; start it by a sweep.")
        if (receipt.plan, receipt.trial) != (plan, trial):
            raise NoReceipt(f"The receipt is for trial {receipt.trial}, plan {receipt.plan}: nothing trains.")
        if not store.exists():
            raise NoReceipt(
                f"Expected the private store {store.root} to be there: without it nothing trains. DPSWEEP_PRIVATE "
                "names the folder of private stores, which all machines of a sweep share."
            )
        if not store.is_nonce_of_current_launch(receipt.launch):
            raise NoReceipt(
                f"The receipt of attempt {receipt.attempt} at trial {trial} is void: the sweep was launched again "
                "since, in this folder or in a copy of it. The same command issues a new receipt where one is due."
            )
        place = TrialPlace(files=files, record=store.trial_record_folder(trial))
        make_private_folder_durably(place.record)
        for folder in (place.files, place.record):
            try:
                append_bytes(_claim_path(folder, receipt.attempt, receipt.resume), receipt.launch.encode(), create=True)
            except FileExistsError:
                raise ReceiptUsed(f"Attempt {receipt.attempt} at trial {trial} was already used.") from None
            flush_folder(folder)
        return receipt

    @classmethod
    def read(cls, folder: Path) -> Receipt | None:
        """The receipt in a trial's folder, claimed or not, None if there is none; raises `NoReceipt` if damaged."""
        try:
            return cls.from_json(json.loads((folder / RECEIPT_FILE).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGE) as cause:
            reason = exception_as_short_line(cause)
            raise NoReceipt(f"The receipt in {folder} is damaged, so nothing trains on it: {reason}.") from cause

    @staticmethod
    def is_session_claimed(folder: Path, attempt: int, resume: int = 0) -> bool:
        """Whether a worker has ever started this session of an attempt, by the claims in a trial's folder or record."""
        return _claim_path(folder, attempt, resume).exists()

    @classmethod
    def count_claimed_sessions(cls, place: TrialPlace, attempt: int) -> int:
        """The number of times that a worker started or resumed this attempt."""
        folders = (place.files, place.record)
        return next(n for n in count() if not any(cls.is_session_claimed(folder, attempt, n) for folder in folders))

    def is_claimed(self, place: TrialPlace) -> bool:
        """Whether a worker has claimed this session."""
        return any(self.is_session_claimed(one, self.attempt, self.resume) for one in (place.files, place.record))


def void_receipts_of_attempt(record: Path, attempt: int, resumes: int) -> None:
    """Claims all sessions of an attempt up to this resume, so that none of their receipts can be used."""
    make_private_folder_durably(record)
    for resume in range(resumes + 1):
        claim = _claim_path(record, attempt, resume)
        claim.touch(mode=mode_with_group(claim))
    flush_folder(record)


def _claim_path(folder: Path, attempt: int, resume: int) -> Path:
    return folder / (f"claim-{attempt}-{resume}" if resume else f"claim-{attempt}")
