"""A sweep folder held against the ledger and against itself: is what it says what was charged?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from accounting import events
from accounting.account import Statement
from accounting.errors import BadInput, ContractBroken
from accounting.execution import Execution, Outcome, execution_of, read_draw
from accounting.folder import SweepFolder
from accounting.ledger import Ledger
from accounting.lines import End
from accounting.plan import Plan, Trial
from accounting.proposals import choices_of
from accounting.reading import as_written
from accounting.receipt import Receipt
from accounting.result import Status, TrialResult
from accounting.selection import rule_from_config
from accounting.steps import is_charged


def verify_folder(root: Path, ledger: Ledger) -> str:
    """Checks plan, charge and results of one sweep folder; returns a sentence or raises the first contradiction.

    Checked are: the plan's own hash, that its event is the rule's event over its trials, that the ledger charged this
    event, that every attempt with a result was started and paid for, and that what ran is what was declared. Where a
    secret draw or a sampler says what is tried, nothing else may have run.
    """
    with as_written(f"the sweep in {root}"):
        return _verify_folder(root, ledger)


def _verify_folder(root: Path, ledger: Ledger) -> str:
    folder = SweepFolder(root=root)
    if not folder.plan.is_file():
        raise BadInput(f"Expected {root} to be a sweep folder with a plan.json.")
    plan = Plan.read(folder.plan)
    statement = ledger.statement(plan.account)
    charges = [entry for entry in statement.charges if entry.plan == plan.id]
    if not charges and not folder.trials.exists():
        return f"{root}: plan {plan.id} was only made; nothing was charged or run."
    if not charges:
        raise ContractBroken(f"Plan {plan.id} in {root} was never charged on {plan.account}.")
    event = rule_from_config(plan.rule).event(plan.paid)
    recorded = {name: events.from_json(part) for name, part in charges[0].body["event"].items()}
    if event.parts.keys() != recorded.keys() or not all(
        events.same(part, recorded[name]) and events.same(part, plan.event.parts[name])
        for name, part in event.parts.items()
    ):
        raise ContractBroken(f"Plan {plan.id} in {root} is not what was charged for it.")
    found = _VERIFY[execution_of(plan)](plan, folder, statement)
    return f"{root}: plan {plan.id} is what was charged; {found}"


def remembered_ends(root: Path) -> frozenset[End]:
    """How the ledger's chain ended when the attempts in a sweep folder began, by their receipts."""
    places = SweepFolder(root=root).trials.glob("*")
    receipts = [receipt for place in places if (receipt := Receipt.read(place)) is not None]
    return frozenset(End(entries=receipt.entries, head=receipt.head) for receipt in receipts)


def _verify_runs(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    runs = folder.runs(plan)
    checked = 0
    for trial in runs:
        result = TrialResult.read(folder.trial(trial.id))
        if result is None:
            continue
        if not result.attempt <= statement.started(plan.id, trial.id):
            raise ContractBroken(f"Attempt {result.attempt} at trial {trial.id} was not started on a charge.")
        _verify_result(trial, result)
        checked += 1
    return f"{checked} of {len(runs)} results are there, all paid."


def _verify_proposed(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    """Every run is of a point that was proposed at its turn, and there are no more attempts than were charged."""
    known = {run.id for run in folder.runs(plan)}
    for place in folder.trials.iterdir() if folder.trials.exists() else ():
        if Receipt.claimed(place, 1) and place.name not in known:
            raise ContractBroken(f"Trial {place.name} ran without having been proposed.")
    if statement.attempts(plan.id).spares < 0:
        raise ContractBroken(f"More runs of plan {plan.id} were started than were charged.")
    return f"{len(known)} of {len(choices_of(plan))} runs were proposed; {_verify_runs(plan, folder, statement)}"


def _verify_tries(plan: Plan, folder: SweepFolder, statement: Statement) -> str:
    """Every run is a try of the stored draw, which belongs to a search that was charged; their number is not said."""
    stored = read_draw(plan, folder.draw)
    if stored is None:
        return "its draw is lost, and the search with it."
    if not stored.attempt <= statement.started(plan.id, plan.id) <= statement.covered(plan.id, plan.id):
        raise ContractBroken(f"Attempt {stored.attempt} at the search {plan.id} was not started on a charge.")
    tries = {one.trial.id: one for one in folder.tries(plan, stored)}
    for place in folder.trials.iterdir() if folder.trials.exists() else ():
        if Receipt.claimed(place, stored.attempt) and place.name not in tries:
            raise ContractBroken(f"Trial {place.name} ran without a place in the draw.")
    for one in tries.values():
        if one.result is not None:
            _verify_result(one.trial, one.result)
    outcome = Outcome.read(folder.outcome)
    if outcome is None or outcome.attempt != stored.attempt:
        return "its search is not over."
    won = None if outcome.winner is None else tuple(tries.values())[outcome.winner].score
    if (outcome.winner is None) != (won is None):
        raise ContractBroken(f"The winner of the search {plan.id} has no score.")
    return "its search is over, paid, and ran nothing but its draw."


def _verify_result(trial: Trial, result: TrialResult) -> None:
    if result.status is not Status.FINISHED:
        return
    if result.event is None:
        raise BadInput(f"Expected the result of trial {trial.id} to say what ran.")
    realised = events.from_json(dict(result.event))
    if not is_charged(realised, trial.event.training, least=trial.config["steps"]):
        raise ContractBroken(f"Trial {trial.id} ran something else than was charged.")


_VERIFY: Mapping[Execution, Callable[[Plan, SweepFolder, Statement], str]] = {
    Execution.EVERY_POINT: _verify_runs,
    Execution.PROPOSED: _verify_proposed,
    Execution.DRAWN_TRIES: _verify_tries,
}
