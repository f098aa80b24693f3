"""Runs of scripts of the user's own, from claimed receipts to result files.

A run is: mark its steps, hand over the records, run the script, compare what it reports with the charge, keep its
files, count its predictions. A script that differs, fails or never reports is a failed result; the charge stays. A
script that was stopped or killed after a checkpoint leaves no result, and a receipt to resume goes on from it.

The script's file is read once for the plan, and compared with the plan before each run. Its checksum is part of a
trial's configuration, so an edited script is another plan with another charge. Modules that the script imports are not
part of it.

The script's process has its own group, a bare environment, and an end that leaves nothing running. It dies with the job
that started it, as workers do, and what it started itself is killed when it ends, in whatever group it is
(`sweeper/processes.py`). Its output goes to a file that only the curator may read. A stop request is passed on as
SIGTERM, once. The script starts with SIGTERM blocked, and `dpsweep.attempt` unblocks it: a request that comes earlier
waits, and a script that never listens runs to its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import dpsweep
from dpsweep.accounting.durable_files import mode_with_group
from dpsweep.accounting.errors import DAMAGE, BadInput, ContractBroken, turn_file_errors_into_refusal
from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.permit import PrivateStore, StepLog
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import can_resume, read_checkpoint_of_log
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.stored_names.stored_classes import SCRIPT
from dpsweep.sweeper.processes import adopt_orphans_and_kill_at_end, function_to_die_with_parent
from dpsweep.sweeper.trial import results
from dpsweep.sweeper.trial.build import make_streams
from dpsweep.sweeper.trial.handover import (
    PROGRAM,
    archive_script_output_and_return_sha256,
    temporary_session_folder,
    write_records_for_script,
)
from dpsweep.sweeper.trial.session import (
    Machine,
    TrialSession,
    check_realised_dp_event_was_charged,
    check_score_dp_event_was_charged,
    check_subsample_sharing_was_charged,
)
from dpsweep.trainers.data.arrays import UnreadableArray, read_npy
from dpsweep.trainers.declarations.scores import number_of_noisy_counts, scored_records_of_split
from dpsweep.trainers.methods.script import Script, is_script_config
from dpsweep.trainers.scripts.handover_files import (
    ATTEMPT_FILE,
    PREDICTIONS_FILE,
    REPORT_FILE,
    STATE_FILE,
    VARIABLE,
    WORK,
    Handover,
    require_valid_predictions,
    steps_in_first_stretch,
)
from dpsweep.trainers.scripts.reported_events import check_reported_event

if TYPE_CHECKING:
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.methods.script import Script

LOOK_SECONDS = 0.05

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "HF_HOME", "SYSTEMROOT")
"""The variables of the job's environment that a script needs to find programs, its caches and its language."""

OFFLINE = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "WANDB_MODE": "disabled",
}
"""What keeps usual libraries from sending or fetching anything; a script that wants to can still open a connection."""


def script_environment_variables(folder: Path, modules: Sequence[Path], *, device: str, threads: int) -> dict[str, str]:
    """The environment of a script in this folder, which may import from the folders `modules` too."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    devices = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    if device == "cpu":
        devices = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    package = Path(str(dpsweep.__file__)).parents[1]
    return {
        **kept,
        **devices,
        **OFFLINE,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(map(str, (*modules, package))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / WORK),
        VARIABLE: str(folder / ATTEMPT_FILE),
    }


@adopt_orphans_and_kill_at_end()
def run_script_and_return_exit_status(
    program: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    output: Path,
    should_stop: Callable[[], bool],
) -> int:
    """Runs a Python program in `folder`/work to its end; its exit status, or minus the number of a signal.

    Whatever ends this function ends the script and all processes that it started.
    """
    handle = os.open(output, os.O_CREAT | os.O_APPEND | os.O_WRONLY, mode_with_group(output))
    try:
        process = subprocess.Popen(
            [sys.executable, "-u", str(program), *arguments],
            cwd=folder / WORK,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
            preexec_fn=_hook_before_program_start(
                function_to_die_with_parent(os.getpid()) if sys.platform == "linux" else None
            ),
        )
    finally:
        os.close(handle)
    asked = False
    try:
        while (
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        ):  # a child that ended keeps its number
            if not asked and should_stop():
                asked = True
                process.send_signal(signal.SIGTERM)
            time.sleep(LOOK_SECONDS)
    finally:
        with suppress(ProcessLookupError):  # before the process is waited for, since then its number may be another's
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return status


def _hook_before_program_start(bind: Callable[[], None] | None) -> Callable[[], None]:
    """What the script's process does before the program starts: it blocks SIGTERM, and binds itself to its job."""

    def block_sigterm_and_bind_to_job() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if bind is not None:
            bind()

    return block_sigterm_and_bind_to_job


