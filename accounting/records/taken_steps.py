"""What the coordinator and the pages ask of an attempt's steps; a job itself asks `accounting/records/step_log.py`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dpsweep.accounting.durable_files import append_bytes, flush_folder, make_private_folder_durably
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import DpEvent, number_of_steps
from dpsweep.accounting.ledger.receipt import Receipt, TrialPlace, claim_path, is_declared
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.step_log import StepLog, read_marks


def took_declared_steps(realised: DpEvent, declared: DpEvent, *, least: int) -> bool:
    """Whether the run took at least `least` steps, and all of its steps were declared.

    A run takes all of its steps, and as many of the spare steps as it lost.
    """
    return number_of_steps(realised) >= least and is_declared(realised, declared)


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
