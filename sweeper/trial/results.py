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

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.files import call_for_each
from dpsweep.accounting.records.taken_steps import steps_spent
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.searches.stored_draw import is_try_of_secret_draw
from dpsweep.sweeper.trial.session import (
    PROGRESS,
    Machine,
    ReadySession,
    TrialSession,
    check_realised_dp_event_was_charged,
    check_score_dp_event_was_charged,
    check_subsample_sharing_was_charged,
)
from dpsweep.trainers.declarations.losses import label_shape

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.estimates import Estimate
    from dpsweep.trainers.training.run import Outcome


def failed_result_template_before_training(session: TrialSession, machine: Machine, started: str) -> TrialResult:
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
        randomness="reproducible" if session.trial.is_reproducible_from_seed else "secret",
        started=started,
        ended=started,
        versions=dict(_software_versions()),
    )


def log_attempt_begin(session: TrialSession) -> None:
    """Names the attempt in the trial's log."""
    receipt, axes = session.receipt, session.trial.swept_values_and_repeat
    session.trial_logger.info(
        "trial %s, attempt %d, resume %d: %s", receipt.trial, receipt.attempt, receipt.resume, axes
    )


def log_session_stopped(session: TrialSession, step: int) -> None:
    """Says in the trial's log that the session was stopped; it has no result."""
    session.trial_logger.info("stopped after step %d", step)
    (session.place.files / PROGRESS).unlink(missing_ok=True)


def write_final_result(session: TrialSession, result: TrialResult) -> None:
    """Writes the final result; the attempt cannot be resumed afterwards."""
    (session.place.files / PROGRESS).unlink(missing_ok=True)
    replace(result, ended=utc_timestamp()).write(session.place.files)
    for checkpoint in session.place.files.glob("checkpoint-*"):
        checkpoint.unlink(missing_ok=True)
    if result.error is not None:
        session.trial_logger.error("%s", result.error)
    session.trial_logger.info("%s after %d steps in %.1f s", result.status, result.steps, result.seconds)


def write_result_of_failed_session(session: TrialSession, blank: TrialResult, error: Exception, seconds: float) -> None:
    """Writes the result of a session that an error ended: all steps that may have run count."""
    session.trial_logger.error("the trial failed", exc_info=error)
    steps = steps_spent(session.place, session.trial, session.receipt.attempt)
    write_final_result(session, replace(blank, error=f"{type(error).__name__}: {error}", steps=steps, seconds=seconds))


def contract_broken_result(result: TrialResult, cause: Exception) -> TrialResult:
    """The result of a run that differs from its charge, or whose score cannot be compared."""
    return replace(result, status=Status.FAILED, error=f"ContractBroken: {cause}")


def names_of_empty_record_parts(data: Split) -> list[str]:
    """The empty parts ("train", "holdout") of the private records."""
    parts = {"train": data.train, "holdout": data.holdout}
    return [name for name, part in parts.items() if part is not None and not part.number_of_units]


def names_of_values_never_found(dataset: DataSet, data: Split) -> list[str]:
    """The declared values that no private record has."""
    declared = dataset.declared_values
    parts = [part.inputs(slice(None), "cpu") for part in (data.train, data.holdout) if declared and part is not None]
    return [name for place, name in declared.items() if not any(bool(part[:, place].any()) for part in parts)]


def result_with_finite_score_or_failed(session: TrialSession, result: TrialResult, measured: Estimate) -> TrialResult:
    """The result with its score, or a failed one if the score is no finite number."""
    try:
        declaration = session.declaration
        told = declaration.score.intervals_at_level(
            measured.counts, session.told_level, whole_units=declaration.counts_whole_units
        )
        own = next(iter(told.values()), None)
        also = {name: _score_to_json(other, told.get(name)) for name, other in measured.also.items()}
        form = {**_score_to_json(measured, own), **({"also": also} if also else {})}
        return replace(result, score=form, released_counts=measured.counts)
    except (TypeError, ValueError) as cause:
        return contract_broken_result(result, cause)


def utc_timestamp() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _score_to_json(estimate: Estimate, told: tuple[float, float] | None) -> Mapping[str, Any]:
    """The score, its interval, and the interval that is told of it if there is one."""
    error, (low, high) = estimate.records_error, told or (None, None)
    return {
        **{"value": estimate.value, "low": estimate.low, "high": estimate.high},
        **({} if error is None else {"records_error": error}),
        **({} if told is None else {"told": {"low": low, "high": high}}),
    }


@cache
def _software_versions() -> Mapping[str, str]:
    """The software versions that the results depend on."""
    versions = {name: version(name) for name in ("dpsweep", "torch", "opacus", "numpy", "randomgen")}
    return versions | {"python": platform.python_version()}


AT_ONCE = 32
"""Runs whose files are flushed together: a kill at that moment loses at most so many scores, which stay charged."""

LEAST_SCORE: Mapping[str, float] = {"value": 0.0, "low": 0.0, "high": 0.0}

