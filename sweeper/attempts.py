"""What became of an attempt, by the files in its trial's folder: workers write there, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from accounting.errors import NoReceipt
from accounting.plan import Trial
from accounting.receipt import Receipt
from accounting.result import Status, TrialResult
from accounting.steps import can_resume
from sweeper.locks import at_work


class Stage(StrEnum):
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
class Standing:
    """Trials by the stage of their last attempt."""

    fresh: tuple[Trial, ...] = ()
    working: tuple[Trial, ...] = ()
    interrupted: tuple[Trial, ...] = ()
    finished: tuple[Trial, ...] = ()
    failed: tuple[Trial, ...] = ()
    killed: tuple[Trial, ...] = ()

    @classmethod
    def of(cls, stages: Iterable[tuple[Trial, Stage]]) -> Standing:
        """Sorts trials by their stages."""
        found: dict[str, list[Trial]] = {stage.value: [] for stage in Stage}
        for trial, stage in stages:
            found[stage.value].append(trial)
        return cls(**{stage: tuple(trials) for stage, trials in found.items()})


def stage_of(place: Path, trial: Trial, attempt: int) -> Stage:
    """The stage of an attempt that was started; one whose folder is gone was killed."""
    working = at_work(place)  # asked first: a job writes its result before it lets go
    result = TrialResult.read(place)
    if result is not None and result.attempt == attempt:
        return Stage.FAILED if result.status is Status.FAILED else Stage.FINISHED
    if working:
        return Stage.WORKING
    if (receipt := unused_receipt(place, attempt)) is not None:
        return Stage.INTERRUPTED if receipt.resume else Stage.FRESH
    return Stage.INTERRUPTED if can_resume(place, trial, attempt) else Stage.KILLED


def unused_receipt(place: Path, attempt: int) -> Receipt | None:
    """The receipt of this attempt that was given out and that no worker has taken yet."""
    try:
        receipt = Receipt.read(place)
    except NoReceipt:
        return None
    return receipt if receipt is not None and receipt.attempt == attempt and not receipt.used(place) else None
