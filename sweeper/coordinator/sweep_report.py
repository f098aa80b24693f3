"""Report of a sweep after its last run: the page, the study, the failed runs and the runs that are not over.

The curator is warned of a sweep that read no records, or whose learning rates changed no weight: a wrong file costs
budget and trains on noise. If a record may be added or removed, the number of records is private, and nothing before
the charge depends on it. The jobs that read the records note in their results which part was empty, among the facts
that never leave the curator's folder, and the coordinator prints a warning on the terminal. Invariant: no page, ledger
line or released file depends on it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.printing import print_error, print_line
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.records.trial_result import Status, TrialResult
from dpsweep.accounting.rehearsal import is_rehearsal_plan
from dpsweep.accounting.searches.interface import PlannedSearch, search_for_plan
from dpsweep.accounting.selection.rules import rule_from_config
from dpsweep.reports.content.formatting import enumeration_text
from dpsweep.reports.pages.page_memory import failed_picture_sentences, redraw_report_if_outdated
from dpsweep.sweeper.coordinator import study
from dpsweep.sweeper.coordinator.signals import command_to_pay_again
from dpsweep.sweeper.job.attempt_state import AttemptStates
from dpsweep.sweeper.loggers.interface import Loggers, log_results_and_collect_failures
from dpsweep.sweeper.searches.interface import RunQueue
from dpsweep.sweeper.searches.runner import stored_results_of_trials
from dpsweep.sweeper.timing.time_estimate import Speeds

REASONS = 5
"""The most reasons of failed runs that are printed; the trials' logs have all."""

LONGEST = 300
"""The most characters of a reason that are printed."""


def write_results_and_print_report(
    plan: Plan,
    folder: SweepFolder,
    ledger: Ledger,
    work: RunQueue,
    states: AttemptStates,
    *,
    speeds: Speeds,
    storage: str | None,
    page: bool,
    loggers: Loggers,
    before_print: Callable[[], None],
) -> ExitCode:
    """Writes the results and prints what is missing; `storage` is the address of the study.

    `before_print` is called between the two.

    The last printed lines say what may be passed on, then the path of the curator's page, or of the folder if no page
    was asked for.
    """
    outcomes, complaints = stored_results_of_trials(work.known_runs, folder), list[str]()
    try:
        study.record_results_in_study(plan, folder, work.known_runs, outcomes, storage)
    except BadInput as cause:
        complaints.append(f"The study was not written. {cause}")
    if not rule_from_config(plan.rule).draws_in_secret:  # the file is shared
        speeds.store_median_speeds_of_results(work.known_runs, outcomes)
    folder.plan_path.stat()  # a folder that vanished meanwhile is an error of the disk
    result = redraw_report_if_outdated(folder.root, ledger) if page else folder.root
    complaints += failed_picture_sentences(result) if page else ()
    complaints += log_results_and_collect_failures(loggers, folder, ledger)
    before_print()
    for complaint in (*complaints, *curator_warning_sentences(outcomes, plan.account)):
        print_error(complaint)
    if troubled := len(states.failed) + len(states.killed):
        losses = work.losses.format(folder=folder.trials_folder)
        print_error(f"{troubled} of {work.total} {losses}")
        if notice := work.repetition(command_to_pay_again()):
            print_error(notice)
        for reason, runs in count_failure_reasons(outcomes).most_common(REASONS):
            print_error(f"{runs} failed: {reason}")
    if number_of_unfinished_runs(states, work):
        print_error(
            f"The sweep is not finished: {unfinished_runs_text(states, work)}. The same command goes on with these."
        )
    else:
        print_line(release_line(search_for_plan(plan, folder), ledger, states))
    print_line(f"for you alone, the {'page' if page else 'folder'}:")
    print_line(result)
    return ExitCode.DONE_WITH_FAILURES if troubled or number_of_unfinished_runs(states, work) else ExitCode.DONE


