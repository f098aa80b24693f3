"""Results of sessions: blank before training, with a score or an error after it, and written once.

At the end of runs that were trained together they are compared with their charges, saved, scored, and written down.
Each of these is done for some runs before the next begins, so that their files are flushed together.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.durable_files import Flushing, alone, run_group_commit
from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.records.step_log import forget_checkpoints, steps_spent
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.sweeper.trial.session import (
    PROGRESS,
    Machine,
    ReadySession,
    Session,
    check_company,
    check_realised,
    check_scored,
)
from dpsweep.trainers.declarations.scores import noisy_counts

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.estimates import Estimate
    from dpsweep.trainers.training.run import Outcome


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
        randomness="reproducible" if session.trial.reproducible else "secret",
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


def write_final_result(session: Session, result: TrialResult) -> None:
    """Writes the final result; the attempt cannot be resumed afterwards."""
    alone(write_final_result_in_group(session, result))


def write_final_result_in_group(session: Session, result: TrialResult) -> Flushing[None]:
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
    write_final_result(session, replace(blank, error=f"{type(error).__name__}: {error}", steps=steps, seconds=seconds))


def contract_broken_result(result: TrialResult, cause: Exception) -> TrialResult:
    """The result of a run that differs from its charge, or whose score cannot be compared."""
    return replace(result, status=Status.FAILED, error=f"ContractBroken: {cause}")


def empty_parts(data: Split) -> list[str]:
    """The empty parts ("train", "holdout") of the private records."""
    parts = {"train": data.train, "holdout": data.holdout}
    return [name for name, part in parts.items() if part is not None and not part.available]


def result_with_score(result: TrialResult, measured: Estimate) -> TrialResult:
    """The result with its score, or a failed one if the score is no finite number."""
    try:
        right = {} if measured.right is None else {"right": measured.right}
        return replace(result, score=_score_to_json(measured), curator={**result.curator, **right})
    except (TypeError, ValueError) as cause:
        return contract_broken_result(result, cause)


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _score_to_json(estimate: Estimate) -> Mapping[str, Any]:
    """The score and its interval, and those of further metrics if there are any."""
    also = {name: _score_to_json(other) for name, other in estimate.also.items()}
    form = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return form | ({"also": also} if also else {})


@cache
def _versions() -> Mapping[str, str]:
    """The software versions that the results depend on."""
    versions = {name: version(name) for name in ("dpsweep", "torch", "opacus", "numpy", "randomgen")}
    return versions | {"python": platform.python_version()}


AT_ONCE = 32
"""Runs whose files are flushed together: a kill at that moment loses at most so many scores, which stay charged."""

Ended = tuple[ReadySession, TrialResult | Exception]
"""A session with its result so far, or with the error that ended it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEnd:
    """The records and the machine of a group, its results before training, and what writes the result of an error."""

    data: Split
    machine: Machine
    shared: bool
    blank: Mapping[str, TrialResult]
    failed: Callable[[Session, Exception], None]

    def finish(self, runs: Sequence[tuple[ReadySession, Outcome]]) -> None:
        """Writes the result of each run; an error is a result too and does not end the others."""
        for first in range(0, len(runs), AT_ONCE):
            kept = run_group_commit(
                _result_or_exception(one, self._kept(one, outcome)) for one, outcome in runs[first : first + AT_ONCE]
            )
            scored = [self._scored(one, result) for one, result in kept]  # one after another: they share a noise stream
            run_group_commit(self._write(one, result) for one, result in scored)

    def _kept(self, one: ReadySession, outcome: Outcome) -> Flushing[TrialResult]:
        """Compares the run with its charge, saves the model, and marks that it is about to be scored."""
        from dpsweep.trainers.models.weights import saving_model

        session, declaration = one.session, one.session.declaration
        result = self._realised(one, outcome)
        charged = session.trial.event
        try:
            check_realised(outcome.event, charged.training, least=0 if outcome.diverged else declaration.steps)
            check_company(outcome.company, shared=self.shared)
            if outcome.diverged:
                return replace(result, score={"value": 0.0, "low": 0.0, "high": 0.0})
            model = yield from saving_model(one.model, session.place.files)
            result = replace(result, model=model)
            noisy = one.run.noise_multiplier > 0
            if same := one.initial.check(one.model, session.place.files, noisy=noisy, moved=outcome.moved):
                session.log.warning("the learning rate is too small to change %s", ", ".join(same))
                result = replace(result, curator={**result.curator, "unchanged": list(same)})
            check_scored(declaration.scoring, charged.validation)
            if charged.validation is not None:
                yield from one.journal.score()
        except ContractBroken as broken:
            return contract_broken_result(result, broken)
        return result

    def _realised(self, one: ReadySession, outcome: Outcome) -> TrialResult:
        """The result without a model and a score."""
        declaration = one.session.declaration
        return replace(
            self.blank[one.session.trial.id],
            status=Status.DIVERGED if outcome.diverged else Status.FINISHED,
            event=events.to_json(outcome.event),
            steps=outcome.steps,
            seconds=outcome.seconds,
            curator={
                "batch_sizes": asdict(outcome.batch_sizes),
                "curve": list(outcome.curve),
                "empty": empty_parts(self.data),
            },
            parameters=_trained_numbers(one.model),
            counts=noisy_counts(declaration.score, declaration.dataset.classes),
        )

    def _scored(self, one: ReadySession, result: TrialResult | Exception) -> Ended:
        """Measures the score of a run that finished as it was charged."""
        if isinstance(result, Exception) or result.status is not Status.FINISHED:
            return one, result
        try:
            return one, self._measure_score(one, result)
        except Exception as error:  # noqa: BLE001 - any error ends this run alone and is written to its result
            return one, error

    def _measure_score(self, one: ReadySession, result: TrialResult) -> TrialResult:
        declaration = one.session.declaration
        try:
            measured = declaration.score.measure(
                one.model, self.data, one.streams.score, self.machine.device, declaration.loss
            )
        except ContractBroken as broken:
            return contract_broken_result(result, broken)
        return result_with_score(result, measured)

    def _write(self, one: ReadySession, result: TrialResult | Exception) -> Flushing[None]:
        if isinstance(result, Exception):
            self.failed(one.session, result)
            return
        try:
            yield from write_final_result_in_group(one.session, result)
        except Exception as error:  # noqa: BLE001
            self.failed(one.session, error)


def _result_or_exception(one: ReadySession, call: Flushing[TrialResult]) -> Flushing[Ended]:
    """What the call returns or raises."""
    try:
        return one, (yield from call)
    except Exception as error:  # noqa: BLE001 - any error ends this run alone and is written to its result
        return one, error


def _trained_numbers(model: nn.Module) -> int:
    """The number of trainable parameters, which is the number of noisy numbers that a step releases."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
