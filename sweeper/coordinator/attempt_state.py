"""What became of an attempt: by the ledger first, then by the private store and by the files in the trial's folder.

A result that is there is the attempt's end, and it never trains again. One that ended by the ledger and whose result is
not there was lost with its folder: it is never fresh, and never goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dpsweep.accounting.errors import NoReceipt
from dpsweep.accounting.ledger.private_store import TrialPlace
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.step_log import can_resume
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.job.locks import at_work


class AttemptState(StrEnum):
    """Where an attempt stands.

    FRESH: it touched nothing yet; INTERRUPTED: it goes on from its checkpoint, at no further charge; WORKING: a process
    is at it; KILLED: it began and can not end any more.
    """

    FRESH = "fresh"
    WORKING = "working"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"


@dataclass(frozen=True, kw_only=True)
class AttemptStates:
    """Trials by the stage of their last attempt."""

    fresh: tuple[Trial, ...] = ()
    working: tuple[Trial, ...] = ()
    interrupted: tuple[Trial, ...] = ()
    finished: tuple[Trial, ...] = ()
    failed: tuple[Trial, ...] = ()
    killed: tuple[Trial, ...] = ()

    @classmethod
    def of(cls, stages: Iterable[tuple[Trial, AttemptState]]) -> AttemptStates:
        """Sorts trials by their stages."""
        found: dict[str, list[Trial]] = {stage.value: [] for stage in AttemptState}
        for trial, stage in stages:
            found[stage.value].append(trial)
        return cls(**{stage: tuple(trials) for stage, trials in found.items()})


def stage_of(place: TrialPlace, trial: Trial, attempt: int, *, ended: bool = False) -> AttemptState:
    """The stage of an attempt that was started; one that `ended` for good and whose folder is gone was killed."""
    working = at_work(place.files)  # asked first: a job writes its result before it lets go
    result = TrialResult.read(place.files)
    if result is not None and result.attempt == attempt:
        return AttemptState.FAILED if result.status is Status.FAILED else AttemptState.FINISHED
    if working:
        return AttemptState.WORKING
    if ended:
        return AttemptState.KILLED
    if (receipt := unused_receipt(place, attempt)) is not None:
        return AttemptState.INTERRUPTED if receipt.resume else AttemptState.FRESH
    return AttemptState.INTERRUPTED if can_resume(place, trial, attempt) else AttemptState.KILLED


def unused_receipt(place: TrialPlace, attempt: int) -> Receipt | None:
    """The receipt of this attempt that was given out and that no worker has taken yet, in whichever folder."""
    try:
        receipt = Receipt.read(place.files)
    except NoReceipt:
        return None
    return receipt if receipt is not None and receipt.attempt == attempt and not receipt.used(place) else None