MISSING = "???"
"""How a configuration writes a value that the user has to give."""


def config_with_script_checksum(config: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """The configuration with the checksum of its script and without a model; unchanged without a script.

    `keys` are the keys on the command line. Raises `BadInput` if a model is among them, if the script cannot be read,
    or if it is no Python program.
    """
    if not is_script_config(config):
        return dict(config)
    trainer = config["trainer"]
    if trainer.get(SCRIPT) in (None, MISSING):
        raise BadInput("Expected script=FILE with trainer=script: the Python file that trains one model.")
    if any(key.partition(".")[0] == "model" for key in keys):
        raise BadInput("Expected model to be left out with trainer=script: the script makes its own.")
    content = _read_script_file(str(trainer[SCRIPT]))
    try:
        compile(content, str(trainer[SCRIPT]), "exec")
    except (SyntaxError, ValueError) as cause:
        raise BadInput(f"Expected script={trainer[SCRIPT]} to be a Python program: {cause}.") from cause
    own = {SCRIPT: str(Path(str(trainer[SCRIPT]))), "sha256": sha256(content).hexdigest()}
    return {**config, "model": {}, "trainer": {**trainer, **own}}


def read_unchanged_script_content(script: Script) -> bytes:
    """The content of the script that was charged; raises `ContractBroken` if the file has changed since."""
    content = _read_script_file(script.script)
    if sha256(content).hexdigest() != script.sha256:
        raise ContractBroken(
            f"Expected {script.script} to be as it was charged: its SHA-256 is another, so it does not run. The same "
            "command plans and charges the changed script."
        )
    return content


def _read_script_file(path: str) -> bytes:
    with turn_file_errors_into_refusal(BadInput, f"Expected script={path} to be a readable file"):
        return Path(path).expanduser().read_bytes()


OUTPUT = "script.log"
"""What a script printed; for the curator only."""


def run_scripts_and_write_results(
    sessions: Sequence[TrialSession],
    machine: Machine,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    shared: bool = False,
) -> None:
    """Runs the scripts of these trials, one after another, and writes their results; errors are results too."""
    for session in sessions:
        clock = time.perf_counter()
        blank = results.failed_result_template_before_training(session, machine, results.utc_timestamp())
        results.log_attempt_begin(session)
        try:
            check_subsample_sharing_was_charged(1, shared=shared)
            result = _ScriptRun(
                session=session, machine=machine, should_stop=should_stop, blank=blank
            ).run_script_and_score_predictions()
        except Exception as error:  # noqa: BLE001 - a failed session must not end the others
            results.write_result_of_failed_session(session, blank, error, time.perf_counter() - clock)
            continue
        if result is None:
            step = StepLog.read(session.place, session.trial, session.receipt.attempt).header
            results.log_session_stopped(session, 0 if step is None else step.step)
        else:
            results.write_final_result(session, replace(result, seconds=time.perf_counter() - clock))


@dataclass(frozen=True, kw_only=True)
class _ScriptRun:
    """One session of a script."""

    session: TrialSession
    machine: Machine
    should_stop: Callable[[], bool]
    blank: TrialResult

    def run_script_and_score_predictions(self) -> TrialResult | None:
        """Runs the script and scores its predictions; None if the script ended early and the attempt may resume."""
        session, content = self.session, read_unchanged_script_content(self._declared_script)
        place, receipt = session.place, session.receipt
        empty = StepLog(place=place, attempt=receipt.attempt, priced=session.trial.priced_steps)
        log = StepLog.resume(place, session.trial, receipt) if receipt.resume else empty
        data = session.open_split(self.machine)
        store = PrivateStore(root=session.place.record.parents[1])
        with temporary_session_folder(store, session.trial.id) as folder:
            status = self._hand_over_records_and_run_script(folder, content, log, data)
            session.trial_logger.info("the script ended with status %d", status)
            if not (folder / REPORT_FILE).exists():
                if self._is_script_interrupted(status):
                    return None
                raise ChildProcessError(_sentence_why_script_left_no_result(status))
            return self._check_and_score_report(folder, status, data)

    @property
    def _declared_script(self) -> Script:
        return cast("Script", self.session.declaration.trainer)

    def _hand_over_records_and_run_script(self, folder: Path, content: bytes, log: StepLog, data: Split) -> int:
        """Marks the first stretch, hands the records over, and runs the script; its exit status."""
        script, session = self._declared_script, self.session
        given = self._handover_for_script(log, data)
        marked = log.take(steps_in_first_stretch(given))
        replace(given, marked=marked.marked).write(folder)
        write_records_for_script(data.train, scored_records_of_split(session.declaration.score, data), folder)
        if log.header is not None:
            (folder / STATE_FILE).write_bytes(read_checkpoint_of_log(log)[1])
        where = Path(script.script).expanduser().absolute()
        program = folder / PROGRAM / where.name
        program.write_bytes(content)
        return run_script_and_return_exit_status(
            program,
            [f"--{name}={value}" for name, value in script.script_hyperparameters.items()],
            script_environment_variables(
                folder, [where.parent], device=self.machine.device, threads=self.machine.threads
            ),
            folder=folder,
            output=session.place.files / OUTPUT,
            should_stop=self.should_stop,
        )

    def _handover_for_script(self, log: StepLog, data: Split) -> Handover:
        session, declaration = self.session, self.session.declaration
        config, receipt, scaling = session.trial.config, session.receipt, data.train.scaling
        plan = Plan.read(SweepFolder(root=session.place.files.parents[1]).plan_path)
        batch_size = declaration.sampler.batch_size
        return Handover(
            plan=receipt.plan,
            trial=receipt.trial,
            attempt=receipt.attempt,
            resume=receipt.resume,
            charge=receipt.charge,
            hyperparameters=self._declared_script.script_hyperparameters,
            noise_multiplier=config["privacy"]["noise_multiplier"],
            sampler=config["sampler"]["kind"],
            sample_rate=batch_size / declaration.nominal_training_units,
            batch_size=batch_size,
            steps=declaration.steps,
            clip_norm=self._declared_script.clip_norm,
            delta=plan.delta,
            adjacency=declaration.adjacency.value,
            unit=declaration.dataset.unit,
            records=declaration.nominal_training_units,
            classes=declaration.dataset.classes,
            shape=tuple(declaration.dataset.shape),
            seed=config["seed"],
            device=self.machine.device,
            threads=self.machine.threads,
            event=events.to_json(events.repeat(self._declared_dp_event_per_step, declaration.steps)),
            scaling={"scale": scaling.scale, "mean": scaling.mean, "std": scaling.std},
            step=0 if log.header is None else log.header.step,
            spent=log.spent,
            marked=log.marked,
            priced=session.trial.priced_steps,
            every=declaration.steps_between_checkpoints,
            files=str(session.place.files.absolute()),
            record=str(session.place.record.absolute()),
            target=declaration.dataset.target,
            label_names=declaration.dataset.label_names,
        )

    @property
    def _declared_dp_event_per_step(self) -> events.DpEvent:
        """The declared event of one step: all steps of a script have the same noise."""
        ((step, _),) = events.leaves_with_counts(self.session.trial.event.training)
        return step

    def _is_script_interrupted(self, status: int) -> bool:
        """Whether the script was stopped, or killed after a checkpoint: then there is no result."""
        session = self.session
        resumable = can_resume(session.place, session.trial, session.receipt.attempt)
        return self.should_stop() or (status < 0 and resumable)

    def _check_and_score_report(self, folder: Path, status: int, data: Split) -> TrialResult:
        """Compares the report with the charge, keeps the script's files, and scores its predictions."""
        session, declaration, trial = self.session, self.session.declaration, self.session.trial
        log = StepLog.read(session.place, trial, session.receipt.attempt)
        reported, taken = self._dp_event_in_script_report(folder), _read_report(folder).get("taken")
        check_reported_event(reported, trial.event.training, steps=declaration.steps, taken=taken)
        if log.spent < declaration.steps:
            raise ContractBroken(
                f"Expected {declaration.steps} steps to be marked before they ran, got {log.spent}: with "
                "checkpoint.every a script takes its steps from each_step."
            )
        realised = events.repeat(self._declared_dp_event_per_step, log.spent)
        result = replace(
            self.blank,
            event=events.to_json(realised),
            steps=declaration.steps,
            curator={"empty": results.names_of_empty_record_parts(data), "reported": _read_report(folder)["event"]},
            counts=number_of_noisy_counts(declaration.score, declaration.dataset.classes),
        )
        try:
            check_realised_dp_event_was_charged(realised, trial.event.training, least=declaration.steps)
            if status != 0:
                raise ChildProcessError(_sentence_why_script_left_no_result(status))
            predictions = self._read_predictions(folder, len(scored_records_of_split(declaration.score, data)))
            result = replace(
                result,
                status=Status.FINISHED,
                model=archive_script_output_and_return_sha256(folder, session.place.files),
            )
            check_score_dp_event_was_charged(declaration.scoring_dp_event, trial.event.validation)
            if trial.event.validation is not None:
                log.score()
            return self._result_with_score_of_predictions(result, predictions, data)
        except (ContractBroken, ChildProcessError, ValueError) as cause:
            return results.contract_broken_result(result, cause)

    def _result_with_score_of_predictions(
        self, result: TrialResult, predictions: np.ndarray[Any, Any], data: Split
    ) -> TrialResult:
        """The result with the score of these predictions, counted and noised like those of a model of dpsweep's."""
        from dpsweep.trainers.scripts.prediction_table import LookedUp, records_with_row_numbers

        declaration, score = self.session.declaration, self.session.declaration.score
        rows = records_with_row_numbers(scored_records_of_split(score, data))
        several = bool(declaration.dataset.label_names)
        model = LookedUp(predictions, declaration.dataset.classes, several_labels=several)
        same = replace(data, **{name: rows for name in ("train", "holdout", "test") if getattr(data, name) is not None})
        streams = make_streams(self.session.trial, self.session.receipt)
        return results.result_with_finite_score_or_failed(
            self.session, result, score.measure(model, same, streams.score, "cpu", declaration.loss)
        )

    def _dp_event_in_script_report(self, folder: Path) -> events.DpEvent:
        """The event in the report of this very session."""
        receipt, form = self.session.receipt, _read_report(folder)
        name = f"{receipt.plan}/{receipt.trial}/{receipt.attempt}/{receipt.resume}"
        if form.get("name") != name:
            raise ContractBroken(f"Expected the script to report attempt {name}, got {form.get('name')!r}.")
        try:
            return events.from_json(form["event"])
        except DAMAGE as cause:
            raise ContractBroken(f"Expected the script's {REPORT_FILE} to name an event: {cause}.") from cause

    def _read_predictions(self, folder: Path, records: int) -> np.ndarray[Any, Any]:
        """The predictions that the script hands back, in a known form."""
        path = folder / PREDICTIONS_FILE
        if path.is_symlink() or not path.is_file():
            raise ContractBroken("Expected the script to report its predictions: a script hands over no score.")
        try:
            table = read_npy(path)
        except UnreadableArray as cause:
            raise ContractBroken(f"Expected {PREDICTIONS_FILE} to be an array of numbers, got: {cause}.") from cause
        dataset = self.session.declaration.dataset
        return require_valid_predictions(table, records, dataset.classes, several_labels=bool(dataset.label_names))


def _read_report(folder: Path) -> dict[str, Any]:
    """The report as plain values; raises `ContractBroken` for anything else."""
    try:
        form = json.loads((folder / REPORT_FILE).read_text())
    except (OSError, *DAMAGE) as cause:
        raise ContractBroken(f"Expected the script's {REPORT_FILE} to be readable: {cause}.") from cause
    if not isinstance(form, dict) or not isinstance(form.get("event"), dict):
        raise ContractBroken(f"Expected the script's {REPORT_FILE} to hold a name and an event.")
    return form


def _sentence_why_script_left_no_result(status: int) -> str:
    """Why a script that has ended has no result, in one sentence."""
    if status < 0:
        return f"The script was ended by signal {-status}; what it printed is in {OUTPUT}."
    if status > 0:
        return f"The script ended with status {status}; what it printed is in {OUTPUT}."
    return "The script ended without a report of what ran: call report(event=..., predictions=...) at its end."
