"""Searches that hide their losers, set up without training: points, places, and jobs whose fates are given."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256

from dpsweep.accounting.events import build as events
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.permit import Receipt
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.records.plan import Plan, Trial
from dpsweep.accounting.records.released_files import WINNER_FILE
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import MODEL_FILE, Status, TrialResult
from dpsweep.accounting.searches.interface import PlannedSearch, search_for_plan
from dpsweep.accounting.selection.interface import Draw
from dpsweep.reports.pages.release import write_release
from dpsweep.sweeper.job.hidden_search_log import HiddenSearchLog
from dpsweep.sweeper.searches.admission import Retry
from dpsweep.sweeper.searches.interface import RunQueue, admitted_search_for_plan
from dpsweep.sweeper.searches.secret_draw import AdmittedSecretDraw
from tests.reports.disclosure.forms import FORMATS
from tests.sweeper import digits_sweeps

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]
GRID = (
    "dataset=digits",
    "trainer=dpnsgd",
    "trainer.regularizer=0.1,1",
    "trainer.lr=2,8",
    "steps=3",
    "privacy.noise_multiplier=3",
    "score.noise_std=3",
    "accountant=rdp",
    "accountant.witnesses=[]",
)
"""Four points, priced by the quickest accountant alone."""
SELECTION = (*GRID, "tuning=private_selection", "tuning.mean=3")
POISSON = (*GRID, "tuning=poisson_selection", "tuning.mean=2")
THRESHOLD = (*GRID, "tuning=threshold", "tuning.threshold=0.8")
GRID_WINNER = (*GRID, "tuning=best_of_grid")
STOPPING = (*GRID, "tuning=random_stopping", "tuning.gamma=0.5")

ONCE = ("charge", "start", "settle", "launch")
"""What the ledger hears of such a search, whatever becomes of its tries."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a search is made: the folder that the program would use from `root`, and its ledger."""

    priced: PricedPlan
    folder: SweepFolder
    ledger: Ledger

    @property
    def plan(self) -> Plan:
        return self.priced.plan

    @property
    def search(self) -> PlannedSearch:
        return search_for_plan(self.plan, self.folder)

    def begin(self, retry: Retry = Retry.KILLED) -> RunQueue:
        """The command up to its first job."""
        queue = admitted_search_for_plan(self.priced, self.folder, self.ledger, retry).charge_and_queue_due_runs()
        self.plan.write(self.folder.plan_path)
        return queue

    def admit(self, retry: Retry = Retry.KILLED) -> HiddenSearchLog:
        log = AdmittedSecretDraw(
            priced=self.priced, folder=self.folder, ledger=self.ledger, retry=retry
        ).charge_and_start_or_continue_search()
        self.plan.write(self.folder.plan_path)
        return log

    def plant(self, draw: Draw) -> HiddenSearchLog:
        """Charges and starts a search, and puts another draw in the place of its own."""
        log = self.admit()
        self.folder.draw_path.unlink()
        replace(log.stored, draw=draw, salt="").write(self.folder.draw_path)
        (log.private_record_of_attempt.store.root / f"search-{log.private_record_of_attempt.attempt}.json").unlink()
        log.private_record_of_attempt.store_digest_of_draw(self.folder.draw_path)
        return self.admit()


def work(log: HiddenSearchLog, fates: Mapping[int, float | str | None], records: int = 100) -> list[int]:
    """Does a job's work for every try, in order, and returns those that were begun.

    A fate is a score on so many records, a status, or None for a job that dies.
    """
    begun = []
    for place, one in enumerate(log.drawn_tries_in_current_state()):
        for receipt in log.start_and_issue_receipts([one.trial]):
            _train(log, one.trial, receipt, fates[place], records)
            begun.append(place)
        log.record_ended_attempts()
    log.record_ended_attempts()
    return begun


def finish(log: HiddenSearchLog, fates: Mapping[int, float | str | None], last: float | str | None) -> Trial | None:
    """Does the jobs' work for the search, then for its final run; that one, if it was due."""
    work(log, fates)
    due = log.final_run_if_due(1)
    for receipt in log.start_and_issue_receipts(due):
        _train(log, due[0], receipt, last)
    log.record_ended_attempts()
    return due[0] if due else None


def _train(log: HiddenSearchLog, trial: Trial, receipt: Receipt, fate: float | str | None, records: int = 100) -> None:
    folder = log.sweep_folder.trial_folder(trial.id)
    receipt.write(folder)
    Receipt.claim(folder, log.sweep_folder.private_store, plan=log.search.plan.id, trial=trial.id)
    if fate is not None:
        (folder / MODEL_FILE).write_text(f"trained at {dict(trial.axes)}")
        result_of(trial, fate, receipt.attempt, records).write(folder)


def result_of(trial: Trial, fate: float | str, attempt: int = 1, records: int = 100) -> TrialResult:
    status = Status(fate) if isinstance(fate, str) else Status.FINISHED
    value = 0.0 if isinstance(fate, str) else fate
    return TrialResult(
        trial=trial.id,
        attempt=attempt,
        status=status,
        score=None if status is Status.FAILED else {"value": value, "low": value / 2, "high": (1 + value) / 2},
        event=None if status is Status.FAILED else events.to_json(trial.event.training),
        steps=3,
        seconds=1.0 + value,
        device="cpu",
        randomness="secret",
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:09+00:00",
        error="OSError: gone" if status is Status.FAILED else None,
        released_counts=(records * value, records * (1 - value)),
        parameters=None if status is Status.FAILED else 650,
    )


def released(place: Place) -> dict[str, bytes]:
    """What leaves, in all forms, but for the random salt of the winner's digest and what is computed from it."""
    folder = write_release(place.folder.root, place.ledger, tuple(FORMATS.values()), date(2031, 1, 2)).parent
    package = {path.name: path.read_bytes() for path in folder.iterdir()}
    record, bill = (json.loads(package[FORMATS[name].file]) for name in ("tre", "cyclonedx"))
    assert record["package"]["files"].pop(WINNER_FILE) == sha256(package.pop(WINNER_FILE)).hexdigest()
    record["package"]["sha256"] = bill["serialNumber"] = None
    forms = {FORMATS["tre"].file: record, FORMATS["cyclonedx"].file: bill}
    return package | {name: json.dumps(form).encode() for name, form in forms.items()}


def bodies(ledger: Ledger) -> list[tuple[int, str, str, object]]:
    """All that the entries say but their times, and the digest of a charge, and what is random."""
    entries = ledger.statement("digits").entries
    random = dict.fromkeys(("charge", "nonce", "winner", "manifest"))
    return [(entry.seq, entry.kind, entry.plan, {**entry.body, **random}) for entry in entries]


def folder_of(done: subprocess.CompletedProcess[str]) -> SweepFolder:
    assert done.returncode == 0, done.stderr
    return SweepFolder(root=digits_sweeps.folder_of(done))
