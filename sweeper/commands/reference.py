"""`dpsweep reference FOLDER`: what privacy costs, by one look at a model without it, recorded in the ledger."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.ledger.private_store import PrivateStore
from dpsweep.accounting.printing import escape_invisible_characters, print_line, print_lines
from dpsweep.accounting.records.plan import Trial
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.rehearsal import is_rehearsal_plan, ledger_of_sweep_folder
from dpsweep.reports.content.sweep_table import Sweep, read_sweep
from dpsweep.sweeper.coordinator.stored_plan import read_stored_plan
from dpsweep.sweeper.job.machine import Compute, data_folder_from_typed_name
from dpsweep.sweeper.trial.reference import require_method_without_privacy, train_without_privacy_and_compare

WARNING = (
    "For you alone: no epsilon covers these numbers. From now on every release of a sweep that is charged on {account} "
    "says that a model without privacy was looked at before."
)


def print_reference(root: Path) -> None:
    """Records the account's one look at a model without privacy, trains it, and prints both exact scores."""
    plan, ledger = read_stored_plan(root), ledger_of_sweep_folder(root)
    if is_rehearsal_plan(plan):
        raise BadInput(f"Expected {root} to be the folder of a sweep: a rehearsal has no private records.")
    sweep = read_sweep(root, ledger)
    trial = _scored_trial_of_winner(sweep)
    require_method_without_privacy(trial)
    by = escape_invisible_characters(getpass.getuser())
    ledger.record_reference(plan.account, plan=plan.id, trial=trial.id, by=by)
    folder = SweepFolder(root=root, store=PrivateStore.for_plan(ledger, plan.account, plan.id))
    machine = Compute(device="auto", threads=None, chunk=None, together=None).machine_of_worker_process(
        data_folder_from_typed_name(os.environ.get("DPSWEEP_DATA"))
    )
    found = train_without_privacy_and_compare(trial, plan.id, folder, machine)
    scale = sweep.score_scale
    without = "it diverged" if found.without is None else scale.exact_text(found.without.value)
    print_lines(
        f"exact {sweep.score_label} on the scored records of {plan.account}:\n"
        f"  with privacy     {scale.exact_text(found.with_privacy.value)}\n"
        f"  without          {without}"
    )
    print_line(WARNING.format(account=plan.account))


def _scored_trial_of_winner(sweep: Sweep) -> Trial:
    """The run whose model is handed over, with the score of the search where a card takes the place of its own."""
    if sweep.winner_id is None:
        raise BadInput(f"Expected {sweep.folder} to have a winner, whose settings a reference takes.")
    trial, search = sweep.trial_with_id(sweep.winner_id), sweep.plan.trials[0]
    return replace(trial, config={**trial.config, "score": search.config["score"]})
