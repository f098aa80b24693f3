"""A training that reads no record: it leaves in the folder and in the private store what a job's training leaves.

Marks, checkpoints, logs and results are written by the program's own code. Each look at the records is a line in a file
that the program does not know of, written before the look, so that no kill makes a look unseen.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random

from dpsweep.accounting.durable_files import PRIVATE
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.permit import Header, StepLog
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from dpsweep.sweeper.trial import results
from dpsweep.sweeper.trial.session import Machine, TrialSession


class Look(StrEnum):
    """At what: the training records of one step, or the held-out records of one score."""

    STEP = "step"
    SCORE = "score"


class Fate(StrEnum):
    """How a training goes: to its end, into an error, or to a request to stop after its first stretch."""

    ENDS = "ends"
    FAILS = "fails"
    STOPS = "stops"


FATES = (Fate.ENDS, Fate.ENDS, Fate.ENDS, Fate.FAILS, Fate.STOPS)
SCORES = 5
"""So few different scores that some are equal."""

Looks = Counter[tuple[str, int, Look]]


def looks(path: Path) -> Looks:
    """How often each attempt at each trial looked at what."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((trial, attempt, Look(look)) for trial, attempt, look in map(json.loads, lines))


@dataclass(frozen=True, kw_only=True)
class PlayedTraining:
    """Stands for `train_sessions_and_write_results`; the seed says how each session goes, the log has the looks."""

    log: Path
    seed: int

    def __call__(
        self,
        sessions: Sequence[TrialSession],
        machine: Machine,
        should_stop: Callable[[], bool] = lambda: False,
        *,
        shared: bool = False,
    ) -> None:
        started = results.utc_timestamp()
        for session in sessions:
            results.log_attempt_begin(session)
            blank = results.failed_result_template_before_training(session, machine, started)
            try:
                self._play(session, blank, should_stop)
            except Exception as error:  # noqa: BLE001 - as a job's training: an error is a result
                results.write_result_of_failed_session(session, blank, error, 0.0)

    def _play(self, session: TrialSession, blank: TrialResult, should_stop: Callable[[], bool]) -> None:
        trial, receipt, place = session.trial, session.receipt, session.place
        chance = Random(f"{self.seed} {trial.id} {receipt.attempt} {receipt.resume}")
        fate, total = chance.choice(FATES), session.declaration.steps
        log = (
            StepLog.resume(place, trial, receipt)
            if receipt.resume
            else StepLog(place=place, attempt=receipt.attempt, priced=trial.priced_steps)
        )
        done = log.header.step if log.header else 0
        while done < total:
            interval = min(session.declaration.steps_between_checkpoints or total, total - done)
            log = log.take(interval)
            self._look(session, Look.STEP, interval)
            done += interval
            if done < total:
                log = replace(log, header=_checkpoint(session, log, done, total))
            if fate is Fate.STOPS:
                (place.files.parents[1] / "stop").touch()
            if done < total and should_stop():
                results.log_session_stopped(session, done)
                return
        if fate is Fate.FAILS:
            raise OSError("a disk is gone")
        model = json.dumps(dict(trial.axes)).encode()
        (place.files / MODEL_FILE).write_bytes(model)
        if trial.event.validation is not None:
            log = log.score()
            self._look(session, Look.SCORE, 1)
        results.write_final_result(
            session, _ended(session, blank, log, chance.randrange(SCORES), hashlib.sha256(model).hexdigest())
        )

    def _look(self, session: TrialSession, look: Look, times: int) -> None:
        lines = f"{json.dumps([session.trial.id, session.receipt.attempt, look])}\n" * times
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            os.write(handle, lines.encode())
        finally:
            os.close(handle)


def _checkpoint(session: TrialSession, log: StepLog, step: int, steps: int) -> Header:
    """What a journal keeps after a stretch, with no weights in it."""
    receipt = session.receipt
    header = Header(
        plan=receipt.plan,
        trial=receipt.trial,
        attempt=receipt.attempt,
        charge=receipt.charge,
        step=step,
        steps=steps,
        spent=log.spent,
        marked=log.marked,
    )
    header.write_checkpoint(session.place.files, f"{step} of {steps}".encode())
    return header


def _ended(session: TrialSession, blank: TrialResult, log: StepLog, score: int, model: str) -> TrialResult:
    ((step, _),) = events.leaves_with_counts(session.trial.event.training)
    value = score / SCORES
    return replace(
        blank,
        status=Status.FINISHED,
        score={"value": value, "low": value / 2, "high": (1 + value) / 2},
        event=events.to_json(events.repeat(step, log.spent)),
        steps=session.declaration.steps,
        model=model,
        released_counts=(100.0 * value, 100.0 * (1 - value)),
    )
