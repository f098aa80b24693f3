"""A sweep folder held against the ledger and against itself: is what it says what was charged?"""

from __future__ import annotations

from pathlib import Path

from accounting import events
from accounting.errors import BadInput, ContractBroken
from accounting.ledger import Ledger
from accounting.plan import Plan
from accounting.result import Status, TrialResult
from accounting.selection import rule_from_config
from sweeper.folder import SweepFolder


def verify_folder(root: Path, ledger: Ledger) -> str:
    """Checks plan, charge and results of one sweep folder; returns a sentence or raises the first contradiction.

    Checked are: the plan's own hash, that its event is the rule's event over its trials, that the ledger charged this
    event, that every attempt with a result was started and paid for, and that what ran is what was declared.
    """
    folder = SweepFolder(root=root)
    plan = Plan.read(folder.plan)
    statement = ledger.statement(plan.account)
    charges = [entry for entry in statement.charges if entry.plan == plan.id]
    if not charges and not folder.trials.exists():
        return f"{root}: plan {plan.id} was only made; nothing was charged or run."
    if not charges:
        raise ContractBroken(f"Plan {plan.id} in {root} was never charged on {plan.account}.")
    event = rule_from_config(plan.rule).event([trial.event for trial in plan.trials])
    recorded = {name: events.from_json(part) for name, part in charges[0].body["event"].items()}
    if event.parts.keys() != recorded.keys() or not all(
        events.same(part, recorded[name]) and events.same(part, plan.event.parts[name])
        for name, part in event.parts.items()
    ):
        raise ContractBroken(f"Plan {plan.id} in {root} is not what was charged for it.")
    checked = 0
    for trial in plan.trials:
        result = TrialResult.read(folder.trial(trial.id))
        if result is None:
            continue
        if not result.attempt <= statement.started(plan.id, trial.id) <= statement.covered(plan.id, trial.id):
            raise ContractBroken(f"Attempt {result.attempt} at trial {trial.id} was not started on a charge.")
        if result.status is Status.FINISHED:
            if result.event is None:
                raise BadInput(f"Expected the result of trial {trial.id} to say what ran.")
            if not events.same(events.from_json(dict(result.event)), trial.event.training):
                raise ContractBroken(f"Trial {trial.id} ran something else than was charged.")
        checked += 1
    return f"{root}: plan {plan.id} is what was charged; {checked} of {len(plan.trials)} results are there, all paid."
