"""What the coordinator and the pages ask of an attempt's steps; a job itself asks `accounting/ledger/permit.py`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dpsweep.accounting.durable_files import append_bytes, flush_folder, make_private_folder_durably
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import DpEvent, number_of_steps
from dpsweep.accounting.ledger.permit import (
    Header,
    Receipt,
    StepLog,
    claim_path,
    is_declared,
    read_checkpoint_file,
    read_marks,
)
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import TrialPlace


def took_declared_steps(realised: DpEvent, declared: DpEvent, *, least: int) -> bool:
    """Whether the run took at least `least` steps, and all of its steps were declared.

    A run takes all of its steps, and as many of the spare steps as it lost.
    """
    return number_of_steps(realised) >= least and is_declared(realised, declared)


def read_checkpoint_of_log(log: StepLog) -> tuple[Header, bytes]:
    """The checkpoint that a log knows; raises `ContractBroken` if it is not there."""
    stored = None if log.header is None else read_checkpoint_file(log.place.files, log.attempt)
    if stored is None or stored[0] != log.header:
        raise ContractBroken(f"Attempt {log.attempt} has no checkpoint in {log.place.files}.")
    return stored


def steps_spent(place: TrialPlace, trial: Trial, attempt: int) -> int:
    """The number of priced steps that an attempt has spent, lost ones included: never fewer than ran.

    It is the number of all priced steps if the files are damaged.
    """
    try:
        return StepLog.read(place, trial, attempt).spent
    except ContractBroken:
        return trial.priced_steps


def can_resume(place: TrialPlace, trial: Trial, attempt: int) -> bool:
    """Whether an interrupted attempt may resume on its charge, judged by its files alone; False if they are damaged.

    Also False if the folder's receipt is for another attempt, if the attempt was scored, or if it has lost more steps
    than were priced.
    """
    try:
        receipt = Receipt.read(place.files)
        if receipt is None or receipt.attempt != attempt:
            return False
        StepLog.resume(place, trial, receipt)
    except (ContractBroken, OSError):
        return False
    return True


def is_claimed(receipt: Receipt, place: TrialPlace) -> bool:
    """Whether a worker has claimed the session of a receipt."""
    return any(claim_path(one, receipt.attempt, receipt.resume).exists() for one in (place.files, place.record))


def void_attempt(record: Path, attempt: int, resumes: int) -> None:
    """Claims all sessions of an attempt up to this resume, and marks it as scored: none of them runs or resumes."""
    path = record / f"steps-{attempt}"
    make_private_folder_durably(record)
    for resume in range(resumes + 1):
        with suppress(FileExistsError):
            append_bytes(claim_path(record, attempt, resume), b"", create=True)
    with suppress(ContractBroken):
        marked, scored, _ = read_marks(record, attempt)
        if not scored:
            append_bytes(path, f"score {marked}\n".encode(), create=not path.exists())
    flush_folder(record)
