"""The receipt that a job must hold: one attempt at one trial, written after the charge was committed.

A worker claims a receipt by creating a file exclusively; a second use is refused, also from another machine on a shared
folder. What was launched and never claimed has touched nothing, so its receipt may be used later. An attempt that was
interrupted may go on from its checkpoint, on a receipt of its own with the next `resume`. A job needs the receipt and
not the ledger. A curator who forges receipts is outside the threat model.

A receipt also says how long the ledger's chain was and how it ended when the attempt started, so that a ledger that was
cut short or replaced since is found out.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from accounting.errors import NoReceipt, ReceiptUsed
from accounting.plan import flush_folder, write_json
from accounting.reading import DAMAGE, text, whole

RECEIPT_FILE = "receipt.json"


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One attempt at one trial of one plan, the digest of the entry that charged it, and the chain's end at its start.

    `resume` is 0 where the attempt begins, n where it goes on for the n-th time. `entries` and `head` are the number of
    entries in the ledger when this one started, and the digest of the last of them.
    """

    account: str
    plan: str
    trial: str
    attempt: int
    charge: str
    entries: int
    head: str
    resume: int = 0

    def __post_init__(self) -> None:
        for name in ("account", "plan", "trial", "charge", "head"):
            text(name, getattr(self, name))
        for name in ("attempt", "entries", "resume"):
            whole(name, getattr(self, name))

    def write(self, folder: Path) -> None:
        """Puts the receipt into the trial's folder."""
        write_json(folder / RECEIPT_FILE, asdict(self))

    @classmethod
    def claim(cls, folder: Path, *, plan: str, trial: str) -> Receipt:
        """Takes the trial's receipt for this process, once and for ever.

        Raises `NoReceipt` where there is none, where it is for another plan or trial, or where it was used before.
        """
        receipt = cls.read(folder)
        if receipt is None:
            raise NoReceipt(f"Trial {trial} holds no receipt of a charge, so it does not train; start it by a sweep.")
        if (receipt.plan, receipt.trial) != (plan, trial):
            raise NoReceipt(
                f"The receipt is for plan {receipt.plan}, trial {receipt.trial}, not {plan}, {trial}: nothing trains."
            )
        try:
            claim = os.open(
                _claim(folder, receipt.attempt, receipt.resume), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
            )
        except FileExistsError:
            raise ReceiptUsed(
                f"Attempt {receipt.attempt} at trial {trial} was already used; another one is another charge."
            ) from None
        os.fsync(claim)
        os.close(claim)
        flush_folder(folder)
        return receipt

    @classmethod
    def read(cls, folder: Path) -> Receipt | None:
        """The receipt in a trial's folder, claimed or not, None where there is none; `NoReceipt` where damaged."""
        try:
            return cls(**json.loads((folder / RECEIPT_FILE).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGE) as cause:
            raise NoReceipt(f"The receipt in {folder} is damaged, so nothing trains on it: {cause}.") from cause

    @staticmethod
    def claimed(folder: Path, attempt: int) -> bool:
        """Whether a worker has ever begun this attempt."""
        return _claim(folder, attempt, 0).exists()

    @staticmethod
    def sessions(folder: Path, attempt: int) -> int:
        """How often a worker has begun this attempt or gone on with it."""
        count = 0
        while _claim(folder, attempt, count).exists():
            count += 1
        return count

    def used(self, folder: Path) -> bool:
        """Whether a worker has taken this very receipt."""
        return _claim(folder, self.attempt, self.resume).exists()


def _claim(folder: Path, attempt: int, resume: int) -> Path:
    return folder / (f"claim-{attempt}-{resume}" if resume else f"claim-{attempt}")
