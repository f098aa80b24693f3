"""State of an attempt, from the ledger first, then from the private store and the files in the trial's folder.

An attempt with a result has ended and never trains again. If the ledger says that an attempt ended and its result is
missing, the result was lost with its folder: the attempt is never fresh and never resumes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dpsweep.accounting.errors import NoReceipt
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import TrialPlace
from dpsweep.accounting.records.taken_steps import can_resume, is_claimed
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.job.locks import is_being_trained


class AttemptState(StrEnum):
    """The state of an attempt.

    FRESH: it has touched nothing yet; INTERRUPTED: it resumes from its checkpoint without a further charge; WORKING: a
    process runs it; KILLED: it began and can no longer end.
    """

    FRESH = "fresh"
    WORKING = "working"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"


@dataclass(frozen=True, kw_only=True)
class AttemptStates:
    """Trials by the state of their last attempt."""

    fresh: tuple[Trial, ...] = ()
    working: tuple[Trial, ...] = ()
    interrupted: tuple[Trial, ...] = ()
    finished: tuple[Trial, ...] = ()
    failed: tuple[Trial, ...] = ()
    killed: tuple[Trial, ...] = ()

    @classmethod
    def from_trials_with_states(cls, stages: Iterable[tuple[Trial, AttemptState]]) -> AttemptStates:
        """Groups trials by their states."""
        by_state: dict[str, list[Trial]] = {stage.value: [] for stage in AttemptState}
        for trial, stage in stages:
            by_state[stage.value].append(trial)
        return cls(**{stage: tuple(trials) for stage, trials in by_state.items()})


def state_of_started_attempt(place: TrialPlace, trial: Trial, attempt: int, *, ended: bool = False) -> AttemptState:
    """The state of a started attempt; an attempt that `ended` and whose folder is gone counts as killed."""
    if (over := _finished_or_failed_state(place, attempt)) is not None:
        return over
    working = is_being_trained(
        place.files
    )  # before the second look: a job writes its result before it releases its lock
    if (over := _finished_or_failed_state(place, attempt)) is not None:
        return over
    if working:
        return AttemptState.WORKING
    if ended:
        return AttemptState.KILLED
    if (receipt := unused_receipt(place, attempt)) is not None:
        return AttemptState.INTERRUPTED if receipt.resume else AttemptState.FRESH
    return AttemptState.INTERRUPTED if can_resume(place, trial, attempt) else AttemptState.KILLED


def _finished_or_failed_state(place: TrialPlace, attempt: int) -> AttemptState | None:
    """Finished or failed, by the result of this attempt; None without one."""
    result = TrialResult.read(place.files)
    if result is None or result.attempt != attempt:
        return None
    return AttemptState.FAILED if result.status is Status.FAILED else AttemptState.FINISHED


def unused_receipt(place: TrialPlace, attempt: int) -> Receipt | None:
    """The receipt of this attempt if it was issued and no worker has used it yet, in any folder."""
    try:
        receipt = Receipt.read(place.files)
    except NoReceipt:
        return None
    return receipt if receipt is not None and receipt.attempt == attempt and not is_claimed(receipt, place) else None
