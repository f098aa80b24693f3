"""What is said of a sweep once nothing more of it runs: the page, the study, what failed and what is left."""

from __future__ import annotations

import sys

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.selection.interface import Execution
from dpsweep.sweeper.coordinator import study
from dpsweep.sweeper.coordinator.attempt_state import AttemptStates
from dpsweep.sweeper.coordinator.empty_parts import warnings_of
from dpsweep.sweeper.coordinator.runner import results
from dpsweep.sweeper.coordinator.work import RunQueue
from dpsweep.sweeper.planning.step_times import Speeds


def report(
    plan: Plan,
    folder: SweepFolder,
    ledger: Ledger,
    work: RunQueue,
    states: AttemptStates,
    *,
    execution: Execution,
    speeds: Speeds,
    storage: str | None,
) -> ExitCode:
    """Writes down what came out, and says what is missing; `storage` is where the study is kept."""
    from dpsweep.reports.pages.curator_page import write_report

    ended = results(work.runs, folder)
    try:
        study.record(plan, folder, work.runs, ended, storage)
    except BadInput as cause:
        print(f"The study was not written. {cause}", file=sys.stderr)
    if execution is not Execution.DRAWN_TRIES:  # the file is shared, and which tries were drawn is secret
        speeds.record(work.runs, ended)
    folder.plan.stat()  # a folder that vanished meanwhile is an error of the disk
    page = write_report(folder.root, ledger)
    for warning in warnings_of(ended, plan.account):
        print(warning, file=sys.stderr)
    if troubled := len(states.failed) + len(states.killed):
        losses = work.losses.format(folder=folder.trials)
        print(f"{troubled} of {work.total} {losses}", file=sys.stderr)
    if open_runs(states, work):
        print(f"The sweep is left with {rest(states, work)}; the same command goes on with them.", file=sys.stderr)
    print(page)
    return ExitCode.DONE_WITH_FAILURES if troubled or open_runs(states, work) else ExitCode.DONE


def open_runs(states: AttemptStates, work: RunQueue) -> int:
    """How many runs are not over."""
    return len(states.fresh + states.interrupted + states.working) + work.unproposed


def rest(states: AttemptStates, work: RunQueue) -> str:
    """What is not over, in words."""
    counts = (
        (states.fresh, "not begun"),
        (states.interrupted, "waiting at a checkpoint"),
        (states.working, "still at work"),
    )
    parts = [f"{len(trials)} {how}" for trials, how in counts if trials]
    parts += [f"{work.unproposed} not proposed"] if work.unproposed else []
    return f"{', '.join(parts)} of {work.total} trials"
