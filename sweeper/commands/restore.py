"""`dpsweep budget restore`: restores a lost ledger from known records, with an entry, and never with a lower cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.receipt import Receipt
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.sweep_folder import SweepFolder, require_sweep_folder
from dpsweep.accounting.restoration.restore import (
    digests_of_paid_charges,
    lost_entries_sentence,
    restore_ledger_and_describe,
)
from dpsweep.accounting.restoration.restored_lines import Receipts
from dpsweep.accounting.selection.interface import rule_from_config


def restore_ledger(arguments: Sequence[str]) -> None:
    """`dpsweep budget restore [--backup FILE | --as-another] [FOLDER...]` restores a ledger from what is known.

    With `--as-another` a copy of a ledger goes on as another one, charged up to what is remembered of the first.
    With `--new-witness` the witness that DPSWEEP_WITNESS names takes the place of one that is lost.
    """
    options = _parse_restore_options(arguments)
    place = Ledger.user_ledger_place()
    if sentence := lost_entries_sentence(place, options.backup):
        print_line(sentence, flush=True)
    folders = [
        sweep
        for root in options.folders
        for sweep in _folder_receipts_if_some_not_in_ledger(root, digests_of_paid_charges(place))
    ]
    done = restore_ledger_and_describe(
        place, backup=options.backup, folders=folders, as_another=options.as_another, new_witness=options.new_witness
    )
    for sentence in done:
        print_line(sentence)
    if not done:
        print_line(f"Nothing to restore: the ledger {Ledger(place).name} holds all that is remembered here of it.")


def _parse_restore_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--backup")
    parser.add_argument("--as-another", action="store_true")
    parser.add_argument("--new-witness", action="store_true")
    parser.add_argument("folders", nargs="*", type=Path)
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as cause:
        raise BadInput(f"Expected --backup FILE or --as-another, and sweep folders: {cause}.") from cause
    if unknown:
        raise BadInput(f"Expected {unknown[0]} to be --backup FILE, --as-another or a sweep folder.")
    if options.backup is not None and options.as_another:
        raise BadInput("Expected --backup or --as-another: a backup restores the ledger that it is a copy of.")
    for folder in options.folders:
        require_sweep_folder(folder)
    return options


def _folder_receipts_if_some_not_in_ledger(root: Path, paid: frozenset[str]) -> Iterator[Receipts]:
    """The receipts of a folder and the price of its plan, if a receipt names a charge that the ledger does not hold."""
    from dpsweep.sweeper.commands.account_statement import PANEL

    folder = SweepFolder(root=root)
    receipts = [
        receipt for place in sorted(folder.trials_folder.glob("*")) if (receipt := Receipt.read(place)) is not None
    ]
    if {receipt.charge for receipt in receipts} <= paid:
        return
    plan = Plan.read(folder.plan_path)
    event = rule_from_config(plan.rule).event(plan.priced_events)
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
