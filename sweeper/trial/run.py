"""Training of claimed trials, from receipts and configurations to result files.

Sessions of one block may be trained together. Data are read only after the receipts were claimed. Each run is compared
with its declaration; a difference is a failed result, and the charge stays. Frozen features are kept in a cache of the
machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import PlanEvent, with_rounded_noise
from dpsweep.accounting.ledger.permit import StepLog
from dpsweep.sweeper.trial import results
from dpsweep.sweeper.trial.build import (
    identity_for_initial_weights,
    make_model,
    make_streams,
    make_training_run,
    new_secret_streams,
)
from dpsweep.sweeper.trial.gradient_sums import stacked_or_engine_gradient_sums
from dpsweep.sweeper.trial.results import RunEnd
from dpsweep.sweeper.trial.session import PROGRESS, Machine, ReadySession, TrialSession, log, progress_writer
from dpsweep.sweeper.trial.spec import build_object_of_config_part
from dpsweep.trainers.methods.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.learning_curves import CurveRecorder
    from dpsweep.trainers.training.run import Outcome


class Interrupted(Exception):
    """The job was asked to stop before the first step."""


def _feature_progress_writer(
    group: Sequence[ReadySession], device: str, should_stop: Callable[[], bool]
) -> Callable[[int, int], None]:
    """Writes the number of records with frozen features for the coordinator's display, while more are computed.

    Before the first one is computed, runs that have not begun get a checkpoint: whatever ends the job before their
    first step then costs nothing. Raises `Interrupted` if the job is asked to stop.
    """
    kept = False

    def write_feature_progress_and_stop_if_asked(done: int, total: int) -> None:
        nonlocal kept
        if not kept:
            _write_initial_checkpoints(group, device)
            kept = True
        for one in group:
            with suppress(OSError):  # a full disk must not end a job because its progress cannot be written
                (one.session.place.files / PROGRESS).write_text(f"features {done}/{total}")
        log.info("features of %d of %d records", done, total)
        if should_stop():
            raise Interrupted

    return write_feature_progress_and_stop_if_asked


def _write_initial_checkpoints(group: Sequence[ReadySession], device: str) -> None:
    """Writes checkpoints of runs that have not begun."""
    from dpsweep.trainers.training.loop import initial_progress

    for one in group:
        if one.since is None and not isinstance(one.run.trainer, OutputPerturbation):
            one.journal.save_progress(initial_progress(one.run, one.model.to(device)))


def train_sessions_and_write_results(
    sessions: Sequence[TrialSession],
    machine: Machine,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    shared: bool = False,
) -> None:
    """Trains these trials and writes their results; an error is a result too, and stays charged.

    A stopped trial leaves a checkpoint and no result; a receipt to resume continues from the checkpoint. With `shared`
    all trials use the same subsamples, as they were charged.
    """
    started, clock = results.utc_timestamp(), time.perf_counter()
    blank = {
        session.trial.id: results.failed_result_template_before_training(session, machine, started)
        for session in sessions
    }

    def write_result_of_failure(session: TrialSession, error: Exception) -> None:
        results.write_result_of_failed_session(session, blank[session.trial.id], error, time.perf_counter() - clock)

    for session in sessions:
        results.log_attempt_begin(session)
    if len(sessions) > 1:
        log.info("trained with %d others%s", len(sessions) - 1, " on the same subsamples" if shared else "")
    ready, secret = [], cache(new_secret_streams)
    for session in sessions:
        try:
            ready.append(_prepare_session(session, machine, secret))
        except Exception as error:  # noqa: BLE001 - a failed session must not end the others
            write_result_of_failure(session, error)
    try:
        groups = [*_groups_trained_together(ready, shared=shared)]
    except ContractBroken as broken:
        for one in ready:
            write_result_of_failure(one.session, broken)
        return
    for group in groups:
        try:
            data = group[0].session.open_split(machine, _feature_progress_writer(group, machine.device, should_stop))
            _warn_of_no_training_records(group, data)
            outcomes = _train_group(group, data, machine, should_stop, shared=shared)
        except Interrupted:
            for one in group:
                results.log_session_stopped(one.session, one.steps_already_taken)
            continue
        except Exception as error:  # noqa: BLE001 - any error ends these trials and is written to their results
            for one in group:
                write_result_of_failure(one.session, error)
            continue
        over = []
        for one, outcome in zip(group, outcomes, strict=True):
            if outcome.stopped:
                results.log_session_stopped(one.session, outcome.steps)
            else:
                over.append((one, outcome))
        RunEnd(
            data=data, machine=machine, shared=shared, blank=blank, failed=write_result_of_failure
        ).write_results_of_runs(over)


def _warn_of_no_training_records(group: Sequence[ReadySession], data: Split) -> None:
    """Warns in the trial's log, which only the curator sees, if there is no training record; training continues."""
    if not data.train.number_of_units:
        for one in group:
            one.session.trial_logger.warning("there is no training record: the weights are noise alone")


