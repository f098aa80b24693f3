"""A charged plan that is read back from its sweep folder, with its price, so that the search can continue.

The command's defaults may have changed since, and then the same command means another plan.
"""

from __future__ import annotations

from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.pricing.panel import Panel
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.pricing.search_price import runs_alone
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.selection.interface import rule_from_config
from dpsweep.sweeper.planning.declared_point import declared_anew
from dpsweep.trainers.data.interface import nominal_units


def stored_plan(folder: Path) -> Plan:
    """The plan of a sweep folder.

    Raises `BadInput` if there is none, or if it names a class or script that is not dpsweep's: a folder is data, and
    nothing is imported or run because a file names it.
    """
    path = folder / "plan.json"
    if not path.is_file():
        raise BadInput(f"Expected {folder} to be a sweep folder with a plan.json.")
    plan = Plan.read(path)
    if plan.foreign_names:
        raise BadInput(
            f"Expected plan {plan.id} to name code of dpsweep alone, got {', '.join(sorted(plan.foreign_names))}: "
            "give the command that made this sweep, which names your own code."
        )
    return plan


def stored_search(plan: Plan, panel: Panel, accept_delta: object = None) -> PricedPlan:
    """The plan with its price under these accountants, which is that of further attempts; offers no other rule."""
    dearest = max(runs_alone(plan.trials), key=lambda event: panel.epsilon(event, plan.delta, plan.adjacency))
    return PricedPlan(
        plan=plan,
        rule=rule_from_config(plan.rule),
        panel=panel,
        quote=panel.quote(plan.event, plan.delta, plan.adjacency, plan.unit),
        single_run=panel.quote(dearest, plan.delta, plan.adjacency, plan.unit),
        offers={},
        units=nominal_units(declared_anew(plan.trials[0]).declaration.dataset),
        run_of=declared_anew,
        accept_delta=accept_delta,
    )
