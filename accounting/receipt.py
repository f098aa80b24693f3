"""The receipt that a job must hold: one attempt at one trial, written after the charge was committed.

A worker claims a receipt by creating a file exclusively; a second use is refused, also from another machine on a shared
folder. A job needs the receipt and not the ledger. A curator who forges receipts is outside the threat model.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from accounting.errors import NoReceipt
from accounting.plan import write_json


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One attempt at one trial of one plan, and the ledger entry that charged it."""

    account: str
    plan: str
    trial: str
    attempt: int
    charge: str

    def write(self, folder: Path) -> None:
        """Puts the receipt into the trial's folder."""
        write_json(folder / "receipt.json", asdict(self))

    @classmethod
    def claim(cls, folder: Path, *, plan: str, trial: str) -> Receipt:
        """Takes the trial's receipt for this process, once and for ever.

        Raises `NoReceipt` where there is none, where it is for another plan or trial, or where it was used before.
        """
        try:
            receipt = cls(**json.loads((folder / "receipt.json").read_text()))
        except FileNotFoundError:
            raise NoReceipt(
                f"Trial {trial} holds no receipt of a charge, so it does not train; start it by a sweep."
            ) from None
        except (json.JSONDecodeError, TypeError) as cause:
            raise NoReceipt(f"The receipt of trial {trial} is damaged, so it does not train: {cause}.") from cause
        if (receipt.plan, receipt.trial) != (plan, trial):
            raise NoReceipt(
                f"The receipt is for plan {receipt.plan}, trial {receipt.trial}, not {plan}, {trial}: nothing trains."
            )
        try:
            claim = os.open(_claim(folder, receipt.attempt), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            raise NoReceipt(
                f"Attempt {receipt.attempt} at trial {trial} was already used; another one is another charge."
            ) from None
        os.fsync(claim)
        os.close(claim)
        return receipt

    @staticmethod
    def claimed(folder: Path, attempt: int) -> bool:
        """Whether a worker has taken the receipt of this attempt."""
        return _claim(folder, attempt).exists()


def _claim(folder: Path, attempt: int) -> Path:
    return folder / f"claim-{attempt}"
