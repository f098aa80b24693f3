"""The execution of a plan: every point once, the runs that a sampler proposes, or the tries of a secret draw.

The price of a plan is the price of its event, so a plan may run only if its event describes the execution.
"""

from __future__ import annotations

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.execution import pays_for_execution
from dpsweep.accounting.selection.interface import Execution, Proposals, Search, rule_from_config


def execution_of(plan: Plan) -> Execution:
    """The execution that this plan's price covers; raises `BadInput` if it does not pay for what its rule runs."""
    rule = rule_from_config(plan.rule)
    execution = rule.execution if pays_for_execution(rule, plan.event, plan.paid) else None
    if plan.proposed is not None:
        rule.check(Search(proposals=Proposals.ADAPTIVE))
        execution = Execution.PROPOSED if execution is Execution.EVERY_POINT else None
    if execution is None:
        raise BadInput(
            f"A sweep under {rule.name} can be planned and priced, but not run yet: `sweep` runs every point once, or "
            "the tries of a draw that shows the winner alone. Choose tuning=composition or tuning=private_selection, "
            "and final=false."
        )
    return execution
