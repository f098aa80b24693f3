"""`dpsweep audit`: plans as `dpsweep plan` does, attacks the plan, and writes `audit.json` into the sweep's folder.

In the terminal the outcome has a row for each attack, then what all of them say together. The audit itself is one that
a distribution has registered (`audit.by`); ours, `canaries`, is `sweeper/audit/audit.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from dpsweep.accounting.audit_record import Attack, AuditFinding, AuditRecord, Scope
from dpsweep.accounting.errors import ContractBroken, ExitCode
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_down, epsilon_text_rounded_up
from dpsweep.accounting.pricing.priced_plan import PricedPlan
from dpsweep.accounting.printing import print_line, print_lines
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.stored_names.entry_points import AUDITS, load_registered_part, part_errors_as_bad_input
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

    Raises `ContractBroken` if an attack finds more than the plan's price.
    """
    priced = compose_plan_on_account(request.points, request.plan, Ledger(Ledger.user_ledger_place()))
    folder = SweepFolder(root=request.jobs.for_plan(priced.plan.id).sweep_folder_path)
    priced.plan.require_no_other_plan_in_file(folder.plan_path)
    machine = replace(request.compute.machine_of_worker_process(request.data), threads=request.compute.threads or 1)
    record = _run_audit_named_in_settings(priced, request.audit, machine)
    print_audit_record(record, priced.plan.account)
    folder.create_folder()
    if not folder.plan_path.exists():
        priced.plan.write(folder.plan_path)
    record.write(folder.audit_record_path)
    print_line(folder.audit_record_path)
    if record.is_charge_or_noise_refuted:
        raise ContractBroken(
            f"An attack found more than the price of plan {priced.plan.id}: this is a defect of dpsweep or of your own "
            "code in the plan. Do not rely on this price; SECURITY.md says whom to tell."
        )
    return ExitCode.DONE


def _run_audit_named_in_settings(priced: PricedPlan, settings: AuditSettings, machine: Machine) -> AuditRecord:
    """The record of the audit that the settings name."""
    word = f"audit.by={settings.by}"
    audit: PlanAudit = load_registered_part(AUDITS, settings.by, word)
    with part_errors_as_bad_input(AUDITS, settings.by, word):
        return audit(priced, settings, machine, np.random.default_rng())


UNKNOWN = "?"
EXPLANATION = (
    "right: how many secret coins were guessed; epsilon: the lower bound that these guesses prove; p-value: of the\n"
    "price's whole privacy curve, with another number of guesses; below {false_alarm} it contradicts the price;\n"
    "power: the chance to contradict the price if the noise were half, where it is known"
)

NOISE = (
    "farthest: the standard deviation farthest from the declared one, as a multiple of it (pairs: the largest\n"
    "correlation); p-value: corrected for all tests; below {false_alarm} it contradicts the declared noise;\n"
    "power: the chance to find that one number, or one tensor, has half the noise"
)


def print_audit_record(record: AuditRecord, account: str) -> None:
    """Prints the record."""
    title = f"Audit of plan {record.plan} on {account}, by canaries among {record.records} records"
    table = _empty_table_with_columns(("attack", "sees"), ("right", "epsilon", "price", "p-value", "power"), title)
    for finding in sorted(record.findings, key=lambda one: ([*Scope].index(one.scope), [*Attack].index(one.attack))):
        table.add_row(
            *_cells_of_finding(finding),
            style="bold" if finding.refutes_charged_epsilon(record.false_alarm_of_each_attack_test) else None,
        )
    terminal = Terminal(soft_wrap=True)
    terminal.print_table(table)
    print_lines(EXPLANATION.format(false_alarm=f"{record.false_alarm_of_each_attack_test:.2g}"))
    if record.noise:
        terminal.print_table(_noise_table(record))
        false_alarm = record.false_alarm_of_each_noise_test
        print_lines(NOISE.format(false_alarm=f"{false_alarm:.2g}"))
    for line in sentences_below_table(record):
        print_line(line)


def _empty_table_with_columns(texts: Sequence[str], numbers: Sequence[str], title: str = "") -> TerminalTable:
    """An empty table with columns of texts, then columns of numbers."""
    table = TerminalTable(title=title, pad_edge=False, box=PLAIN, padding=(0, 1, 0, 0))
    for column in (*texts, *numbers):
        table.add_column(column, justify="right" if column in numbers else "left", no_wrap=True)
    return table


def _noise_table(record: AuditRecord) -> TerminalTable:
    table = _empty_table_with_columns(("released noise",), ("tested", "draws", "farthest", "p-value", "power"))
    for finding in record.noise:
        power = UNKNOWN if finding.halved_seen is None else f"{finding.halved_seen:.0%}"
        table.add_row(
            *(finding.test, str(finding.tested), str(finding.draws), f"{finding.value:.3f}"),
            *(f"{finding.p_value:.2g}", power),
            style="bold" if finding.refutes_declared_noise(record.false_alarm_of_each_noise_test) else None,
        )
    return table


def sentences_below_table(record: AuditRecord) -> Iterator[str]:
    """The sentences below the table."""
    yield (
        f"attack {epsilon_text_rounded_down(record.epsilon)} <= true epsilon <= charge "
        f"{epsilon_text_rounded_up(record.charge)}, at delta "
        f"{delta_text_rounded_up(record.delta)}; the attack holds with {record.confidence:.0%} confidence"
    )
    if record.floating_point is None:
        yield "THE NOISE LEAKS: some noisy numbers are off the lattice of their noise (Mironov 2012)."
    elif record.floating_point:
        yield f"floating point: {record.floating_point} noisy numbers, none off the lattice of its noise"
    yield from record.notes
    for finding in record.noise_findings_refuting_declaration:
        yield f"THE NOISE IS NOT THE DECLARED ONE: {finding.test}, {finding.value:.3f} at {finding.place}."
    if record.attack_findings_refuting_charge:
        which = ", ".join(f"{finding.attack} ({finding.scope})" for finding in record.attack_findings_refuting_charge)
        yield f"THE PRICE IS CONTRADICTED by {which}."
    elif not record.is_charge_or_noise_refuted:
        yield "No attack contradicts the price. docs/audit.md says what this shows, and what not."


def _cells_of_finding(finding: AuditFinding) -> Iterator[str]:
    yield finding.attack
    yield finding.scope
    yield f"{finding.right} of {finding.made}"
    yield epsilon_text_rounded_down(finding.epsilon)
    yield epsilon_text_rounded_up(finding.claimed)
    yield "none" if finding.p_value is None else f"{finding.p_value:.2g}"
    yield UNKNOWN if finding.halved_seen is None else f"{finding.halved_seen:.0%}"