Ended = tuple[ReadySession, TrialResult | Exception]
"""A session with its result so far, or with the error that ended it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEnd:
    """The records and the machine of a group, its results before training, and what writes the result of an error."""

    data: Split
    machine: Machine
    shared: bool
    blank: Mapping[str, TrialResult]
    failed: Callable[[TrialSession, Exception], None]

    def write_results_of_runs(self, runs: Sequence[tuple[ReadySession, Outcome]]) -> None:
        """Writes the result of each run; an error is a result too and does not end the others."""
        for first in range(0, len(runs), AT_ONCE):
            kept = call_for_each(self._save_unscored_run, runs[first : first + AT_ONCE])
            scored = [self._score_finished_run(*run) for run in kept]  # one after another: they share a noise stream
            call_for_each(self._write_result_or_failure, scored)

    def _save_unscored_run(self, run: tuple[ReadySession, Outcome]) -> Ended:
        try:
            return run[0], self._check_charge_and_save_model(*run)
        except Exception as error:  # noqa: BLE001 - any error ends this run alone and is written to its result
            return run[0], error

    def _check_charge_and_save_model(self, one: ReadySession, outcome: Outcome) -> TrialResult:
        """Compares the run with its charge, saves the model, and marks that it is about to be scored."""
        from dpsweep.trainers.models.weights import save_model

        session, declaration = one.session, one.session.declaration
        result = self._result_without_score(one, outcome)
        charged = session.trial.event
        try:
            check_realised_dp_event_was_charged(
                outcome.realised_event, charged.training, least=0 if outcome.diverged else declaration.steps
            )
            check_subsample_sharing_was_charged(outcome.company, shared=self.shared)
            if outcome.diverged:
                return replace(result, score=LEAST_SCORE)
            model = save_model(one.model, session.place.files)
            result = replace(result, model=model)
            noisy = one.run.noise_multiplier > 0
            if same := one.initial.check_weight_changes_and_saved_file(
                one.model, session.place.files, noisy=noisy, moved=outcome.moved
            ):
                session.trial_logger.warning("the learning rate is too small to change %s", ", ".join(same))
                result = replace(result, curator={**result.curator, "unchanged": list(same)})
            check_score_dp_event_was_charged(declaration.scoring_dp_event, charged.validation)
            if charged.validation is not None:
                one.journal.mark_private_score()
        except ContractBroken as broken:
            return contract_broken_result(result, broken)
        return result

    def _result_without_score(self, one: ReadySession, outcome: Outcome) -> TrialResult:
        """The result without a model and a score."""
        declaration = one.session.declaration
        return replace(
            self.blank[one.session.trial.id],
            status=Status.DIVERGED if outcome.diverged else Status.FINISHED,
            event=events.to_json(outcome.realised_event),
            steps=outcome.steps,
            seconds=outcome.seconds,
            curator={
                "batch_sizes": asdict(outcome.batch_sizes),
                "curve": list(outcome.curve),
                "empty": names_of_empty_record_parts(self.data),
                "never_found": names_of_values_never_found(declaration.dataset, self.data),
            },
            parameters=_number_of_trainable_parameters(one.model),
            counts=declaration.noisy_counts_of_score,
        )

    def _score_finished_run(self, one: ReadySession, result: TrialResult | Exception) -> Ended:
        """Measures the score of a run that finished as it was charged."""
        if isinstance(result, Exception) or result.status is not Status.FINISHED:
            return one, result
        try:
            return one, self._result_with_measured_score(one, result)
        except Exception as error:  # noqa: BLE001 - any error ends this run alone and is written to its result
            return one, error

    def _result_with_measured_score(self, one: ReadySession, result: TrialResult) -> TrialResult:
        """The result with its score; none if the trained model mixes examples, so that no count is bounded.

        A try of a secret draw then counts as diverged, with the least score, and nothing but its own log says why.
        """
        from dpsweep.trainers.models.checks import require_separate_predictions

        session, declaration = one.session, one.session.declaration
        shape = tuple(declaration.dataset.shape)
        positions = label_shape(declaration.loss, shape, declaration.dataset.classes)
        try:
            require_separate_predictions(one.model, shape, positions, self.machine.device)
        except ValueError as mixing:
            if not is_try_of_secret_draw(session.trial):
                return contract_broken_result(result, mixing)
            session.trial_logger.warning("%s", mixing)
            return replace(result, status=Status.DIVERGED, score=LEAST_SCORE)
        if not declaration.score.is_measured:
            return result
        try:
            measured = declaration.score.measure(
                one.model, self.data, one.streams.score, self.machine.device, declaration.loss
            )
        except ContractBroken as broken:
            return contract_broken_result(result, broken)
        if declaration.scoring_dp_event is not None and len(measured.counts) > declaration.noisy_counts_of_score:
            return contract_broken_result(result, ContractBroken("The score has more noisy counts than were charged."))
        return result_with_finite_score_or_failed(one.session, result, measured)

    def _write_result_or_failure(self, run: Ended) -> None:
        one, result = run
        if isinstance(result, Exception):
            self.failed(one.session, result)
            return
        try:
            write_final_result(one.session, result)
        except Exception as error:  # noqa: BLE001
            self.failed(one.session, error)


def _number_of_trainable_parameters(model: nn.Module) -> int:
    """The number of trainable parameters, which is the number of noisy numbers that a step releases."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