def count_failure_reasons(outcomes: Sequence[TrialResult]) -> Counter[str]:
    """The first lines of the errors of failed runs, and how many runs ended by each; for the curator alone."""
    errors = (outcome.error or "" for outcome in outcomes if outcome.status is Status.FAILED)
    return Counter(next(iter(error.splitlines()), "no reason is known")[:LONGEST] for error in errors)


def release_line(search: PlannedSearch, ledger: Ledger, states: AttemptStates) -> str:
    """The command that writes what may leave the curator's folder, and what it leaves out; or why there is none."""
    plan, root = search.plan, search.folder.root
    if is_rehearsal_plan(plan):
        return (
            "to pass on: nothing, since this was a REHEARSAL; `dpsweep sweep` with the same words runs the sweep itself"
        )
    if plan.has_reproducible_run and not plan.has_public_data:
        return "to pass on: nothing, since whoever knows the seed can subtract the noise"
    without = ""
    killed = len(search.killed_runs_to_repeat(states.killed))
    if killed or (states.failed and not search.rule.draws_in_secret):
        runs = search.read_runs_and_winner(ledger.statement(plan.account, plan.id))
        if not runs.over:
            return "to pass on: nothing yet, since the final run waits until the killed runs are repeated or given up"
        if runs.winner is None:
            return "to pass on: nothing, since no run that may be handed over has finished"
    if killed:
        without = f" without {killed} killed run{'s, which have' if killed > 1 else ', which has'} no score"
    place = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
    return f"to pass on{without}: {shlex.join(['dpsweep', 'release', str(place)])}"


def number_of_unfinished_runs(states: AttemptStates, work: RunQueue) -> int:
    """The number of runs that are not over."""
    return len(states.fresh + states.interrupted + states.working) + work.number_of_unproposed_runs


def unfinished_runs_text(states: AttemptStates, work: RunQueue) -> str:
    """The runs that are not over, as text."""
    counts = (
        (states.fresh, "not begun"),
        (states.interrupted, "waiting at a checkpoint"),
        (states.working, "still running"),
    )
    parts = [f"{len(trials)} {how}" for trials, how in counts if trials]
    parts += [f"{work.number_of_unproposed_runs} not proposed"] if work.number_of_unproposed_runs else []
    return f"{enumeration_text(parts)}, of {work.total} trials"


EMPTY, TRAIN, HOLDOUT = "empty", "train", "holdout"
"""The key of the fact in a result, and the parts of a split that it may name."""

NEVER_FOUND = "never_found"
"""The key of the declared values that no record has."""

UNCHANGED = "unchanged"
"""The key of the names of parameters whose updates were too small to change them."""


def curator_warning_sentences(results: Iterable[TrialResult], account: str) -> Iterator[str]:
    """Sentences for the curator alone: on parts and declared values without records, and on unchanged weights."""
    results = tuple(results)
    if names := list(dict.fromkeys(str(name) for result in results for name in result.curator.get(UNCHANGED, ()))):
        runs = sum(UNCHANGED in result.curator for result in results)
        yield (
            f"The learning rate of {runs} run{'s' if runs > 1 else ''} was too small to change {', '.join(names)}: "
            "every update was below the precision of the weights. They stay charged; raise trainer.lr."
        )
    if never := list(dict.fromkeys(str(name) for result in results for name in result.curator.get(NEVER_FOUND, ()))):
        yield (
            f"No record of {account} has the declared value{'s' if len(never) > 1 else ''} {', '.join(never)}: look at "
            "the spelling in dataset.categories. Keep this to yourself: what no record has is private."
        )
    empty = {str(part) for result in results for part in result.curator.get(EMPTY, ())}
    if TRAIN in empty:
        yield (
            f"No record of {account} was there to train on, so every model of this sweep is noise alone: look at its "
            "file. Keep this to yourself, since how many records there are is private."
        )
    if HOLDOUT in empty:
        yield (
            f"No record of {account} is held out, so every score of this sweep is noise alone. Keep this to yourself: "
            "how many records there are is private."
        )
