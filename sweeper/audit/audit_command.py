"""`dpsweep audit`: plans as `dpsweep plan` does, attacks the plan, and writes `audit.json` into the sweep's folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsweep.accounting.errors import BadInput, ContractBroken, ExitCode
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.sweeper.audit.audit import audited
from dpsweep.sweeper.audit.audit_table import show_audit
from dpsweep.sweeper.coordinator.request import SweepRequest
from dpsweep.sweeper.planning.plan_builder import compose_plan


def audit(request: SweepRequest) -> ExitCode:
    """Audits the plan of a request, charges nothing, and reads no private record.

    Raises `ContractBroken` if an attack finds more than the plan's price.
    """
    priced = compose_plan(request.points, request.plan)
    folder = _folder(priced.plan, request)
    machine = replace(request.compute.machine(request.data), threads=request.compute.threads or 1, processes=1)
    record = audited(priced, request.audit, machine, np.random.default_rng())
    show_audit(record, priced.plan.account)
    try:
        folder.make()
        if not folder.plan.exists():
            priced.plan.write(folder.plan)
        record.write(folder.audit)
    except OSError as cause:
        raise BadInput(f"Expected {folder.root} to be a place for audit.json: {cause.strerror}.") from cause
    print_line(folder.audit)
    if record.refuted:
        raise ContractBroken(
            f"An attack found more than the price of plan {priced.plan.id}: this is a defect of dpsweep or of your own "
            "code in the plan. Do not rely on this price; SECURITY.md says whom to tell."
        )
    return ExitCode.DONE


def _folder(plan: Plan, request: SweepRequest) -> SweepFolder:
    """The sweep's folder; raises `BadInput` if it holds another plan."""
    folder = SweepFolder(root=request.jobs.of_plan(plan.id).folder)
    if folder.plan.exists() and not plan.is_stored(folder.plan) and (earlier := Plan.read(folder.plan).id) != plan.id:
        raise BadInput(f"Expected {folder.root} to be empty or hold plan {plan.id}; it holds plan {earlier}.")
    return folder
