"""Runs of scripts of the user's own, from claimed receipts to result files.

A run is: mark its steps, hand over the records, run the script, compare what it reports with the charge, keep its
files, count its predictions. A script that differs, fails or never reports is a failed result; the charge stays. A
script that was stopped or killed after a checkpoint leaves no result, and a receipt to resume goes on from it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.step_log import StepLog, can_resume, go_on, steps_priced
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.validation import DAMAGE
from dpsweep.sweeper.foreign.handing_over import PROGRAM, handed_over, keep_files, write_records
from dpsweep.sweeper.foreign.script_file import charged_content, location
from dpsweep.sweeper.processes.script_process import bare_environment, run_script
from dpsweep.sweeper.trial import results
from dpsweep.sweeper.trial.build import load, make_streams
from dpsweep.sweeper.trial.charge_checks import check_company, check_realised, check_scored
from dpsweep.sweeper.trial.session import Machine, Session
from dpsweep.trainers.data.array_files import UnreadableArray, read_npy
from dpsweep.trainers.declarations.scores import noisy_counts, scored_part
from dpsweep.trainers.foreign.comparison import check_reported
from dpsweep.trainers.foreign.handover import PREDICTIONS_FILE, REPORT_FILE, STATE_FILE, Handover
from dpsweep.trainers.foreign.predictions import checked
from dpsweep.trainers.foreign.step_journal import first_stretch

if TYPE_CHECKING:
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.methods.script import Script

OUTPUT = "script.log"
"""What a script printed; for the curator only."""


def run_scripts(
    sessions: Sequence[Session],
    machine: Machine,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    shared: bool = False,
) -> None:
    """Runs the scripts of these trials, one after another, and writes their results; errors are results too."""
    for session in sessions:
        clock, blank = time.perf_counter(), results.blank_result(session, machine, results.now())
        results.log_begin(session)
        try:
            check_company(1, shared=shared)
            result = _ScriptRun(session=session, machine=machine, should_stop=should_stop, blank=blank).result()
        except Exception as error:  # noqa: BLE001 - a failed session must not end the others
            results.end_failed(session, blank, error, time.perf_counter() - clock)
            continue
        if result is None:
            step = StepLog.read(session.place, session.trial, session.receipt.attempt).header
            results.log_stopped(session, 0 if step is None else step.step)
        else:
            results.end(session, replace(result, seconds=time.perf_counter() - clock))


def predict(session: Session, machine: Machine, data: Split) -> np.ndarray[Any, Any]:
    """Runs the script of a claimed session on these records; its predictions for the records that are scored.

    Nothing is scored, and nothing of the script is kept. Raises `ContractBroken` if it reports no run, or another one
    than was declared.
    """
    blank = results.blank_result(session, machine, results.now())
    run = _ScriptRun(session=session, machine=machine, should_stop=lambda: False, blank=blank)
    content, log = charged_content(run._script), run._marked()
    with handed_over(PrivateStore.of_record(session.place.record), session.trial.id) as folder:
        status = run._run(folder, content, log, data)
        if status or not (folder / REPORT_FILE).exists():
            raise ContractBroken(_no_report(status))
        reported, taken, declaration = run._reported(folder), _read(folder).get("taken"), session.declaration
        check_reported(reported, session.trial.event.training, steps=declaration.steps, taken=taken)
        return run._predictions(folder, len(scored_part(declaration.score, data)))


@dataclass(frozen=True, kw_only=True)
class _ScriptRun:
    """One session of a script."""

    session: Session
    machine: Machine
    should_stop: Callable[[], bool]
    blank: TrialResult

    def result(self) -> TrialResult | None:
        """Runs the script and scores its predictions; None if the script ended early and the attempt may resume."""
        session, declaration = self.session, self.session.declaration
        content = charged_content(self._script)
        log = self._marked()
        data = load(session.trial.config, declaration.adjacency, self.machine.data, session.coins)
        with handed_over(PrivateStore.of_record(session.place.record), session.trial.id) as folder:
            status = self._run(folder, content, log, data)
            session.log.info("the script ended with status %d", status)
            if not (folder / REPORT_FILE).exists():
                if self._is_interrupted(status):
                    return None
                raise ChildProcessError(_no_report(status))
            return self._compared(folder, status, data)

    @property
    def _script(self) -> Script:
        return cast("Script", self.session.declaration.trainer)

    def _marked(self) -> StepLog:
        """The step log of the attempt, which begins or goes on from its checkpoint."""
        session = self.session
        place, trial, receipt = session.place, session.trial, session.receipt
        return go_on(place, trial, receipt) if receipt.resume else StepLog.begin(place, trial, receipt.attempt)

    def _run(self, folder: Path, content: bytes, log: StepLog, data: Split) -> int:
        """Marks the first stretch, hands the records over, and runs the script; its exit status."""
        script, session = self._script, self.session
        given = self._handover(log, data)
        marked = log.mark(first_stretch(given))
        replace(given, marked=marked.marked).write(folder)
        write_records(data.train, scored_part(session.declaration.score, data), folder)
        if log.header is not None:
            (folder / STATE_FILE).write_bytes(log.header.content(session.place.files))
        where = location(script)
        program = folder / PROGRAM / where.name
        program.write_bytes(content)
        return run_script(
            program,
            [f"--{name}={value}" for name, value in script.handed_over.items()],
            bare_environment(folder, [where.parent], device=self.machine.device, threads=self.machine.threads),
            folder=folder,
            output=session.place.files / OUTPUT,
            should_stop=self.should_stop,
        )

    def _handover(self, log: StepLog, data: Split) -> Handover:
        session, declaration = self.session, self.session.declaration
        config, receipt, scaling = session.trial.config, session.receipt, data.train.scaling
        plan = Plan.read(SweepFolder(root=session.place.files.parents[1]).plan)
        batch_size = declaration.sampler.batch_size
        return Handover(
            plan=receipt.plan,
            trial=receipt.trial,
            attempt=receipt.attempt,
            resume=receipt.resume,
            charge=receipt.charge,
            hyperparameters=self._script.handed_over,
            noise_multiplier=config["privacy"]["noise_multiplier"],
            sampler=config["sampler"]["kind"],
            sample_rate=batch_size / declaration.train_records,
            batch_size=batch_size,
            steps=declaration.steps,
            clip_norm=self._script.clip_norm,
            delta=plan.delta,
            adjacency=declaration.adjacency.value,
            unit=declaration.dataset.unit,
            records=declaration.train_records,
            classes=declaration.dataset.classes,
            shape=tuple(declaration.dataset.shape),
            seed=config["seed"],
            device=self.machine.device,
            threads=self.machine.threads,
            event=events.to_json(events.repeat(self._step_event, declaration.steps)),
            scaling={"scale": scaling.scale, "mean": scaling.mean, "std": scaling.std},
            step=0 if log.header is None else log.header.step,
            spent=log.spent,
            marked=log.marked,
            priced=steps_priced(session.trial),
            every=declaration.stretch,
            files=str(session.place.files.absolute()),
            record=str(session.place.record.absolute()),
        )

    @property
    def _step_event(self) -> events.DpEvent:
        """The declared event of one step: all steps of a script have the same noise."""
        ((step, _),) = events.flatten(self.session.trial.event.training)
        return step

    def _is_interrupted(self, status: int) -> bool:
        """Whether the script was stopped, or killed after a checkpoint: then there is no result."""
        session = self.session
        resumable = can_resume(session.place, session.trial, session.receipt.attempt)
        return self.should_stop() or (status < 0 and resumable)

    def _compared(self, folder: Path, status: int, data: Split) -> TrialResult:
        """Compares the report with the charge, keeps the script's files, and scores its predictions."""
        session, declaration, trial = self.session, self.session.declaration, self.session.trial
        log = StepLog.read(session.place, trial, session.receipt.attempt)
        reported, taken = self._reported(folder), _read(folder).get("taken")
        check_reported(reported, trial.event.training, steps=declaration.steps, taken=taken)
        if log.spent < declaration.steps:
            raise ContractBroken(
                f"Expected {declaration.steps} steps to be marked before they ran, got {log.spent}: with "
                "checkpoint.every a script takes its steps from each_step."
            )
        realised = events.repeat(self._step_event, log.spent)
        result = replace(
            self.blank,
            event=events.to_json(realised),
            steps=declaration.steps,
            curator={"empty": results.empty_parts(data), "reported": _read(folder)["event"]},
            counts=noisy_counts(declaration.score, declaration.dataset.classes),
        )
        try:
            check_realised(realised, trial.event.training, least=declaration.steps)
            if status != 0:
                raise ChildProcessError(_no_report(status))
            predictions = self._predictions(folder, len(scored_part(declaration.score, data)))
            result = replace(result, status=Status.FINISHED, model=keep_files(folder, session.place.files))
            check_scored(declaration.scoring, trial.event.validation)
            if trial.event.validation is not None:
                log.mark_score()
            return self._scored(result, predictions, data)
        except (ContractBroken, ChildProcessError, ValueError) as cause:
            return results.broken(result, cause)

    def _scored(self, result: TrialResult, predictions: np.ndarray[Any, Any], data: Split) -> TrialResult:
        """The result with the score of these predictions, counted and noised like those of a model of dpsweep's."""
        from dpsweep.trainers.foreign.looked_up import LookedUp, numbered

        declaration, score = self.session.declaration, self.session.declaration.score
        rows = numbered(scored_part(score, data))
        model = LookedUp(predictions, declaration.dataset.classes)
        same = replace(data, **{name: rows for name in ("train", "holdout", "test") if getattr(data, name) is not None})
        streams = make_streams(self.session.trial, self.session.receipt)
        return results.scored(result, score.measure(model, same, streams.score, "cpu", declaration.loss))

    def _reported(self, folder: Path) -> events.DpEvent:
        """The event in the report of this very session."""
        receipt, form = self.session.receipt, _read(folder)
        name = f"{receipt.plan}/{receipt.trial}/{receipt.attempt}/{receipt.resume}"
        if form.get("name") != name:
            raise ContractBroken(f"Expected the script to report attempt {name}, got {form.get('name')!r}.")
        try:
            return events.from_json(form["event"])
        except DAMAGE as cause:
            raise ContractBroken(f"Expected the script's {REPORT_FILE} to name an event: {cause}.") from cause

    def _predictions(self, folder: Path, records: int) -> np.ndarray[Any, Any]:
        """The predictions that the script hands back, in a known form."""
        path = folder / PREDICTIONS_FILE
        if path.is_symlink() or not path.is_file():
            raise ContractBroken("Expected the script to report its predictions: a script hands over no score.")
        try:
            table = read_npy(path)
        except UnreadableArray as cause:
            raise ContractBroken(f"Expected {PREDICTIONS_FILE} to be an array of numbers, got: {cause}.") from cause
        return checked(table, records, self.session.declaration.dataset.classes)


def _read(folder: Path) -> dict[str, Any]:
    """The report as plain values; raises `ContractBroken` for anything else."""
    try:
        form = json.loads((folder / REPORT_FILE).read_text())
    except (OSError, *DAMAGE) as cause:
        raise ContractBroken(f"Expected the script's {REPORT_FILE} to be readable: {cause}.") from cause
    if not isinstance(form, dict) or not isinstance(form.get("event"), dict):
        raise ContractBroken(f"Expected the script's {REPORT_FILE} to hold a name and an event.")
    return form


def _no_report(status: int) -> str:
    """Why a script that has ended has no result, in one sentence."""
    if status < 0:
        return f"The script was ended by signal {-status}; what it printed is in {OUTPUT}."
    if status > 0:
        return f"The script ended with status {status}; what it printed is in {OUTPUT}."
    return "The script ended without a report of what ran: call report(event=..., predictions=...) at its end."
