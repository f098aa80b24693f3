"""`dpsweep audit`: plans as `dpsweep plan` does, audits the plan, and writes `audit.json` into the sweep's folder.

In the terminal the outcome has a row for each comparison, then the attack's bound beside the price. The audit itself is
one that a distribution has registered (`audit.by`); ours, `recompute`, is `sweeper/audit/audit.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from dpsweep.accounting.audit.record import FALSE_ALARM, AuditRecord, false_alarm_of_each
from dpsweep.accounting.errors import ContractBroken, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.upkeep import user_ledger_place
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.stored_names.tags import AUDITS, load_registered_part, part_errors_as_bad_input
from dpsweep.sweeper.coordinator.request import AuditSettings, SweepRequest
from dpsweep.sweeper.planning.plan_builder import compose_plan_on_account
from dpsweep.sweeper.terminal import PLAIN, Terminal, TerminalTable
from dpsweep.sweeper.trial.session import Machine


class PlanAudit(Protocol):
    """An audit of a plan, which a distribution registers in the group `dpsweep.audits`.

    It trains as the plan declares, on records that nobody's privacy depends on, and reads no private record.
    """

    def __call__(
        self, priced: PricedPlan, settings: AuditSettings, machine: Machine, rng: np.random.Generator
    ) -> AuditRecord:
        """The record of a new audit; raises `BadInput` if the plan cannot be audited."""


def audit(request: SweepRequest) -> ExitCode:
    """Audits the plan of a request, charges nothing, and reads no private record.

    Raises `ContractBroken` if something that ran is not what was declared, or an attack finds more than the price.
    """
    priced = compose_plan_on_account(request.points, request.plan, Ledger(user_ledger_place()))
    folder = SweepFolder(root=request.jobs.for_plan(priced.plan.id).sweep_folder_path)
    priced.plan.require_no_other_plan_in_file(folder.plan_path)
    machine = replace(request.compute.machine_of_worker_process(request.data), threads=request.compute.threads or 1)
    settings, word = request.audit, f"audit.by={request.audit.by}"
    own: PlanAudit = load_registered_part(AUDITS, settings.by, word)
    with part_errors_as_bad_input(AUDITS, settings.by, word):
        record = own(priced, settings, machine, np.random.default_rng())
    print_audit_record(record, priced.plan.account)
    folder.create_folder()
    if not folder.plan_path.exists():
        priced.plan.write(folder.plan_path)
    record.write(folder.audit_record_path)
    print_line(folder.audit_record_path)
    if record.contradictions:
        raise ContractBroken(
            f"What ran is not what plan {priced.plan.id} declares: {'; '.join(record.contradictions)}. This is a "
            "defect of dpsweep or of your own code in the plan. Do not rely on its price, and tell us (SECURITY.md)."
        )
    return ExitCode.DONE


def print_audit_record(record: AuditRecord, account: str) -> None:
    """Prints the record."""
    title = f"Audit of plan {record.plan} on {account}, on generated records"
    table = TerminalTable(title=title, pad_edge=False, box=PLAIN, padding=(0, 1, 0, 0))
    for column in ("compared", "numbers", "farthest", "expected", "p-value"):
        table.add_column(column, justify="left" if column in ("compared", "expected") else "right", no_wrap=True)
    for one in record.comparisons:
        wrong = one.contradicts(false_alarm_of_each(record.comparisons))
        table.add_row(
            *(one.name, str(one.compared), f"{one.value:.4g}", one.expected),
            "" if one.p_value is None else f"{one.p_value:.2g}",
            style="bold" if wrong else None,
        )
    Terminal(soft_wrap=True).print_table(table)
    for line in sentences_below_table(record):
        print_line(line)


def sentences_below_table(record: AuditRecord) -> Iterator[str]:
    """The sentences below the table."""
    if record.canaries:
        yield (
            f"one training: attack {epsilon_text_rounded_down(record.epsilon)} <= true epsilon <= price "
            f"{epsilon_text_rounded_up(record.price)}, at delta {delta_text_rounded_up(record.delta)}; {record.right} "
            f"of {record.made} coins were guessed; the attack holds with {record.confidence:.0%} confidence"
        )
    yield f"the whole search is charged {epsilon_text_rounded_up(record.charge)}"
    yield from record.notes
    yield from (f"NOT AS DECLARED: {sentence}" for sentence in record.contradictions)
    if record.comparisons and not record.contradictions:
        yield (
            "Everything in this table is as declared. A right program fails it with a probability below "
            f"{FALSE_ALARM:.0e}; docs/audit.md lists the mistakes that it finds, and those that it does not."
        )
