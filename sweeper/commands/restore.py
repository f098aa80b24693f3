"""`dpsweep budget restore`: restores a lost ledger from known records, with an entry, and never with a lower cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.ledger.restore import Receipts, paid_charges, restore
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.selection.interface import rule_from_config


def restore_ledger(arguments: Sequence[str]) -> None:
    """`dpsweep budget restore [--backup FILE] [FOLDER...]` restores a ledger from a copy, memory and receipts."""
    backup, roots = _options(arguments)
    place = Ledger.locate()
    folders = [sweep for root in roots for sweep in _receipts(root, paid_charges(place))]
    done = restore(place, backup=backup, folders=folders)
    for sentence in done:
        print_line(sentence)
    if not done:
        print_line(f"Nothing to restore: the ledger {Ledger(place).name} holds all that is remembered here of it.")


def _options(arguments: Sequence[str]) -> tuple[str | None, list[Path]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--backup")
    parser.add_argument("folders", nargs="*", type=Path)
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as cause:
        raise BadInput(f"Expected --backup FILE and sweep folders: {cause}.") from cause
    if unknown:
        raise BadInput(f"Expected {unknown[0]} to be --backup FILE or a sweep folder.")
    for folder in options.folders:
        if not (folder / "plan.json").is_file():
            raise BadInput(f"Expected {folder} to be a sweep folder with a plan.json.")
    return options.backup, options.folders


def _receipts(root: Path, paid: frozenset[str]) -> Iterator[Receipts]:
    """The receipts of a folder and the price of its plan, if a receipt names a charge that the ledger does not hold."""
    from dpsweep.sweeper.commands.account_statement import PANEL

    folder = SweepFolder(root=root)
    receipts = [receipt for place in sorted(folder.trials.glob("*")) if (receipt := Receipt.read(place)) is not None]
    if {receipt.charge for receipt in receipts} <= paid:
        return
    plan = Plan.read(folder.plan)
    event = rule_from_config(plan.rule).event(plan.paid)
    yield Receipts(
        folder=root,
        account=plan.account,
        plan=plan.id,
        budget=plan.budget,
        cost=PANEL.quote(event, plan.delta, plan.adjacency, plan.unit).guarantee,
        event=event,
        receipts=tuple(receipt for receipt in receipts if receipt.plan == plan.id),
        spares=plan.spares,
    )
