"""Results of sessions: blank before training, with a score or an error after it, and written once."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.group_commit import Flushing, alone
from dpsweep.accounting.records.step_log import forget_checkpoints, steps_spent
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.trial.session import PROGRESS, Machine, Session

if TYPE_CHECKING:
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.estimates import Estimate


def blank_result(session: Session, machine: Machine, started: str) -> TrialResult:
    """The result of a trial before training: failed, with no steps."""
    return TrialResult(
        trial=session.trial.id,
        attempt=session.receipt.attempt,
        status=Status.FAILED,
        score=None,
        event=None,
        steps=0,
        seconds=0.0,
        device=machine.device,
        randomness="secret" if session.trial.config["seed"] is None else "reproducible",
        started=started,
        ended=started,
        versions=dict(_versions()),
    )


def log_begin(session: Session) -> None:
    """Names the attempt in the trial's log."""
    receipt, axes = session.receipt, session.trial.settings
    session.log.info("trial %s, attempt %d, resume %d: %s", receipt.trial, receipt.attempt, receipt.resume, axes)


def log_stopped(session: Session, step: int) -> None:
    """Says in the trial's log that the session was stopped; it has no result."""
    session.log.info("stopped after step %d", step)
    (session.place.files / PROGRESS).unlink(missing_ok=True)


def end(session: Session, result: TrialResult) -> None:
    """Writes the final result; the attempt cannot be resumed afterwards."""
    alone(ending(session, result))


def ending(session: Session, result: TrialResult) -> Flushing[None]:
    """Does what `end` does, as a part of a group commit."""
    (session.place.files / PROGRESS).unlink(missing_ok=True)
    yield from replace(result, ended=now()).writing(session.place.files)
    forget_checkpoints(session.place.files)
    if result.error is not None:
        session.log.error("%s", result.error)
    session.log.info("%s after %d steps in %.1f s", result.status, result.steps, result.seconds)


def end_failed(session: Session, blank: TrialResult, error: Exception, seconds: float) -> None:
    """Writes the result of a session that an error ended: all steps that may have run count."""
    session.log.error("the trial failed", exc_info=error)
    steps = steps_spent(session.place, session.trial, session.receipt.attempt)
    end(session, replace(blank, error=f"{type(error).__name__}: {error}", steps=steps, seconds=seconds))


def broken(result: TrialResult, cause: Exception) -> TrialResult:
    """The result of a run that differs from its charge, or whose score cannot be compared."""
    return replace(result, status=Status.FAILED, error=f"ContractBroken: {cause}")


def empty_parts(data: Split) -> list[str]:
    """The empty parts ("train", "holdout") of the private records."""
    parts = {"train": data.train, "holdout": data.holdout}
    return [name for name, part in parts.items() if part is not None and not part.available]


def scored(result: TrialResult, measured: Estimate) -> TrialResult:
    """The result with its score, or a failed one if the score is no finite number."""
    try:
        right = {} if measured.right is None else {"right": measured.right}
        return replace(result, score=_form(measured), curator={**result.curator, **right})
    except (TypeError, ValueError) as cause:
        return broken(result, cause)


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _form(estimate: Estimate) -> Mapping[str, Any]:
    """The score and its interval, and those of further metrics if there are any."""
    also = {name: _form(other) for name, other in estimate.also.items()}
    form = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return form | ({"also": also} if also else {})


@cache
def _versions() -> Mapping[str, str]:
    """The software versions that the results depend on."""
    versions = {name: version(name) for name in ("dpsweep", "torch", "opacus", "numpy", "randomgen")}
    return versions | {"python": platform.python_version()}
