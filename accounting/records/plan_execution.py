"""The execution of a plan: every point once, the runs that a sampler proposes, or the tries of a secret draw.

The price of a plan is the price of its event, so a plan may run only if its event describes the execution.
"""

from __future__ import annotations

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.recent import Recent
from dpsweep.accounting.records.plan import FINAL, Plan
from dpsweep.accounting.selection.interface import (
    Execution,
    Proposals,
    Search,
    SelectionRule,
    Use,
    rule_from_config,
)


def execution_of(plan: Plan) -> Execution:
    """The execution that this plan's price covers; raises `BadInput` if it does not pay for what its rule runs."""
    execution = _EXECUTIONS.of(plan)
    return _EXECUTIONS.keep(plan, _execution(plan)) if execution is None else execution


_EXECUTIONS: Recent[Execution] = Recent(most=4)


def _execution(plan: Plan) -> Execution:
    """The execution of a plan, for which its event is composed anew: a sweep asks for it many times."""
    rule = rule_from_config(plan.rule)
    if not plan.trials:
        raise BadInput(f"Expected plan {plan.id} to have a point, got none.")
    _require_declared_finals(plan, rule)
    proposals = Proposals.FIXED if plan.proposed is None else Proposals.ADAPTIVE
    rule.check(Search(proposals=proposals, shared=plan.shared))
    execution = rule.execution if rule.pays(plan.event, plan.paid) else None
    if plan.proposed is not None:
        execution = Execution.PROPOSED if execution is Execution.EVERY_POINT else None
    if execution is None:
        raise BadInput(
            f"A sweep under {rule.name} can be planned and priced, but not run: `sweep` runs every point once, or "
            "the tries of a draw that shows the winner alone. Choose tuning=composition, tuning=disjoint or "
            "tuning=private_selection."
        )
    return execution


def _require_declared_finals(plan: Plan, rule: SelectionRule) -> None:
    """Raises `BadInput` unless the plan has the final runs that its rule pays for, on the records that it says."""
    final = rule.final_run
    if len(plan.finals) != (0 if final is None else len(plan.trials)):
        raise BadInput(f"Expected each point of plan {plan.id} to have a final run if {rule.name} pays for one.")
    in_parts = final is not None and final.in_parts
    if plan.spares and (in_parts or rule.execution is not Execution.EVERY_POINT):
        raise BadInput(f"Expected plan {plan.id} to have no spare attempts, which {rule.name} does not pay for.")
    if any(one.final is not None for one in plan.finals):
        raise BadInput(f"Expected no final run of plan {plan.id} to be followed by another one.")
    for use, trials in ((Use.SEARCH, plan.trials), (Use.FINAL, plan.finals)):
        part = None if final is None else final.parts[use]
        for trial in trials:
            if trial.config.get("part") != part or trial.config.get(FINAL, False) is not (use is Use.FINAL):
                raise BadInput(f"Expected trial {trial.id} to be a run of the {use} as {rule.name} pays for it.")
