"""Whether there is anything to train on, looked at once before the first charge, for the curator's eyes alone.

Where a record may be added or removed, how many there are is private: a run over no records trains on noise, is charged
like any other, and its page says nothing of it. So the coordinator counts once, for data sets whose files have no
published size, and refuses on the curator's terminal, with exit code 2. Nothing is charged then, written or released,
as where a row cannot be read. What always holds: no page, ledger line or released file depends on the count, and a
sweep that was charged is not counted again.
"""

from __future__ import annotations

from pathlib import Path

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.names.stored_classes import KIND
from dpsweep.accounting.records.plan import Plan
from dpsweep.sweeper.trial.build import load
from dpsweep.sweeper.trial.spec import declare

FILES = "files"
"""The field of data sets whose files are published, and with them how many records they hold."""


def refuse_no_records(plan: Plan, folder: Path | None) -> str:
    """What to tell the curator where no record is held out; raises `BadInput` where none would be trained on.

    Data sets of the user's own classes are not counted: what they do when they are read is their own affair.
    """
    config = plan.trials[0].config
    if KIND not in config["dataset"] or FILES in config["dataset"]:
        return ""
    split = load(config, plan.adjacency, folder)
    declared, name = declare(config).dataset.records, plan.account
    if not split.train.available:
        held = "" if split.holdout is None else f", and {len(split.holdout)} are held out"
        raise BadInput(
            f"Expected dataset {name} to have records to train on, got 0 of the declared {declared}{held}: look at its "
            "file before you spend budget on nothing, and keep this to yourself, since how many records there are is "
            "private."
        )
    if split.holdout is not None and not split.holdout.available:
        return (
            f"No record of {name} is held out, so every score of this sweep is noise alone. Keep this to yourself: how "
            "many records there are is private."
        )
    return ""
