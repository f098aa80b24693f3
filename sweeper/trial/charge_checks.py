"""Checks that a run made exactly the accesses that were charged: its steps, its company, and its score."""

from __future__ import annotations

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events import build as events
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.records.step_log import is_charged


def check_realised(realised: DpEvent, declared: DpEvent, *, least: int) -> None:
    """Raises `ContractBroken` unless the run made at least `least` accesses, and all of them were charged."""
    if not is_charged(realised, declared, least=least):
        raise ContractBroken(f"The run differs from its charge: realised {realised}, declared {declared}.")


def check_company(company: int, *, shared: bool) -> None:
    """Raises `ContractBroken` if runs shared subsamples but were charged for independent subsamples."""
    if company != 1 and not shared:
        raise ContractBroken(f"The run differs from its charge: {company} runs had the same subsamples.")


def check_scored(measured: DpEvent | None, declared: DpEvent | None) -> None:
    """Raises `ContractBroken` unless the score about to be measured is the one that was charged."""
    same = measured is declared if measured is None or declared is None else events.same(measured, declared)
    if not same:
        raise ContractBroken(f"The score differs from its charge: measured {measured}, declared {declared}.")