def _prepare_session(session: TrialSession, machine: Machine, secret: Callable[[], Streams]) -> ReadySession:
    """Builds the session's model, streams and journal, and reads the checkpoint of an earlier session.

    `secret` returns the secret streams that sessions without a seed share.
    """
    import torch

    from dpsweep.trainers.engines.interface import trainable_parameters
    from dpsweep.trainers.models.weights import WeightDelta
    from dpsweep.trainers.training.allocator import keep_freed_memory
    from dpsweep.trainers.training.checkpoint import TrialJournal, read_checkpoint

    torch.set_num_threads(machine.threads)
    keep_freed_memory()
    trial, receipt, declaration = session.trial, session.receipt, session.declaration
    empty = StepLog(place=session.place, attempt=receipt.attempt, priced=trial.priced_steps)
    steps = StepLog.resume(session.place, trial, receipt) if receipt.resume else empty
    run = make_training_run(trial.config, declaration)
    model = make_model(trial.config, identity_for_initial_weights(trial))
    numbers = sum(parameter.numel() for parameter in trainable_parameters(model))
    accesses = PlanEvent(training=with_rounded_noise(run.event, numbers), validation=declaration.scoring_dp_event)
    session.claimed.require_declared(accesses)
    since = read_checkpoint(steps, run, machine.device) if receipt.resume else None
    return ReadySession(
        session=session,
        run=run,
        model=model,
        initial=WeightDelta.from_untrained_model(model, None if since is None else since.fixed),
        streams=make_streams(trial, receipt, secret),
        journal=TrialJournal(receipt=receipt, run=run, every=declaration.steps_between_checkpoints, steps=steps),
        since=since,
    )


def _groups_trained_together(ready: Sequence[ReadySession], *, shared: bool) -> Iterator[list[ReadySession]]:
    """The groups that are trained together: at the same step, and of one charge if subsamples are shared.

    Raises `ContractBroken` if runs that were charged for the same subsamples would have different ones.
    """
    groups: dict[tuple[object, ...], list[ReadySession]] = {}
    for one in ready:
        groups.setdefault((one.steps_already_taken, one.session.receipt.charge if shared else None), []).append(one)
    if shared and len({charge for _, charge in groups}) < len(groups):
        raise ContractBroken(
            "Expected runs that were charged for the same subsamples to be at the same step: they must train together."
        )
    yield from groups.values()


def _train_group(
    group: Sequence[ReadySession], data: Split, machine: Machine, should_stop: Callable[[], bool], *, shared: bool
) -> tuple[Outcome, ...]:
    from dpsweep.trainers.training.loop import train_together

    if isinstance(group[0].run.trainer, OutputPerturbation):
        from dpsweep.trainers.training.convex_fit import fit_by_output_perturbation

        device = machine.device
        return tuple(
            fit_by_output_perturbation(one.run, one.model, data.train, one.streams, one.journal, device)
            for one in group
        )
    places = [one.session.place.files for one in group]
    streams = _streams_per_run_or_shared_if_secret(group)
    first, models = group[0].session, [one.model for one in group]
    sums = stacked_or_engine_gradient_sums(first.trial.config, first.declaration, models, data.train, machine, streams)
    return train_together(
        [one.run for one in group],
        models,
        sums,
        data.train,
        streams,
        device=machine.device,
        share=shared,
        on_step=progress_writer(places, group[0].run.steps),
        should_stop=should_stop,
        journals=[one.journal for one in group],
        since=[one.since for one in group],
        watch=_learning_curve_recorder(first, data, machine),
    )


def _learning_curve_recorder(session: TrialSession, data: Split, machine: Machine) -> CurveRecorder | None:
    """The recorder of a group's learning curves; None if the score declares none."""
    from dpsweep.trainers.training.learning_curves import CurveRecorder, measure_curve_point

    declaration = session.declaration
    every = declaration.score.every
    if every is None:
        return None
    engine = build_object_of_config_part(session.trial.config["engine"], "engine")
    settings = {"data": data, "public": declaration.dataset.public, "engine": engine, "loss": declaration.loss}
    return CurveRecorder(every=every, look=partial(measure_curve_point, **settings, device=machine.device))


def _streams_per_run_or_shared_if_secret(group: Sequence[ReadySession]) -> list[Streams]:
    """One set of streams per run if they are derived from a seed; all runs share secret streams, which is faster."""
    if group[0].session.trial.is_reproducible_from_seed:
        return [one.streams for one in group]
    return [group[0].streams] * len(group)
