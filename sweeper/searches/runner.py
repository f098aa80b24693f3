"""Runs the trials of an admitted plan through Hydra's launcher.

Every attempt is marked as started before it is launched, and jobs are handed over in batches: the launcher queues
them. A job that no worker took has touched nothing, so when a launcher loses jobs, the jobs with unused receipts are
launched again. A job that was believed lost may still run without harm: one of the two finds the receipt used. Results
come back as files, so a lost worker costs no finished trial. Interrupted runs, which may resume on their charge, are
launched again up to `resume` times each.

The tries of a secret draw are no jobs: other users of the machine see processes. There are as many jobs as workers,
whatever the draw, and each takes the next try as long as there is one (`sweeper/job/secret_tries.py`).
Their receipts are written one after another: a group commit has a thread for every few of them, which `ps` counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dpsweep.accounting.errors import ContractBroken, DpsweepError, NoReceipt
from dpsweep.accounting.files import call_for_each
from dpsweep.accounting.ledger.permit import RECEIPT_FILE, Receipt
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.taken_steps import is_claimed
from dpsweep.accounting.records.trial_result import TrialResult
from dpsweep.accounting.searches.interface import PlannedSearch
from dpsweep.sweeper.job.job_task import write_receipt
from dpsweep.sweeper.job.locks import is_being_trained
from dpsweep.sweeper.job.machine import Compute
from dpsweep.sweeper.launchers.hydra_jobs import HydraJobs, JobLauncher, Value
from dpsweep.sweeper.searches.attempt_log import AttemptLog
from dpsweep.sweeper.trial.blocks import CARD, TRIES, Job, jobs_with_due_points

LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A search, its attempt log (`log`), and the jobs of the launcher that Hydra is configured with.

    `compute` is the resources of each job, `data` the folder of the official files, `workers` the number of jobs that
    run at once, and `batch` the number of jobs that are handed over at once. A job should make at least `least` runs;
    the jobs of a secret draw are as many as the workers all the same. `refill`, the queue's, is asked where the
    launcher refills its workers one by one. `resumed` counts how often each run was launched again.
    """

    search: PlannedSearch
    log: AttemptLog
    jobs: HydraJobs
    compute: Compute
    data: Path | None
    workers: int
    batch: int
    least: int = 1
    refill: Callable[[int], Sequence[Trial]] | None = None
    resume: int = 0
    resumed: Counter[str] = field(default_factory=Counter)

    @property
    def sweep_folder(self) -> SweepFolder:
        """The folder of the sweep."""
        return self.search.folder

    def run_blocks_and_collect_errors(self, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Runs one attempt at each trial, or fewer after a stop request; returns errors of the launcher and its jobs.

        Raises `ContractBroken` if a job refused its trials and no other job took them.
        """
        launcher = self.jobs.job_launcher_for_folder(self.sweep_folder.root)
        jobs = [
            *jobs_with_due_points(
                self.search.trainable_blocks(),
                trials,
                workers=self.workers,
                together=self.compute.together,
                least=self.least,
            )
        ]
        complaints: list[str] = []
        for first in range(0, len(jobs), self.batch):
            if not self.sweep_folder.stop_file_path.exists():
                complaints += self._launch_jobs_until_taken_return_errors(
                    launcher, jobs[first : first + self.batch], first
                )
        return tuple(dict.fromkeys(complaints))

    def run_tries_on_workers_and_collect_errors(self, trials: Sequence[Trial]) -> tuple[str, ...]:
        """Does what `run_blocks_and_collect_errors` does, by a job for each worker, which take the trials in turn.

        It ends with a launch whose jobs all ended by themselves, or in which no run was taken. After one that lost a
        job there is always another, also where no try is left: a list of jobs then does not tell whether there were any
        others. Trials that no worker took, and those to resume, are launched again with it.
        """
        launcher = self.jobs.job_launcher_for_folder(self.sweep_folder.root)
        due, is_job_lost, progress = tuple(trials), False, True
        complaints: list[str] = []
        errors: dict[Job, Exception] = {}
        while progress and not self.sweep_folder.stop_file_path.exists():
            receipts = self.log.start_and_issue_receipts(due)
            due = tuple(trial for trial in due if trial.id in {receipt.trial for receipt in receipts})
            if not due and not is_job_lost:
                break
            for receipt in receipts:
                self._write_receipt(receipt)
            claimed_before = self._ids_of_runs_with_claimed_receipts()
            jobs = [Job(block=TRIES, part=place, parts=self.workers, due=due) for place in range(self.workers)]
            errors = self._launch_jobs_once_and_return_errors(launcher, jobs, 0)
            self.log.record_ended_attempts()
            complaints += [
                _error_type_and_first_line(error) for error in errors.values() if not isinstance(error, DpsweepError)
            ]
            used = self._ids_of_runs_with_claimed_receipts() - claimed_before
            states = self.log.states_of_runs()
            is_job_lost = bool(errors) or any(trial.id in used for trial in states.interrupted + states.killed)
            to_resume = [trial for trial in self.runs_to_resume() if trial.id in used]
            due, progress = (*(trial for trial in due if trial.id not in used), *to_resume), bool(used)
            self._require_plan_and_receipts(due)
        for refusal in (error for error in errors.values() if due and isinstance(error, DpsweepError)):
            raise ContractBroken(f"A job refused its tries, which stay charged: {refusal}") from refusal
        return tuple(dict.fromkeys(complaints))

    def _ids_of_runs_with_claimed_receipts(self) -> set[str]:
        """The runs, the final one among them, whose last receipt was used; a damaged receipt is none."""
        claimed = set()
        for trial in self.log.known_runs():
            place = self.sweep_folder.trial_folder_and_private_record(trial.id)
            with suppress(NoReceipt):
                receipt = Receipt.read(place.files)
                claimed |= {trial.id} if receipt is not None and is_claimed(receipt, place) else set()
        return claimed

    def runs_to_resume(self) -> tuple[Trial, ...]:
        """The interrupted runs that are launched again, once all others have ended; none after a stop request.

        *Guarantee*: they resume on the charge that paid for them, as the repeated command would resume them.
        """
        if not self.resume:
            return ()
        self._wait_for_runs_still_in_training()  # a job that its queue starts again may take the receipt of a new one
        if self.sweep_folder.stop_file_path.exists():
            return ()
        interrupted = self.log.states_of_runs().interrupted
        runs = tuple(trial for trial in interrupted if self.resumed[trial.id] < self.resume)
        self.resumed.update(trial.id for trial in runs)
        return runs

    def read_card_and_collect_errors(self, part: int) -> tuple[str, ...]:
        """Runs the job that reads the card's claimed part; the job decides whether it may."""
        launcher = self.jobs.job_launcher_for_folder(self.sweep_folder.root)
        errors = self._launch_jobs_once_and_return_errors(launcher, [Job(block=CARD, part=part, parts=1, due=())], 0)
        return tuple(map(_error_type_and_first_line, errors.values()))

    def _launch_jobs_until_taken_return_errors(
        self, launcher: JobLauncher, jobs: Sequence[Job], first: int
    ) -> list[str]:
        """Launches these jobs until workers took all of them, or until a launch in which no job was taken."""
        receipts_by_trial = self._start_and_write_receipts([trial for job in jobs for trial in job.due])
        waiting = [job for job in jobs if any(trial.id in receipts_by_trial for trial in job.due)]
        complaints: list[str] = []
        errors: dict[Job, Exception] = {}
        progress = True
        while waiting and progress and not self.sweep_folder.stop_file_path.exists():
            if self.refill is not None and launcher.refills:
                errors = self._launch_and_refill_jobs_and_return_errors(launcher, waiting, first, receipts_by_trial)
            else:
                errors = self._launch_jobs_once_and_return_errors(launcher, waiting, first)
            complaints += [
                _error_type_and_first_line(error) for error in errors.values() if not isinstance(error, DpsweepError)
            ]
            remaining = [job for job in waiting if not self._has_worker_taken_job(job, receipts_by_trial)]
            progress, waiting = len(remaining) < len(waiting), remaining
            self._require_plan_and_receipts([trial for job in remaining for trial in job.due])
        self.log.record_ended_attempts()
        for refusal in (errors[job] for job in waiting if isinstance(errors.get(job), DpsweepError)):
            raise ContractBroken(f"A job refused its block, which stays charged: {refusal}") from refusal
        return complaints

    def _start_and_write_receipts(self, trials: Sequence[Trial]) -> dict[str, Receipt]:
        """The receipts of attempts that start now, by trial."""
        receipts = self.log.start_and_issue_receipts(trials)
        call_for_each(self._write_receipt, receipts)
        return {receipt.trial: receipt for receipt in receipts}

    def _write_receipt(self, receipt: Receipt) -> None:
        write_receipt(receipt, self.sweep_folder.trial_folder(receipt.trial))

    def _launch_and_refill_jobs_and_return_errors(
        self, launcher: JobLauncher, jobs: list[Job], first: int, receipts: dict[str, Receipt]
    ) -> dict[Job, Exception]:
        """The errors, by job, of these jobs and of those that `refill` adds to them, with their receipts.

        Raises what the search raises when it is asked for a run, once the jobs at work have ended.
        """
        raised: list[Exception] = []

        def settings_of_jobs() -> Iterator[dict[str, Value]]:
            handed = 0
            while handed < len(jobs) or add_due_job():
                handed += 1
                yield self._settings_passed_to_job(jobs[handed - 1])

        def add_due_job() -> bool:
            known = len(jobs)
            try:
                self.log.record_ended_attempts()
                if self.refill is not None and (due := self.refill(self.workers - 1)):
                    receipts.update(self._start_and_write_receipts(due))
                    jobs.extend(jobs_with_due_points(self.search.trainable_blocks(), due, workers=1, together=1))
            except Exception as cause:  # noqa: BLE001 - joblib would wait for ever
                raised.append(cause)
            return len(jobs) > known

        errors = self._launch_jobs_once_and_return_errors(launcher, jobs, first, settings_of_jobs())
        for cause in raised:
            raise cause
        return errors

    def _require_plan_and_receipts(self, trials: Sequence[Trial]) -> None:
        """Raises `OSError` if the plan or a receipt of these trials, which existed at the launch, is gone."""
        for trial in trials:
            self.sweep_folder.plan_path.stat()
            (self.sweep_folder.trial_folder(trial.id) / RECEIPT_FILE).stat()

    def _launch_jobs_once_and_return_errors(
        self,
        launcher: JobLauncher,
        jobs: Sequence[Job],
        first: int,
        settings: Iterable[dict[str, Value]] | None = None,
    ) -> dict[Job, Exception]:
        """The errors, by job; an error of the launcher itself applies to all jobs."""
        try:
            errors = launcher.launch(settings or [self._settings_passed_to_job(job) for job in jobs], first)
        except Exception as cause:  # noqa: BLE001 - a dead worker must not lose its neighbours' results
            self._wait_for_runs_still_in_training()
            return dict.fromkeys(jobs, cause)
        return {job: error for job, error in zip(jobs, errors, strict=True) if error is not None}

    def _wait_for_runs_still_in_training(self) -> None:
        """Waits for the runs that jobs still make after their launcher failed."""
        for trial in self.log.known_runs():
            while is_being_trained(self.sweep_folder.trial_folder(trial.id)):
                time.sleep(LOOK_SECONDS)

    def _has_worker_taken_job(self, job: Job, receipts: Mapping[str, Receipt]) -> bool:
        own = (receipts[trial.id] for trial in job.due if trial.id in receipts)
        return any(
            is_claimed(receipt, self.sweep_folder.trial_folder_and_private_record(receipt.trial)) for receipt in own
        )

    def _settings_passed_to_job(self, job: Job) -> dict[str, Value]:
        """The settings by which a job finds its part of a block; the plan holds everything about the trials."""
        return {
            "block": job.block,
            "part": job.part,
            "parts": job.parts,
            "trusted": sorted(self.search.plan.names_of_user_classes_and_scripts),
            "hydra.sweep.dir": str(self.sweep_folder.root),
            "store": str(self.sweep_folder.private_store.root),
            "data": None if self.data is None else str(self.data.absolute()),
            **{f"compute.{key}": value for key, value in asdict(self.compute).items()},
        }


def stored_results_of_trials(trials: Sequence[Trial], folder: SweepFolder) -> tuple[TrialResult, ...]:
    """The results of these trials so far."""
    stored = (TrialResult.read(folder.trial_folder(trial.id)) for trial in trials)
    return tuple(result for result in stored if result is not None)


def _error_type_and_first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
